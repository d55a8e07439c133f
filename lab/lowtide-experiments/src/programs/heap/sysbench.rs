//! A database with a buffer pool twelve times its memory: MySQL under sysbench's `oltp_read_only`,
//! `sysbench-ro`.
//!
//! ```text
//!   pool     48 tables ── a few upper pages, then 27,400 leaves of 16 KiB with 73 rows each
//!   control  450 bytes for each page of the pool, stored to by every access to it
//!   hash     8 bytes for each, loaded
//!
//!   transaction   a table ── 10 points:  statement ─ upper pages ─ leaf: first, last, row
//!                 a table ── range ×4:   statement ─ upper pages ─ 100 rows: two or three leaves
//! ```
//!
//! A row is drawn as sysbench 1.0 does it: a quarter of the draws from a bell around the middle of
//! the table, three quarters from a window of .75 % of it. So 160 MiB of leaves are hot and the
//! rest hardly matters, and the question is what swapping costs. All of it is heap: after the
//! warm-up no file is read. Source: `docs/kernel/workloads.md` §5.

use std::time::Duration;

use lowtide_workload::SplitMix64;

use super::{Content, HeapProgram, Region, Step, Steps, Work};

const POOL: u32 = 0;
const CONTROL: u32 = 1;
const HASH: u32 = 2;

/// Pages of the system in one of the database.
const EACH: u64 = 4;
/// Root and internal pages of a table.
const UPPER: u64 = 35;
/// Rows of a leaf.
const ROWS_OF_LEAF: u64 = 73;
/// Bytes of the record that the pool keeps about a page.
const CONTROL_BYTES: u64 = 450;
/// Bytes of its entry in the hash.
const HASH_BYTES: u64 = 8;
/// Points, and ranges, of a transaction; rows of a range.
const POINTS: u64 = 10;
const RANGES: u64 = 4;
const RANGE_ROWS: u64 = 100;

/// The program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SysbenchRo {
    /// Budget of the group, in bytes.
    pub max: u64,
    /// Tables.
    pub tables: u64,
    /// Rows of each.
    pub rows: u64,
    /// Threads, all of one process; each fills some tables.
    pub threads: u32,
    /// Processor time of a round trip: parsing, rows, the connection, the client. Calibrated, so
    /// that a transaction of 16 takes the published 2.78 ms with 48 threads at 17,250 a second.
    pub statement: Duration,
    /// Time before the measurement.
    pub warm: Duration,
    /// Time of the measurement.
    pub run: Duration,
    /// Seed of the choices.
    pub seed: u64,
}

impl SysbenchRo {
    /// The published setup, but for its times, at a scale: fewer tables and threads in less memory.
    #[must_use]
    pub fn published(scale: f64) -> Self {
        let tables = (48.0 * scale).round().max(1.0);
        Self {
            // Whole tables decide how much smaller it is.
            max: ((2_u64 << 30) as f64 * tables / 48.0) as u64,
            tables: tables as u64,
            rows: 2_000_000,
            threads: tables as u32,
            statement: Duration::from_micros(165),
            warm: Duration::from_secs(5),
            run: Duration::from_secs(20),
            seed: 1,
        }
    }

    const fn leaves(&self) -> u64 {
        self.rows.div_ceil(ROWS_OF_LEAF)
    }

    /// Pages of the database in a table.
    const fn table(&self) -> u64 {
        UPPER + self.leaves()
    }

    /// Pages of the database in the pool.
    const fn all(&self) -> u64 {
        self.tables * self.table()
    }

    /// The row of a draw, from 0: sysbench's `special`, with the mistake that the release has (the
    /// draw that chooses between bell and window is used again for the place in the window).
    fn row(&self, rng: &mut SplitMix64) -> u64 {
        let t = (self.rows - 1) as f64;
        let u = rng.unit_f64();
        let row = if u < 0.25 {
            t * (0..12).map(|_| rng.unit_f64()).sum::<f64>() / 12.0
        } else {
            t / 2.0 - 0.005 * t + u * (0.01 * t + 1.0)
        };
        (row as u64).min(self.rows - 1)
    }

    /// An access to a page of the pool: its record, and the hash if it is looked up there.
    fn look_up(page: u64, hashed: bool, steps: &mut Vec<Step>) {
        let touch = |region, first, store| Step::Touch { region, first, pages: 1, store };
        if hashed {
            steps.push(touch(HASH, page * HASH_BYTES / super::PAGE, false));
        }
        steps.push(touch(CONTROL, page * CONTROL_BYTES / super::PAGE, true));
    }

    /// A statement down to its first leaf: parsing, the root, and an internal page. Returns that
    /// leaf's number within the table.
    fn descend(&self, table: u64, row: u64, steps: &mut Vec<Step>) -> u64 {
        steps.push(Step::Compute(self.statement.as_nanos() as u64));
        let (base, leaf) = (table * self.table(), row / ROWS_OF_LEAF);
        let internal = 1 + leaf * (UPPER - 1) / self.leaves();
        for upper in [base, base + internal] {
            let first = upper * EACH + row % EACH;
            steps.push(Step::Touch { region: POOL, first, pages: 1, store: false });
        }
        leaf
    }

    fn point(&self, table: u64, row: u64, steps: &mut Vec<Step>) {
        let leaf = self.descend(table, row, steps);
        let page = table * self.table() + UPPER + leaf;
        Self::look_up(page, true, steps);
        let slot = row % ROWS_OF_LEAF * EACH / ROWS_OF_LEAF;
        // The header, the directory at the end, and the row.
        for part in [0, EACH - 1, slot] {
            let first = page * EACH + part;
            steps.push(Step::Touch { region: POOL, first, pages: 1, store: false });
        }
    }

    fn range(&self, table: u64, row: u64, steps: &mut Vec<Step>) {
        let row = row.min(self.rows - RANGE_ROWS);
        let first = self.descend(table, row, steps);
        for leaf in first..=(row + RANGE_ROWS - 1) / ROWS_OF_LEAF {
            let page = table * self.table() + UPPER + leaf;
            Self::look_up(page, leaf == first, steps);
            let first = page * EACH;
            steps.push(Step::Touch { region: POOL, first, pages: EACH, store: false });
        }
    }

    /// The steps of a transaction.
    fn transaction(&self, rng: &mut SplitMix64) -> Vec<Step> {
        let statement = Step::Compute(self.statement.as_nanos() as u64);
        let mut steps = vec![Step::Begin, statement];
        // A table is drawn once for a group of queries, a row for each.
        let table = rng.below(self.tables);
        for _ in 0..POINTS {
            let row = self.row(rng);
            self.point(table, row, &mut steps);
        }
        for _ in 0..RANGES {
            let table = rng.below(self.tables);
            let row = self.row(rng);
            self.range(table, row, &mut steps);
        }
        steps.extend([statement, Step::End]);
        steps
    }
}

impl HeapProgram for SysbenchRo {
    fn max(&self) -> Option<u64> {
        Some(self.max)
    }

    fn processes(&self) -> u32 {
        1
    }

    fn regions(&self) -> Vec<Region> {
        let region = |pages| Region { content: Content::Heap, pages, process: 0 };
        let each = |bytes: u64| (self.all() * bytes).div_ceil(super::PAGE);
        vec![region(self.all() * EACH), region(each(CONTROL_BYTES)), region(each(HASH_BYTES))]
    }

    fn workers(&self) -> u32 {
        self.threads
    }

    fn work(&self) -> Work {
        Work::Endless { warm: self.warm, run: self.run }
    }

    /// Each thread reads its tables into the pool, as the benchmark's preparation does.
    fn fill(&self, worker: u32) -> Steps {
        let program = *self;
        let tables = (0..self.tables)
            .filter(move |table| table % u64::from(program.threads) == u64::from(worker));
        let load = move |page: u64| {
            let mut steps = Vec::with_capacity(3);
            Self::look_up(page, true, &mut steps);
            steps.push(Step::Touch { region: POOL, first: page * EACH, pages: EACH, store: true });
            steps
        };
        Box::new(tables.flat_map(move |table| {
            let first = table * program.table();
            (first..first + program.table()).flat_map(load)
        }))
    }

    fn piece(&self, number: u64, _worker: u32) -> Steps {
        let (program, mut rng) = (*self, SplitMix64::new(self.seed).fork(number));
        Box::new(std::iter::repeat_with(move || program.transaction(&mut rng)).flatten())
    }

    fn heap_bytes(&self) -> u64 {
        self.regions().iter().map(|region| region.pages * super::PAGE).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `docs/kernel/workloads.md` §5(b): sizes of the published set-up.
    #[test]
    fn the_published_tables_are_twenty_gibibytes_of_leaves() {
        let program = SysbenchRo::published(1.0);
        assert_eq!((program.leaves(), program.threads, program.max), (27_398, 48, 2 << 30));
        let gib = |region: &Region| (region.pages * super::super::PAGE) as f64 / f64::from(1 << 30);
        let sizes: Vec<f64> = program.regions().iter().map(gib).collect();
        assert!((sizes[0] - 20.1).abs() < 0.1 && (sizes[1] - 0.55).abs() < 0.05, "{sizes:?}");
        let small = SysbenchRo::published(1.0 / 16.0);
        assert_eq!((small.tables, small.threads, small.max), (3, 3, 128 << 20));
    }

    /// The same: popularity of a table's leaves, measured there with a generator of its own.
    #[test]
    fn three_quarters_of_the_rows_are_in_a_narrow_window() {
        const DRAWS: usize = 1_000_000;
        let program = SysbenchRo::published(0.02);
        let mut rng = SplitMix64::new(7);
        let mut counts = vec![0_u32; program.leaves() as usize];
        for _ in 0..DRAWS {
            counts[(program.row(&mut rng) / ROWS_OF_LEAF) as usize] += 1;
        }
        let hot: u32 = counts[995_000 / 73..=1_010_000 / 73].iter().sum();
        assert!((f64::from(hot) / DRAWS as f64 - 0.76).abs() < 0.015, "{hot}");
        counts.sort_unstable_by(|a, b| b.cmp(a));
        for (part, share) in [(0.01, 0.762), (0.05, 0.809), (0.20, 0.942), (0.33, 0.988)] {
            let top = (counts.len() as f64 * part) as usize;
            let found = f64::from(counts[..top].iter().sum::<u32>()) / DRAWS as f64;
            assert!((found - share).abs() < 0.01, "{part}: {found}");
        }
    }

    #[test]
    fn a_transaction_has_sixteen_round_trips_and_reads_ten_points_and_four_ranges() {
        let program = SysbenchRo::published(0.1);
        let steps: Vec<Step> = program.piece(0, 0).take_while(|&step| step != Step::End).collect();
        let computes = steps.iter().filter(|step| matches!(step, Step::Compute(_))).count();
        let ranges = steps.iter().filter(|step| matches!(step, Step::Touch { pages: EACH, .. }));
        assert_eq!(computes, 16);
        assert!((8..=12).contains(&ranges.count()), "two or three leaves each");
        let stores = steps.iter().filter(
            |step| matches!(step, Step::Touch { store: true, region, .. } if *region != CONTROL),
        );
        assert_eq!(stores.count(), 0, "only the pool's own records are stored to");
    }
}
