//! What one seed draws: a pager, its files, its device and its threads.
//!
//! The first seeds walk through the large dimensions in turn (order, base page, device), so that a
//! short run meets each of them; everything else is drawn.

use lowtide::{IoEngine, IoMode};
use std::fmt;
use std::time::Duration;

/// SplitMix64.
#[derive(Clone, Debug)]
pub(crate) struct Rng(pub(crate) u64);

pub(crate) fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// A number below `n`; 0 if there is none.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    /// One in `n`.
    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

/// What the device does to requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behaviour {
    /// Nothing.
    Fair,
    /// Requests come late, and in parts.
    Rough,
    /// Reads fail.
    ReadsFail,
    /// Writes and extensions fail.
    WritesFail,
    /// Syncs fail.
    SyncsFail,
    /// Requests hang for a while, for longer than a flush waits.
    Hangs,
    /// All of that.
    Foul,
}

impl Behaviour {
    const ALL: [Self; 7] = [
        Self::Fair,
        Self::Rough,
        Self::Fair,
        Self::ReadsFail,
        Self::WritesFail,
        Self::SyncsFail,
        Self::Hangs,
    ];

    /// Whether operations may fail because of it.
    pub(crate) fn is_fair(self) -> bool {
        matches!(self, Self::Fair | Self::Rough)
    }

    /// Whether reads of the swap file may say that all went well, and bring other bytes.
    pub(crate) fn lies(self) -> bool {
        matches!(self, Self::ReadsFail | Self::Foul)
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Fair => "device fair",
            Self::Rough => "device rough",
            Self::ReadsFail => "device reads fail",
            Self::WritesFail => "device writes fail",
            Self::SyncsFail => "device syncs fail",
            Self::Hangs => "device hangs",
            Self::Foul => "device foul",
        }
    }
}

/// A file of the plan.
#[derive(Clone, Debug)]
pub(crate) struct FilePlan {
    /// Pages that it may have.
    pub(crate) pages: u64,
    pub(crate) order: u8,
    /// Whether it begins as one hole, and is filled from its beginning.
    pub(crate) hole: bool,
    /// Whether it begins short and grows.
    pub(crate) short: bool,
    /// Whether a tenant pays.
    pub(crate) tenant: bool,
}

/// The swap of a plan, in pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SwapPlan {
    /// Memory of compressed pages.
    pub(crate) memory: u64,
    /// All slots together.
    pub(crate) slots: Option<u64>,
    /// Slots of the file.
    pub(crate) file: Option<u64>,
}

/// What a seed draws.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) page: usize,
    /// Records of a page.
    pub(crate) records: u64,
    pub(crate) budget: u64,
    pub(crate) files: Vec<FilePlan>,
    /// Frames of regions, beside the budget.
    pub(crate) heap: u64,
    pub(crate) swap: Option<SwapPlan>,
    /// Sixteenths of the budget for compressed pages of files.
    pub(crate) zcache: Option<u64>,
    pub(crate) engine: IoEngine,
    pub(crate) mode: IoMode,
    pub(crate) policy: &'static str,
    pub(crate) threads: u64,
    pub(crate) background: bool,
    pub(crate) young_faults: bool,
    pub(crate) memory_timeout: Duration,
    pub(crate) io_timeout: Duration,
    pub(crate) read_timeout: Option<Duration>,
    pub(crate) behaviour: Behaviour,
    pub(crate) operations: u64,
}

pub(crate) const PAGES: [usize; 8] = [512, 1024, 2048, 4096, 8192, 16384, 32768, 65536];
/// How long an operation may wait for frames and guards. Nothing in the storm holds any of them for
/// so long.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long it may wait for a read of a device that hangs.
const LATE: Duration = Duration::from_millis(15);

impl Plan {
    pub(crate) fn draw(seed: u64, operations: u64) -> Self {
        let mut rng = Rng(mix(seed ^ 0x0073_746F_726D));
        let swaps = seed % 3 == 2;
        let page = if swaps { 4096 } else { PAGES[((seed + seed / 8) % 8) as usize] };
        // The largest folio has 2 MiB, and half of the orders come with every page size.
        let largest = (2_usize << 20 >> page.trailing_zeros()).ilog2() as u64;
        let order = (seed % 10).min(largest) as u8;
        let folio = 1_u64 << order;
        let budget = (folio * 8).max(64) + folio.max(16) * rng.below(8) + rng.below(32);
        let large = budget as usize * page > 6 << 20;
        let mut files = vec![FilePlan {
            pages: budget * if large { 3 } else { 2 + rng.below(4) }
                / if large { 2 } else { 1 }
                / folio
                * folio,
            order,
            hole: rng.one_in(2),
            short: rng.one_in(2),
            tenant: rng.one_in(3),
        }];
        for _ in 0..1 + rng.below(2) {
            files.push(FilePlan {
                pages: 16 + rng.below(budget / 2),
                order: rng.below(u64::from(order) + 1) as u8,
                hole: rng.one_in(2),
                short: rng.one_in(2),
                tenant: rng.one_in(3),
            });
        }
        let heap = 40 + rng.below(80);
        // What reads from the file may lie about has to be there.
        let swap = swaps.then(|| SwapPlan {
            memory: if seed % 9 == 2 { 1 } else { rng.pick(&[1, heap / 8, heap / 2, heap]) },
            slots: rng.one_in(3).then(|| heap / 2 + rng.below(3 * heap)),
            file: match seed % 9 {
                2 => Some(8 * heap),
                5 => None,
                _ => (!rng.one_in(3)).then(|| rng.pick(&[heap / 4, heap, 8 * heap])),
            },
        });
        let behaviour = match seed % 9 {
            2 => Behaviour::ReadsFail,
            8 => Behaviour::Foul,
            _ => Behaviour::ALL[(seed / 2 % 7) as usize],
        };
        Self {
            seed,
            page,
            records: rng.pick(&[1, 2, 4, 8]),
            budget,
            files,
            heap,
            swap,
            zcache: rng.one_in(2).then(|| 1 + rng.below(12)),
            engine: rng.pick(&[IoEngine::Auto, IoEngine::Auto, IoEngine::Psync]),
            mode: rng.pick(&[IoMode::Auto, IoMode::Auto, IoMode::Buffered]),
            policy: rng.pick(&["mglru", "mglru", "mglru-7.1", "lru", "tide"]),
            threads: rng.pick(&[2, 4, 6, 8, 12, 32]),
            background: !rng.one_in(5),
            young_faults: rng.one_in(4),
            memory_timeout: if rng.one_in(4) { Duration::MAX } else { PATIENCE },
            io_timeout: match behaviour {
                Behaviour::Hangs | Behaviour::Foul => Duration::from_millis(20),
                _ if rng.one_in(4) => Duration::MAX,
                _ => Duration::from_secs(60),
            },
            read_timeout: match behaviour {
                Behaviour::Hangs | Behaviour::Foul if seed.is_multiple_of(2) => Some(LATE),
                _ => (seed % 5 == 1).then_some(Duration::from_secs(60)),
            },
            behaviour,
            // Retries of what fails have pauses.
            operations: if behaviour.is_fair() { operations } else { operations * 2 / 3 },
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "seed {}: {} threads, {} pages of {} bytes, {:?}, {}, {:?}, {}, files",
            self.seed,
            self.threads,
            self.budget,
            self.page,
            self.engine,
            self.policy,
            self.mode,
            self.behaviour.name()
        )?;
        for file in &self.files {
            write!(f, " {}x{}", file.pages >> file.order, 1 << file.order)?;
        }
        write!(f, "; background threads: {}, timeout {:?}", self.background, self.memory_timeout)?;
        write!(f, "; heap {} pages, swap {:?}", self.heap, self.swap)?;
        write!(f, "; compressed {:?} of 16", self.zcache)?;
        write!(f, "; reads end after {:?}", self.read_timeout)
    }
}
