//! From options to numbers: defaults filled in, impossible combinations refused, all before
//! anything is made.
//!
//! How many data files a run needs follows from what is cached in front of them. Caches of one file
//! that do not know of each other must not write to it, so for a workload that writes every system
//! has a file of its own. When nothing is written, lowtide's pagers share one, but every mmap peer
//! still has its own: the kernel has one page cache for a file, and a page that one peer brought in
//! would be free memory for another.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lowtide::{Pager, Policy, Size};
use lowtide_core::limits::MIN_BUDGET;
use lowtide_sys::probe::Probe;
use lowtide_workload::Workload;

use super::args::{Against, BenchArgs, Mode, Popularity, Target};
use super::content::{Content, UNIT_BYTES};
use super::crew::{Until, share};
use super::datafile::{DataFile, Depot, Locking, Purpose};
use super::error::BenchError;
use super::machine::direct_align;
use super::options::{
    GRAIN_BYTES, checkpoint_option, grain, max_option, page_option, policies, refuse_misplaced,
    scale, seconds_option,
};
use super::play::replay::Recording;
use super::slow::Slowness;

/// The budget when nothing is said.
pub(crate) const MAX_BYTES: u64 = 256 << 20;
/// Data as a multiple of the budget when nothing is said.
pub(crate) const SCALE: f64 = 4.0;
/// lowtide's base page where nothing argues for another: the kernel's own.
pub(crate) const PAGE_BYTES: u64 = 4096;
/// Measured seconds of a system when nothing is said.
const SECONDS: f64 = 5.0;
/// Rounds when nothing is said.
const ROUNDS: u32 = 5;
/// From checkpoint to checkpoint when nothing is said.
const CHECKPOINT: Duration = Duration::from_secs(10);
/// Rounds with checkpoints when nothing is said: they are long.
const CHECKPOINT_ROUNDS: u32 = 3;
/// Checkpoint intervals of such a round: one checkpoint, and half an interval in which it may end.
const CHECKPOINTS_A_ROUND: f64 = 1.5;
/// What a scan asks for at a time, in bytes: what the kernel reads ahead by default.
const SCAN_BYTES: u64 = 128 << 10;
/// Memory beside the budgets that must be available, in bytes: tables, threads, and air for the
/// rest of the machine.
const HEADROOM_BYTES: u64 = 64 << 20;

/// Where data comes from.
#[derive(Debug)]
pub(crate) enum Source {
    /// Files that the bench makes and may keep.
    Made(Depot),
    /// A file of the user's own, which is only read.
    User(PathBuf, Locking),
}

impl Source {
    /// What the options say.
    ///
    /// # Errors
    /// Those of [`Depot::open`].
    pub(crate) fn of(args: &BenchArgs) -> Result<Self, BenchError> {
        match &args.file {
            Some(path) => Ok(Self::User(path.clone(), args.locking())),
            None => depot(args).map(Self::Made),
        }
    }
}

/// The directory of the files that the bench makes.
///
/// # Errors
/// Those of [`Depot::open`].
pub(crate) fn depot(args: &BenchArgs) -> Result<Depot, BenchError> {
    Depot::open(args.dir.as_deref(), !args.no_keep, args.locking())
}

/// A kernel mapping to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MmapKind {
    /// The name of its row.
    pub(crate) name: &'static str,
    /// `MADV_RANDOM`.
    pub(crate) random: bool,
}

/// What was asked for, as far as it does not depend on the data file.
#[derive(Debug)]
pub(crate) struct Plan {
    /// What to run.
    pub(crate) workload: Workload,
    /// The budget of each system.
    pub(crate) max_bytes: u64,
    /// The size of the data.
    pub(crate) data_bytes: u64,
    /// What the data is made of.
    pub(crate) content: Content,
    /// Whether the workload writes.
    pub(crate) writes: bool,
    /// lowtide's rows.
    pub(crate) policies: Vec<Policy>,
    /// The peers' rows.
    pub(crate) peers: Vec<MmapKind>,
    /// How many rounds.
    pub(crate) rounds: u32,
    /// What all rounds of a system together are.
    pub(crate) until: Until,
    /// Popularity of records.
    pub(crate) popularity: Popularity,
    /// The time from checkpoint to checkpoint, where there are any.
    pub(crate) checkpoint: Option<Duration>,
    /// lowtide's base page, where an option or the trace of a replay says it.
    page: Option<u64>,
    /// What the trace says.
    page_said: Option<u64>,
}

impl Plan {
    /// Fills in what `args` leave open. `trace` is the trace of a replay.
    /// Peers that cannot run here are left out, and `note` is told why.
    ///
    /// # Errors
    /// [`BenchError::Usage`], [`BenchError::Setup`], [`BenchError::NoMemory`].
    pub(crate) fn new(
        args: &BenchArgs,
        workload: Workload,
        trace: Option<&Recording>,
        probe: &Probe,
        note: impl FnMut(String),
    ) -> Result<Self, BenchError> {
        refuse_misplaced(args, Target::Workload(workload))?;
        let ycsb = workload.ycsb_letter();
        let writes = trace.map_or_else(
            || ycsb.is_some_and(|letter| letter.update_percent() > 0),
            Recording::writes,
        );
        let page = page_option(args)?.or_else(|| trace.and_then(Recording::page_bytes));
        if let Some(page) = page
            && ycsb.is_some()
            && writes
            && page < UNIT_BYTES as u64
        {
            return Err(BenchError::usage(
                format!(
                    "records of 1K cross pages of {page} bytes, so an update could be seen half \
                     done"
                ),
                "choose --page 1K or more, or ycsb-c, which only reads",
            ));
        }
        let scale = scale(args, SCALE)?;
        let (max_bytes, data_bytes) = match trace {
            Some(trace) => {
                let page = page.unwrap_or(PAGE_BYTES);
                let data = grain(trace.pages().saturating_mul(page));
                let part = ((data as f64 / scale) as u64).max(MIN_BUDGET * page);
                (max_option(args)?.unwrap_or(part), data)
            }
            None => {
                let max = max_option(args)?.unwrap_or(MAX_BYTES);
                (max, grain((max as f64 * scale) as u64))
            }
        };
        let checkpoint = (workload == Workload::Mixed)
            .then(|| checkpoint_option(args).map(|every| every.unwrap_or(CHECKPOINT)))
            .transpose()?;
        let rounds =
            args.rounds.unwrap_or(if checkpoint.is_some() { CHECKPOINT_ROUNDS } else { ROUNDS });
        let seconds = checkpoint
            .map_or(SECONDS, |every| CHECKPOINTS_A_ROUND * every.as_secs_f64() * f64::from(rounds));
        let until = match (trace, args.ops, args.seconds) {
            (Some(trace), most, _) => Until::Ops(most.unwrap_or(u64::MAX).min(trace.len())),
            (None, Some(ops), _) => Until::Ops(ops),
            (None, None, asked) => Until::Seconds(seconds_option(asked)?.unwrap_or(seconds)),
        };
        if let Until::Ops(ops) = until
            && ops < u64::from(rounds)
        {
            return Err(BenchError::usage(
                format!("{ops} operations cannot be cut into {rounds} rounds"),
                "ask for fewer with --rounds, or for more with --ops",
            ));
        }
        if let (Until::Seconds(seconds), Some(every)) = (until, checkpoint)
            && seconds / f64::from(rounds) <= every.as_secs_f64()
        {
            return Err(BenchError::usage(
                format!(
                    "rounds of {:.2} s end before the first checkpoint, after {every:?}",
                    seconds / f64::from(rounds)
                ),
                "ask for more with --seconds, for fewer with --rounds, or for earlier ones with \
                 --checkpoint",
            ));
        }
        let plan = Self {
            workload,
            max_bytes,
            data_bytes,
            content: if ycsb.is_some() { Content::Records } else { Content::Blocks },
            writes,
            policies: policies(args),
            peers: mmap_peers(args, probe, note)?,
            rounds,
            until,
            popularity: args.distribution.unwrap_or(Popularity::Zipf),
            checkpoint,
            page,
            page_said: trace.and_then(Recording::page_bytes),
        };
        check_memory(plan.policies.len() + plan.peers.len(), max_bytes, probe.memory_available)?;
        let smallest_default = if ycsb.is_some() { UNIT_BYTES as u64 } else { PAGE_BYTES };
        try_pager(args, plan.policies[0], max_bytes, page.unwrap_or(smallest_default))?;
        Ok(plan)
    }

    /// What round `round` of one system is.
    pub(crate) fn slice(&self, round: u32) -> Until {
        match self.until {
            Until::Seconds(seconds) => Until::Seconds(seconds / f64::from(self.rounds)),
            Until::Ops(ops) => Until::Ops(share(ops, u64::from(round), u64::from(self.rounds))),
        }
    }

    /// Finds or makes the data files: one for each system, in the order of the rows. Systems may
    /// share one, and then its position repeats.
    ///
    /// # Errors
    /// Those of [`Depot::prepare`] and [`DataFile::of_user`]; [`BenchError::Usage`] for a file of
    /// the user's that does not suit.
    pub(crate) fn files(
        &mut self,
        source: &Source,
        mut note: impl FnMut(String),
    ) -> Result<(Vec<DataFile>, Vec<usize>), BenchError> {
        let depot = match source {
            Source::Made(depot) => depot,
            Source::User(path, locking) => {
                let (file, found) = DataFile::of_user(path, *locking)?;
                self.suit(path, &file, found)?;
                for left_out in self.peers.drain(1.min(self.peers.len())..) {
                    note(format!(
                        "{0} left out: two mappings of one file share its page cache; run it \
                         alone with --against {0}",
                        left_out.name
                    ));
                }
                return Ok((vec![file], vec![0; self.policies.len() + self.peers.len()]));
            }
        };
        let lowtides = self.policies.len();
        let places: Vec<usize> = if self.writes {
            (0..lowtides + self.peers.len()).collect()
        } else {
            std::iter::repeat_n(0, lowtides).chain(1..=self.peers.len()).collect()
        };
        let count = places.last().map_or(0, |last| last + 1);
        // Updated records are records; rewritten blocks are not what the next run expects.
        let purpose = if self.writes && self.content == Content::Blocks {
            Purpose::Scratch
        } else {
            Purpose::Lasting
        };
        Ok((depot.prepare(self.content, self.data_bytes, count, purpose)?, places))
    }

    /// Takes a file of the user's as the data, if it can be.
    fn suit(&mut self, path: &Path, file: &DataFile, found: Content) -> Result<(), BenchError> {
        let name = path.display();
        if self.writes || self.workload == Workload::Replay {
            return Err(BenchError::usage(
                format!("{} writes, and --file is only read", self.workload),
                "leave --file out, or choose ycsb-c, random-read or scan",
            ));
        }
        if self.content == Content::Records && found != Content::Records {
            return Err(BenchError::usage(
                format!("{name} does not hold records"),
                format!(
                    "{} needs a file that lowtide bench made; or choose random-read or scan",
                    self.workload
                ),
            ));
        }
        if found != self.content {
            self.content = Content::Unknown;
        }
        self.data_bytes = file.bytes() - file.bytes() % GRAIN_BYTES;
        if self.data_bytes == 0 {
            return Err(BenchError::usage(
                format!("{name} has {} bytes", file.bytes()),
                format!("give a file of at least {}", Size::new(GRAIN_BYTES)),
            ));
        }
        Ok(())
    }
}

/// lowtide's base page and the reason for it, now that the file is known.
///
/// # Errors
/// [`BenchError::File`].
pub(crate) fn choose_page(
    args: &BenchArgs,
    plan: &Plan,
    file: &DataFile,
) -> Result<(u64, String), BenchError> {
    let asked = plan.page;
    if plan.content != Content::Records {
        let page = asked.unwrap_or(PAGE_BYTES);
        let note = match plan.page_said {
            _ if plan.workload != Workload::Replay => "pages of the workload".into(),
            None if args.page.is_none() => "the trace does not say; --page may".into(),
            Some(said) if said != page => {
                format!(
                    "as --page says; the trace has pages of {}, and each is taken for one",
                    Size::new(said)
                )
            }
            _ => "pages of the trace".into(),
        };
        return Ok((page, note));
    }
    let record = UNIT_BYTES as u64;
    let aligned = direct_align(file)?.is_none_or(|align| align <= record);
    let page =
        asked.unwrap_or(if aligned || args.direct == Mode::Buffered { record } else { PAGE_BYTES });
    let note = match (page / record, asked) {
        (0, _) => "half a record each".into(),
        (1, _) => "one record each".into(),
        (records, None) => {
            format!("{records} records each; the device cannot read single records")
        }
        (records, Some(_)) => format!("{records} records each, none crosses a page"),
    };
    Ok((page, note))
}

/// How many records or pages are asked for at a time.
pub(crate) fn batch(args: &BenchArgs, workload: Workload, page_bytes: u64) -> u32 {
    args.batch.unwrap_or_else(|| match workload {
        Workload::Scan => u32::try_from(SCAN_BYTES / page_bytes).unwrap_or(1).max(1),
        _ => 1,
    })
}

/// A pager as the options describe it.
///
/// # Errors
/// [`BenchError::Setup`].
pub(crate) fn build_pager(
    args: &BenchArgs,
    policy: Policy,
    max_bytes: u64,
    page_bytes: u64,
    depth: Option<u32>,
) -> Result<Pager, BenchError> {
    let max = Size::new(max_bytes);
    let builder = Pager::builder()
        .max(max)
        .policy(policy)
        .base_page(usize::try_from(page_bytes).unwrap_or(usize::MAX))
        .io_engine(args.io.into())
        .direct(args.direct.into())
        // A replayed access means what it means for a kernel.
        .young_faults(args.young_faults || args.workload == Target::Workload(Workload::Replay));
    let slowness = Slowness::of(args)?;
    let builder =
        if slowness.is_none() { builder } else { builder.inject(Arc::new(slowness.device())) };
    let builder = match depth {
        Some(depth) => builder.depth(depth),
        None => builder,
    };
    builder.build().map_err(|source| BenchError::Setup { max, page_bytes, source })
}

/// Builds a pager and drops it again, to learn early that it can be had.
fn try_pager(
    args: &BenchArgs,
    policy: Policy,
    max_bytes: u64,
    page_bytes: u64,
) -> Result<(), BenchError> {
    build_pager(args, policy, max_bytes, page_bytes, None).map(drop)
}

/// Refuses budgets that do not fit into memory together.
///
/// # Errors
/// [`BenchError::NoMemory`].
pub(crate) fn check_memory(systems: usize, each: u64, available: u64) -> Result<(), BenchError> {
    check_memory_beside(0, systems, each, available)
}

/// Whether the device is slowed down, so that there can be no peers.
///
/// # Errors
/// [`BenchError::Usage`] when peers were asked for nevertheless.
pub(crate) fn refuse_slowed_peers(args: &BenchArgs) -> Result<bool, BenchError> {
    let slowness = Slowness::of(args)?;
    let asked = args.against.iter().flatten().any(|&peer| peer != Against::None);
    if asked && !slowness.is_none() {
        return Err(BenchError::usage(
            "only lowtide's own requests can be slowed down, so there is nothing to compare with",
            "leave --against out, or --device-delay and --device-bandwidth",
        ));
    }
    Ok(!slowness.is_none())
}

/// As [`check_memory`], with `beside` bytes that are needed beside the budgets.
///
/// # Errors
/// [`BenchError::NoMemory`].
pub(crate) fn check_memory_beside(
    beside: u64,
    systems: usize,
    each: u64,
    available: u64,
) -> Result<(), BenchError> {
    let needed =
        each.saturating_mul(systems as u64).saturating_add(beside).saturating_add(HEADROOM_BYTES);
    if available > 0 && needed > available {
        return Err(BenchError::NoMemory { systems, each, needed, available });
    }
    Ok(())
}

/// The mmap peers: those asked for, or both where a memory cgroup can be made.
fn mmap_peers(
    args: &BenchArgs,
    probe: &Probe,
    mut note: impl FnMut(String),
) -> Result<Vec<MmapKind>, BenchError> {
    if refuse_slowed_peers(args)? {
        note(
            "mmap and mmap-random left out: only lowtide's own requests can be slowed down".into(),
        );
        return Ok(Vec::new());
    }
    let asked = args.against.clone().unwrap_or_else(|| vec![Against::Mmap, Against::MmapRandom]);
    let mut peers: Vec<MmapKind> = Vec::new();
    for against in asked {
        let kind = match against {
            Against::None => continue,
            Against::Mmap => MmapKind { name: "mmap", random: false },
            Against::MmapRandom => MmapKind { name: "mmap-random", random: true },
            Against::Dd | Against::Pwrite => {
                return Err(BenchError::usage(
                    "dd and pwrite write a file from its start to its end",
                    "compare with them in `lowtide bench fill`",
                ));
            }
            Against::Fio => {
                return Err(BenchError::usage(
                    "fio is compared only at a depth",
                    "write `lowtide bench random-read --depth 1,8,32 --against fio`",
                ));
            }
        };
        if !peers.contains(&kind) {
            peers.push(kind);
        }
    }
    if let lowtide_sys::probe::Availability::No(why) = &probe.memcg
        && !peers.is_empty()
    {
        let names: Vec<_> = peers.iter().map(|peer| peer.name).collect();
        note(format!(
            "{} left out, as there is no memory cgroup to limit them: {why}",
            names.join(" and ")
        ));
        peers.clear();
    }
    Ok(peers)
}
