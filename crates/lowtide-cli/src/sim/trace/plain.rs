//! A trace on the plain machine: the trace is read once, and each policy's machine plays the
//! batches.
//!
//! ```text
//!   reader ──► batch of operations ──┬──► machine of mglru       a thread each,
//!   (this thread)                    ├──► machine of mglru-7.1   a few batches behind
//!                                    └──► machine of lru
//! ```
//!
//! An operation on many pages is split, so that no batch takes long.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use lowtide::{Policy, Size};
use lowtide_core::MemoryStat;
use lowtide_core::limits::MIN_BUDGET;
use lowtide_report::interrupt::{self, Interrupted};
use lowtide_report::row::{MeasuredFigures, Row};
use lowtide_report::table::{self, thousands};
use lowtide_report::threads::{self, Stop};
use lowtide_report::{columns, out};
use lowtide_sim::{Plain, PlainConfig, PlainCounts, PlayError};
use lowtide_workload::trace::Trace;
use lowtide_workload::{PageOp, SpaceKind};

use super::source::{Source, SpaceSurvey, reading};
use super::{Options, WORKLOAD, paging};
use crate::sim::full::Outcome;
use lowtide_bench::sim::clock::Stopwatch;
use lowtide_bench::sim::error::SimError;
use lowtide_bench::sim::host::{Host, needed};
use lowtide_bench::sim::options::plain_budget;
use lowtide_bench::sim::show::{self, Head, PlainMachine};

/// The default budget, as a share of the touched pages.
const MAX_PART: u64 = 4;
/// Approximate number of pages in a batch.
const BATCH_PAGES: u64 = 16_384;
/// The largest number of batches by which the reader is ahead of the slowest machine.
const AHEAD: usize = 8;

/// A batch from the reader to every machine.
#[derive(Debug, Default)]
struct Batch {
    /// Spaces that appear for the first time.
    spaces: Vec<SpaceKind>,
    ops: Vec<PageOp>,
}

/// The result of one policy.
#[derive(Debug)]
struct Played {
    counts: PlainCounts,
    memory: MemoryStat,
    took: Duration,
    bytes: usize,
    /// The error that ended it before the end of the trace.
    killed: Option<String>,
}

/// Plays the trace under every policy and prints the rows.
pub(crate) fn run(options: &Options, policies: &[Policy], source: &Source) -> Result<(), SimError> {
    if options.max.is_none() && source.is_standard_input() {
        return Err(SimError::usage(
            "the default budget depends on the pages that the trace touches, and standard input \
             can be read only once",
            "give a budget such as --max 64M",
        ));
    }
    let trace = source.open()?;
    let page = paging::page_of(options.page, &trace)?;
    let max = match plain_budget(options.max, page)? {
        Some(max) => max,
        None => default_budget(source, page)?,
    };
    let host = Host::ask();
    host.check(needed(max, 0).saturating_mul(policies.len() as u64))?;
    let head = Head {
        what: format!("{WORKLOAD}: a recorded trace"),
        machine: show::plain_machine(),
        max: Some(max * page),
        data: format!(
            "{}, read as {}; {}",
            source.name(),
            trace.format(),
            paging::shown(options.page, &trace, page)
        ),
        run: "to the end of the trace, in its order".into(),
    };
    head.print(&options.common);

    let machines = policies.iter().map(|&policy| {
        Player::new(&options.swap.plain_config(policy, max, page), &host, policies.len())
    });
    let machines = machines.collect::<Result<Vec<_>, _>>()?;
    let machines = machines.into_iter().map(|machine| {
        let (sender, receiver) = sync_channel(AHEAD);
        (sender, move || machine.play(&receiver))
    });
    let (senders, works): (Vec<_>, Vec<_>) = machines.unzip();
    // Owns the senders: the machines end when their channels are closed.
    let read = move || deliver(source, trace, &senders);
    let (read, played) = threads::run(&Stop::default(), works, read)?;
    let Read { pages, interrupted } = read?;

    let mut outcome = Outcome::default();
    outcome
        .cut
        .take::<_, SimError>(interrupted.map_or(Ok(()), |interrupted| Err(interrupted.into())))?;
    for (&policy, played) in policies.iter().zip(played) {
        let played = played?;
        let row = Row {
            trace: Some(source.name()),
            policy: policy.to_string(),
            max_bytes: Some(max * page),
            page_bytes: page,
            seed: Some(options.common.seed),
            ..row_of(&played, pages, page, options.timing.is_on())
        };
        match played.killed {
            Some(what) => outcome.killed(row, what),
            None => outcome.rows.push(row),
        }
    }
    let closing = format!(
        "\n{} pages of {} touched ({})",
        thousands(pages as f64),
        Size::new(page),
        table::memory(pages * page)
    );
    outcome.show(&options.common, &PlainMachine::of(page), columns::PLAIN, &[closing])
}

/// The budget without `--max`, in pages: a part of what the trace touches.
fn default_budget(source: &Source, page: u64) -> Result<u64, SimError> {
    let part = source.survey()?.footprint() / MAX_PART;
    if part < MIN_BUDGET {
        out::note(format_args!(
            "a quarter of what the trace touches is less than the smallest budget, {}, which is \
             taken",
            Size::new(MIN_BUDGET * page)
        ));
    }
    Ok(part.max(MIN_BUDGET))
}

/// What a machine measured on a trace that touches `pages` pages, without the settings.
fn row_of(played: &Played, pages: u64, page: u64, timed: bool) -> Row {
    let row = Row {
        workload: WORKLOAD,
        world: "sim",
        system: "lowtide",
        machine: PlainMachine::NAME.into(),
        data_bytes: Some(pages * page),
        threads: 1,
        measured: MeasuredFigures { footprint_pages: Some(pages), ..MeasuredFigures::default() },
        ..Row::default()
    };
    let row = row.on_plain(&played.counts, &played.memory);
    if timed { row.timed(played.took, played.bytes, pages) } else { row }
}

/// The part of a trace that was read.
struct Read {
    /// Distinct pages that it touches.
    pages: u64,
    /// The error that ended reading early.
    interrupted: Option<Interrupted>,
}

/// Reads the trace and sends it to the machines. Batches read before an interruption are still
/// played.
fn deliver(
    source: &Source,
    mut trace: Trace,
    senders: &[SyncSender<Arc<Batch>>],
) -> Result<Read, SimError> {
    let mut progress = reading(trace.progress());
    let mut spaces: Vec<SpaceSurvey> = Vec::new();
    let (mut batch, mut pages, mut ops) = (Batch::default(), 0_u64, 0_u64);
    let mut hand_out = |batch: &mut Batch, position| {
        progress.set(position);
        let full = Arc::new(std::mem::take(batch));
        for sender in senders {
            // A machine that has ended with an error receives no more.
            let _ = sender.send(Arc::clone(&full));
        }
        interrupt::check(|| format!("playing the trace {}", source.name()))
    };
    let mut interrupted = None;
    'records: while let Some(record) = trace.next().transpose()? {
        ops += 1;
        let op = record.op;
        let at = op.space.0 as usize;
        if at >= spaces.len() {
            for space in &trace.names().spaces()[spaces.len()..] {
                batch.spaces.push(space.kind);
                spaces.push(SpaceSurvey::new(space.kind));
            }
        }
        let mut rest = op;
        while rest.pages > 0 {
            let piece = PageOp { pages: rest.pages.min(BATCH_PAGES as u32), ..rest };
            spaces[at].add(&piece);
            batch.ops.push(piece);
            pages += u64::from(piece.pages);
            rest = PageOp {
                page: rest.page + u64::from(piece.pages),
                pages: rest.pages - piece.pages,
                ..rest
            };
            if pages >= BATCH_PAGES {
                if let Err(stopped) = hand_out(&mut batch, trace.progress().read_bytes) {
                    interrupted = Some(stopped);
                    break 'records;
                }
                pages = 0;
            }
        }
    }
    if interrupted.is_none() {
        interrupted = hand_out(&mut batch, trace.progress().read_bytes).err();
    }
    source.refuse_empty(ops)?;
    Ok(Read { pages: spaces.iter().map(SpaceSurvey::pages).sum(), interrupted })
}

/// The machine of one policy.
#[derive(Debug)]
struct Player {
    machine: Plain,
    spaces: usize,
    host: Host,
    /// Number of machines that share the host's memory.
    machines: u64,
}

impl Player {
    fn new(config: &PlainConfig, host: &Host, machines: usize) -> Result<Self, SimError> {
        let machine = Plain::new(config)?;
        Ok(Self { machine, spaces: 0, host: *host, machines: machines as u64 })
    }

    /// Plays batches until the last one or an error of the machine.
    fn play(mut self, batches: &Receiver<Arc<Batch>>) -> Result<Played, SimError> {
        let mut took = Duration::ZERO;
        let mut killed = None;
        let mut until_check = 0;
        for batch in batches {
            let began = Stopwatch::start();
            let result = self.play_batch(&batch);
            took += began.elapsed();
            match result {
                Ok(()) => {}
                Err(error @ PlayError::OutOfMemory { .. }) => {
                    killed = Some(error.to_string());
                    break;
                }
                Err(error) => return Err(SimError::Play(error)),
            }
            if until_check == 0 {
                // The query costs a step for every space.
                until_check = self.spaces / 64 + 1;
                self.host.check((self.machine.bytes() as u64).saturating_mul(self.machines))?;
            }
            until_check -= 1;
        }
        let (counts, memory) = (self.machine.counts(), self.machine.stat());
        Ok(Played { counts, memory, took, bytes: self.machine.bytes(), killed })
    }

    fn play_batch(&mut self, batch: &Batch) -> Result<(), PlayError> {
        for &kind in &batch.spaces {
            self.machine.add_space(kind, 0);
        }
        self.spaces += batch.spaces.len();
        batch.ops.iter().try_for_each(|op| self.machine.play(op))
    }
}
