//! A plan: everything about one run of the swarm, as data that fits a line of text.
//!
//! ```text
//!   seed=7;cpus=2;budget=64;memory=group;device=nvme;readahead=32;around=16;policy=mglru-S7;
//!   processes=1;dirty=10:8192b;figures=exact;spaces=file:300,anon:20;
//!   threads=0:uniform:m50:w20:s2:f1:z0:p4:t300:o200;
//!   faults=90:max:40,120:slow:100,150:cut:3;check=16
//! ```
//!
//! The text has no spaces and is complete, so a plan that fails is replayed from it alone, on any
//! machine (`text.rs`). A fault comes when a number of operations have begun, all threads together:
//! so it comes in the middle of others, however slow the device is. Plans are drawn from seeds in
//! `draw.rs` and made smaller in `shrink.rs`.

use lowtide_core::limits::MIN_BUDGET;
use lowtide_core::{DirtyLimits, DirtyLimitsError, Policy};
use lowtide_sim::spec::FaultPath;
use lowtide_workload::SpaceKind;
use thiserror::Error;

use super::sabotage::Bug;

/// Bytes of a page where a plan does not say.
pub(super) const PAGE: u64 = 4096;
/// What a plan may say instead: the sizes of base pages that the library has.
pub(super) const PAGE_LEAST: u64 = 512;
pub(super) const PAGE_MOST: u64 = 64 << 10;

/// One run. See the module documentation.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Plan {
    /// Seed of the streams and of the device.
    pub seed: u64,
    /// CPUs, 1 to 64.
    pub cpus: u16,
    /// Bytes of a base page: a power of two from 512 to 64 KiB.
    pub page: u64,
    /// Pages of the budget: of the group, or of the machine. At least 32, or 64 of a machine.
    pub budget: u64,
    /// Pages that the budget may be raised to later: the frames there are. At least the budget.
    pub room: u64,
    /// The budget is the machine's whole memory, and a background reclaimer keeps some of it free;
    /// otherwise it is a group's limit.
    pub whole: bool,
    /// A factor on the time of aging walks, as if the machine had that many times the memory.
    pub walks: u64,
    /// A device preset ([`DeviceSpec::names`](lowtide_sim::spec::DeviceSpec::names)).
    pub device: &'static str,
    /// Largest read-ahead window in pages, 0 for none.
    pub readahead: u64,
    /// Pages that a fault maps around it, a power of two, 0 for the page alone.
    pub around: u64,
    /// The policy.
    pub policy: Policy,
    /// How faults wait for their I/O.
    pub path: FaultPath,
    /// How much may be dirty, background and hard; `None` for what a kernel begins with.
    pub dirty: Option<DirtyLimits>,
    /// Whether writers see how much is dirty now, or what was last published, as in a kernel.
    pub exact: bool,
    /// Files that are only read, by descriptor, are cached in large folios where that is possible.
    pub large: bool,
    /// Processes, 1 to 4, each with a mapping of every file and heaps of its own; thread *i*
    /// belongs to process *i* modulo their number.
    pub processes: u8,
    /// Files, and heaps of each process.
    pub spaces: Vec<SpacePlan>,
    /// What each thread does.
    pub threads: Vec<ThreadPlan>,
    /// What goes wrong, by the number of the operation that it comes with.
    pub faults: Vec<(u64, Fault)>,
    /// Turns of the machine between two full checks.
    pub check: u64,
    /// A bug to be planted.
    pub bug: Option<Bug>,
}

/// A file or a heap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpacePlan {
    /// Which of the two.
    pub kind: SpaceKind,
    /// Its size in pages.
    pub pages: u64,
}

/// In which order a thread visits the pages of its space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pattern {
    /// Each is as likely as any other.
    Uniform,
    /// Low numbers are likelier: the cube of a uniform number.
    Skewed,
    /// One after another, round and round.
    Loop,
    /// As skewed, with a run of pages read in order now and then.
    Scan,
}

impl Pattern {
    /// All patterns.
    pub const ALL: [Self; 4] = [Self::Uniform, Self::Skewed, Self::Loop, Self::Scan];

    /// The name in a plan.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Skewed => "skewed",
            Self::Loop => "loop",
            Self::Scan => "scan",
        }
    }
}

/// What a thread does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ThreadPlan {
    /// Number of the space it works on.
    pub space: usize,
    /// Where in the space.
    pub pattern: Pattern,
    /// `m`: percent of its accesses that go through the mapping.
    pub mapped: u32,
    /// `w`: percent of its accesses that write.
    pub writes: u32,
    /// `s`: syncs in a thousand operations.
    pub syncs: u32,
    /// `f`: operations in a thousand that give pages up.
    pub frees: u32,
    /// `d`: operations in a thousand that drop what is cached and can be dropped at once.
    pub drops: u32,
    /// `r`: operations in a thousand that change the size of the file.
    pub resizes: u32,
    /// `l`: operations in a thousand that free pages of a heap lazily.
    pub lazy: u32,
    /// `h`: percent of its writes through the descriptor that store a part of each page.
    pub parts: u32,
    /// `z`: operations in a thousand that are sleeps of ten milliseconds.
    pub sleeps: u32,
    /// `p`: pages of one operation at most, at least 1.
    pub pages: u64,
    /// `t`: nanoseconds of CPU time before each operation.
    pub think_ns: u64,
    /// `o`: operations.
    pub ops: u64,
}

impl ThreadPlan {
    /// Rates that most plans do without, each with its letter.
    pub(super) const fn rare(&self) -> [(char, u32); 4] {
        [('d', self.drops), ('r', self.resizes), ('h', self.parts), ('l', self.lazy)]
    }

    /// The rate with this letter.
    pub(super) const fn rare_mut(&mut self, letter: char) -> Option<&mut u32> {
        match letter {
            'd' => Some(&mut self.drops),
            'r' => Some(&mut self.resizes),
            'h' => Some(&mut self.parts),
            'l' => Some(&mut self.lazy),
            _ => None,
        }
    }
}

/// Something that goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The budget becomes this many pages, or all the room there is if that is less.
    Max(u64),
    /// The device takes this many times as long for everything.
    Slow(u64),
    /// One device command in n fails; 0 for none.
    Fail(u64),
    /// The same for writes alone.
    FailWrites(u64),
    /// The same for flushes of the device's cache alone.
    FailFlushes(u64),
    /// One read in n hangs for a long time; 0 for none.
    Hang(u64),
    /// The power goes. What of all that was on its way is there afterwards is drawn from this seed.
    Cut(u64),
}

impl Fault {
    /// Name and number in a plan.
    #[must_use]
    pub const fn parts(self) -> (&'static str, u64) {
        match self {
            Self::Max(pages) => ("max", pages),
            Self::Slow(times) => ("slow", times),
            Self::Fail(one_in) => ("fail", one_in),
            Self::FailWrites(one_in) => ("fail-writes", one_in),
            Self::FailFlushes(one_in) => ("fail-flushes", one_in),
            Self::Hang(one_in) => ("hang", one_in),
            Self::Cut(seed) => ("cut", seed),
        }
    }

    /// The fault of this name with this number.
    #[must_use]
    pub fn of(name: &str, value: u64) -> Option<Self> {
        let all: [fn(u64) -> Self; 7] = [
            Self::Max,
            Self::Slow,
            Self::Fail,
            Self::FailWrites,
            Self::FailFlushes,
            Self::Hang,
            Self::Cut,
        ];
        all.into_iter().map(|fault| fault(value)).find(|fault| fault.parts().0 == name)
    }
}

impl Plan {
    /// Whether a space is a file that may be cached in large folios.
    #[must_use]
    pub fn is_large(&self, space: usize) -> bool {
        let small = |t: &ThreadPlan| {
            t.space == space && t.mapped.max(t.writes).max(t.resizes).max(t.frees) > 0
        };
        let is_file = self.spaces.get(space).is_some_and(|s| s.kind == SpaceKind::File);
        self.large && is_file && !self.threads.iter().any(small)
    }

    /// Operations of all threads.
    #[must_use]
    pub fn ops(&self) -> u64 {
        self.threads.iter().map(|thread| thread.ops).sum()
    }

    /// Whether the device fails commands at any time.
    #[must_use]
    pub fn fails(&self) -> bool {
        let fails = |fault| {
            matches!(fault, Fault::Fail(1..) | Fault::FailWrites(1..) | Fault::FailFlushes(1..))
        };
        self.faults.iter().any(|&(_, fault)| fails(fault))
    }

    /// Checks that the plan can be carried out.
    ///
    /// # Errors
    /// [`PlanError::Impossible`] for the first value that is out of range.
    pub fn validate(&self) -> Result<(), PlanError> {
        let least = if self.whole { 2 * MIN_BUDGET } else { MIN_BUDGET };
        let in_range = [
            ("cpus", u64::from(self.cpus), 1, 64),
            ("page", self.page, PAGE_LEAST, PAGE_MOST),
            ("budget", self.budget, least, 1 << 20),
            ("room", self.room, self.budget, 1 << 20),
            ("walks", self.walks, 1, 1_000_000),
            ("readahead", self.readahead, 0, 4096),
            ("around", self.around, 0, 512),
            ("processes", self.processes.into(), 1, 4),
            ("spaces", self.spaces.len() as u64, 1, 16),
            ("threads", self.threads.len() as u64, 1, 256),
            ("check", self.check, 1, u64::MAX),
        ];
        let of_spaces = self.spaces.iter().map(|s| ("spaces", s.pages, 1, 1 << 20));
        let of_threads = self.threads.iter().flat_map(|t| {
            [
                ("threads", t.space as u64, 0, self.spaces.len() as u64 - 1),
                ("threads", t.mapped.into(), 0, 100),
                ("threads", t.writes.into(), 0, 100),
                ("threads", t.pages, 1, self.spaces.get(t.space).map_or(1, |s| s.pages)),
                ("threads", t.think_ns, 0, 1_000_000_000),
                ("threads", t.ops, 0, 1 << 32),
            ]
        });
        let of_faults = self.faults.iter().map(|(_, fault)| match *fault {
            Fault::Max(pages) => ("faults", pages, MIN_BUDGET, 1 << 20),
            Fault::Slow(times) => ("faults", times, 1, 1_000_000),
            Fault::Fail(any)
            | Fault::FailWrites(any)
            | Fault::FailFlushes(any)
            | Fault::Hang(any)
            | Fault::Cut(any) => ("faults", any, 0, u64::MAX),
        });
        for (key, value, least, most) in
            in_range.into_iter().chain(of_spaces).chain(of_threads).chain(of_faults)
        {
            if !(least..=most).contains(&value) {
                return Err(PlanError::Impossible { key, value, least, most });
            }
        }
        if !self.page.is_power_of_two() {
            return Err(PlanError::Value { key: "page".into(), value: self.page.to_string() });
        }
        if self.around > 0 && !self.around.is_power_of_two() {
            return Err(PlanError::Value { key: "around".into(), value: self.around.to_string() });
        }
        if let Some(Err(error)) = self.dirty.map(|limits| limits.check(self.page)) {
            return Err(PlanError::Dirty(error));
        }
        Ok(())
    }
}

/// A text that is no plan.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A part without `=`, or with a key that plans do not have.
    #[error("`{0}` is not a part of a plan; write key=value;... as a failing swarm prints it")]
    Part(String),
    /// A value that is not understood.
    #[error(
        "`{value}` is not a value of `{key}` in a plan; copy the plan as a failing swarm prints it"
    )]
    Value {
        /// The key.
        key: String,
        /// The text.
        value: String,
    },
    /// A key is missing.
    #[error("the plan has no `{0}`; copy all of it, as a failing swarm prints it")]
    Missing(&'static str),
    /// Limits for dirty pages that make no sense.
    #[error("`dirty` in a plan: {0}")]
    Dirty(#[source] DirtyLimitsError),
    /// A number out of range.
    #[error("`{key}` in a plan cannot be {value}: use a number from {least} to {most}")]
    Impossible {
        /// The key.
        key: &'static str,
        /// The number.
        value: u64,
        /// The least that is possible.
        least: u64,
        /// The most.
        most: u64,
    },
}
