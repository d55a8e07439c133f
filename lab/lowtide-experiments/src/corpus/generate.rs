//! Generators of the corpus, beyond those of the ground truth.
//!
//! Each is a pattern that real programs have and that some published policy is known to handle
//! badly. All sizes are in pages and accesses of the full corpus; a scale below 1 shrinks both.
//! Loads and stores are those of a mapping: a policy sees a young bit and no more.

use lowtide_workload::zipf::{ZipfTable, permutation};
use lowtide_workload::{OpKind, PageOp, SpaceId, SplitMix64};

use super::distance::Distances;

/// A generated stream.
#[derive(Clone, Copy, Debug)]
pub enum Model {
    /// Steps of two loops in turn.
    TwoLoops {
        /// Pages of the loops.
        loops: [u32; 2],
        /// Accesses.
        accesses: u32,
    },
    /// A loop, and draws by popularity from other pages between its steps.
    LoopBesideZipf {
        /// Pages of the loop.
        length: u32,
        /// Popular pages.
        hot: u32,
        /// Share of draws.
        percent: u32,
        /// Accesses.
        accesses: u32,
    },
    /// Popular pages, now and then interrupted by a scan of pages not seen for long.
    Bursts {
        /// Popular pages.
        hot: u32,
        /// Pages of a scan.
        scan: u32,
        /// Draws between two scans.
        every: u32,
        /// Pages of the region that the scans pass through, in turn.
        cold: u32,
        /// Accesses.
        accesses: u32,
    },
    /// Zipf, a loop, a scan and uniform draws from a tenth, one after the other, again and again.
    Seasons {
        /// Pages.
        pages: u32,
        /// Seasons in all.
        seasons: u32,
        /// Accesses.
        accesses: u32,
    },
    /// Draws from a window that moves on.
    Drift {
        /// Pages of the window.
        window: u32,
        /// Accesses between two steps of the window.
        step: u32,
        /// Accesses.
        accesses: u32,
    },
    /// Writers that keep to a hot tenth, readers that do not.
    HotCold {
        /// Pages.
        pages: u32,
        /// Share of accesses that go to the hot tenth; those are stores.
        percent: u32,
        /// Accesses.
        accesses: u32,
    },
    /// A log that is written once, read while it is fresh, and an index that is read always.
    Log {
        /// Pages of the log, which wraps.
        pages: u32,
        /// Pages of the index.
        index: u32,
        /// Accesses.
        accesses: u32,
    },
    /// A nested loop: for each outer page, all inner ones.
    Join {
        /// Outer pages.
        outer: u32,
        /// Inner pages.
        inner: u32,
        /// Accesses.
        accesses: u32,
    },
    /// Three nested loops, as in the product of two matrices: a row of the first, again and again,
    /// all of the second, a page of the result.
    Product {
        /// Pages of a row.
        row: u32,
        /// Rows.
        rows: u32,
        /// Accesses.
        accesses: u32,
    },
    /// Walks from the root of a tree to its leaves, some of which continue along the leaves.
    Tree {
        /// Leaves.
        leaves: u32,
        /// Children of a node.
        fanout: u32,
        /// The Zipf exponent of the leaves.
        exponent: f64,
        /// Share of walks that read on, for 64 leaves.
        ranges: u32,
        /// Accesses.
        accesses: u32,
    },
    /// Stack distances.
    Distances(Distances),
}

impl Model {
    /// The operations.
    #[must_use]
    pub fn ops(&self, seed: u64, scale: f64) -> Vec<PageOp> {
        let mut out = Stream { ops: Vec::new(), rng: SplitMix64::new(seed), limit: 0 };
        // At least a few pages, so that every shape remains what it is.
        let by = |n: u32| ((f64::from(n) * scale) as u32).max(4);
        match *self {
            Self::TwoLoops { loops, accesses } => {
                out.limit = by(accesses);
                out.two_loops(loops.map(by));
            }
            Self::LoopBesideZipf { length, hot, percent, accesses } => {
                out.limit = by(accesses);
                out.loop_and_draws(by(length), &mut Popular::new(by(hot), 0.9, seed), percent);
            }
            Self::Bursts { hot, scan, every, cold, accesses } => {
                out.limit = by(accesses);
                let [hot, scan, every, cold] = [hot, scan, every, cold].map(by);
                out.bursts(&mut Popular::new(hot, 0.9, seed), [scan, every, cold]);
            }
            Self::Seasons { pages, seasons, accesses } => {
                out.limit = by(accesses);
                out.seasons(by(pages), seasons, seed);
            }
            Self::Drift { window, step, accesses } => {
                out.limit = by(accesses);
                out.drift(&mut Popular::new(by(window), 0.8, seed), step.max(1));
            }
            Self::HotCold { pages, percent, accesses } => {
                out.limit = by(accesses);
                out.hot_cold(by(pages), percent);
            }
            Self::Log { pages, index, accesses } => {
                out.limit = by(accesses);
                out.log(by(pages), by(index), seed);
            }
            Self::Join { outer, inner, accesses } => {
                out.limit = by(accesses);
                out.join(by(outer), by(inner));
            }
            Self::Product { row, rows, accesses } => {
                out.limit = by(accesses);
                out.product(row.max(2), by(rows));
            }
            Self::Tree { leaves, fanout, exponent, ranges, accesses } => {
                out.limit = by(accesses);
                out.tree(&mut Popular::new(by(leaves), exponent, seed), fanout.max(2), ranges);
            }
            Self::Distances(model) => {
                let (pages, accesses) = (by(model.pages), by(model.accesses));
                let stream = Distances { pages, accesses, ..model }.draw(seed);
                out.limit = accesses;
                stream.into_iter().for_each(|page| {
                    out.load(page);
                });
            }
        }
        out.ops
    }
}

/// Zipf draws, scattered over the pages.
struct Popular {
    table: ZipfTable,
    place: Vec<u32>,
}

impl Popular {
    fn new(pages: u32, exponent: f64, seed: u64) -> Self {
        let place = permutation(pages, SplitMix64::new(seed).fork(1));
        Self { table: ZipfTable::new(pages, exponent), place }
    }

    fn pages(&self) -> u32 {
        self.place.len() as u32
    }

    fn draw(&mut self, rng: &mut SplitMix64) -> u32 {
        self.place[self.table.draw(rng)]
    }
}

/// Operations on one file, up to a limit.
struct Stream {
    ops: Vec<PageOp>,
    rng: SplitMix64,
    limit: u32,
}

impl Stream {
    fn full(&self) -> bool {
        self.ops.len() >= self.limit as usize
    }

    /// Returns whether there is room for more.
    fn push(&mut self, kind: OpKind, page: u32) -> bool {
        if !self.full() {
            self.ops.push(PageOp { kind, space: SpaceId(0), page: page.into(), pages: 1 });
        }
        !self.full()
    }

    fn load(&mut self, page: u32) -> bool {
        self.push(OpKind::Load, page)
    }

    fn two_loops(&mut self, [short, long]: [u32; 2]) {
        for i in 0.. {
            self.load(i % short);
            if !self.load(short + i % long) {
                return;
            }
        }
    }

    fn loop_and_draws(&mut self, length: u32, popular: &mut Popular, percent: u32) {
        let mut at = 0;
        loop {
            let drawn = self.rng.percent(percent);
            let page = if drawn { length + popular.draw(&mut self.rng) } else { at };
            at = if drawn { at } else { (at + 1) % length };
            if !self.load(page) {
                return;
            }
        }
    }

    fn bursts(&mut self, popular: &mut Popular, [scan, every, cold]: [u32; 3]) {
        let (hot, mut at) = (popular.pages(), 0);
        while !self.full() {
            for _ in 0..every {
                let page = popular.draw(&mut self.rng);
                self.load(page);
            }
            for _ in 0..scan {
                self.load(hot + at);
                at = (at + 1) % cold;
            }
        }
    }

    fn drift(&mut self, popular: &mut Popular, step: u32) {
        for i in 0.. {
            let page = i / step + popular.draw(&mut self.rng);
            if !self.load(page) {
                return;
            }
        }
    }

    fn hot_cold(&mut self, pages: u32, percent: u32) {
        let hot = (pages / 10).max(1);
        while !self.full() {
            if self.rng.percent(percent) {
                let page = self.rng.below(u64::from(hot)) as u32;
                self.push(OpKind::Store, page);
            } else {
                let page = hot + self.rng.below(u64::from(pages - hot)) as u32;
                self.load(page);
            }
        }
    }

    fn join(&mut self, outer: u32, inner: u32) {
        for i in 0.. {
            self.load(i % outer);
            (0..inner).for_each(|page| {
                self.load(outer + page);
            });
            if self.full() {
                return;
            }
        }
    }

    fn seasons(&mut self, pages: u32, seasons: u32, seed: u64) {
        let mut fresh = pages;
        let seasons = seasons.max(1);
        for season in 0..seasons {
            let end = (u64::from(self.limit) * u64::from(season + 1) / u64::from(seasons)) as usize;
            let mut popular = Popular::new(pages, 1.0, seed.wrapping_add(season.into()));
            let tenth = self.rng.below(9) as u32 * (pages / 10);
            for i in 0_u32.. {
                if self.ops.len() >= end {
                    break;
                }
                let page = match season % 4 {
                    0 => popular.draw(&mut self.rng),
                    1 => i % (pages / 3).max(1),
                    2 => {
                        fresh += 1;
                        // Scans read each page of a new region twice, close together.
                        fresh - 1 - (fresh & 1)
                    }
                    _ => tenth + self.rng.below(u64::from(pages / 10).max(1)) as u32,
                };
                self.load(page);
            }
        }
    }

    fn log(&mut self, pages: u32, index: u32, seed: u64) {
        let (mut popular, mut head) = (Popular::new(index, 0.8, seed), 0_u32);
        while !self.full() {
            match self.rng.below(10) {
                0..2 => {
                    self.push(OpKind::Store, index + head % pages);
                    head += 1;
                }
                2..5 => {
                    // Readers follow the head at distances of a Pareto distribution.
                    let behind = (4.0 / (1.0 - self.rng.unit_f64()).powf(1.2)) as u32;
                    let at = head.saturating_sub(behind.min(pages));
                    self.load(index + at % pages);
                }
                _ => {
                    let page = popular.draw(&mut self.rng);
                    self.load(page);
                }
            }
        }
    }

    fn product(&mut self, row: u32, rows: u32) {
        let matrix = row * rows;
        while !self.full() {
            for i in 0..rows {
                for j in 0..rows {
                    for k in 0..row {
                        self.load(i * row + k);
                        self.load(matrix + j * row + k);
                    }
                    if !self.load(2 * matrix + i) {
                        return;
                    }
                }
            }
        }
    }

    fn tree(&mut self, leaves: &mut Popular, fanout: u32, ranges: u32) {
        let count = leaves.pages();
        while !self.full() {
            let leaf = leaves.draw(&mut self.rng);
            // Levels from the root down; the numbers of a level follow those of the one below it.
            let (mut path, mut base, mut width, mut at) = (Vec::new(), 0, count, leaf);
            while width > 1 {
                path.push(base + at);
                (base, width, at) = (base + width, width.div_ceil(fanout), at / fanout);
            }
            path.push(base);
            path.into_iter().rev().for_each(|page| {
                self.load(page);
            });
            if self.rng.percent(ranges) {
                (1..64).for_each(|more| {
                    self.load((leaf + more) % count);
                });
            }
        }
    }
}
