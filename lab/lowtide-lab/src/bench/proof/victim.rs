//! `lowtide-lab crash-writer`: the process that is killed.
//!
//! It reports on standard output that its threads begin to write, and then the changes that each
//! flush has made durable: messages of 24 bytes, each written with one call, so that a pipe accepts
//! all or nothing of it. It continues until it is killed or standard output is closed.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use lowtide::map::MapMode;
use lowtide::{IoEngine, Pager, Policy, Size};
use lowtide_proof::heap::{Heap, SwapKind};
use lowtide_proof::layout::Layout;
use lowtide_proof::ledger::Ledger;
use lowtide_proof::script::Part;
use lowtide_proof::shape::Shape;
use lowtide_proof::writer::{Step, Writer};
use lowtide_report::out;
use lowtide_report::threads::{self, Stop};
use lowtide_workload::SplitMix64;
use lowtide_workload::prng::mix64;

/// Steps of each thread before the file is closed and reopened.
const STEPS_BEFORE_REOPENING: u64 = 60;

/// The arguments of the process, set by `lowtide-lab bench crash`.
#[derive(Clone, Debug, Args)]
pub(crate) struct VictimArgs {
    /// The file
    pub(crate) path: PathBuf,
    /// Its bytes
    #[arg(long)]
    pub(crate) bytes: u64,
    /// The budget
    #[arg(long)]
    pub(crate) max: Size,
    /// Threads
    #[arg(long)]
    pub(crate) threads: usize,
    /// Seed of the proof
    #[arg(long)]
    pub(crate) seed: u64,
    /// Number of the cycle
    #[arg(long)]
    pub(crate) cycle: u64,
    /// Reclaim policy
    #[arg(long)]
    pub(crate) policy: Policy,
    /// I/O engine
    #[arg(long)]
    pub(crate) io: IoEngine,
    /// Bytes of a page
    #[arg(long)]
    pub(crate) page: usize,
    /// Order of folios
    #[arg(long)]
    pub(crate) order: u8,
    /// Two views of the file
    #[arg(long)]
    pub(crate) two_views: bool,
    /// The file is closed and reopened after this many steps of each thread
    #[arg(long)]
    pub(crate) reopens: bool,
    /// Map mode of the file, instead of views
    #[arg(long)]
    pub(crate) map: Option<MapMode>,
    /// Sixteenths of the budget for pages that stay compressed
    #[arg(long)]
    pub(crate) zcache: Option<u64>,
    /// Number of the kind of swap of a region in addition to the file
    #[arg(long)]
    pub(crate) region: Option<usize>,
    /// Milliseconds that an operation waits for room
    #[arg(long)]
    pub(crate) patience: Option<u64>,
    /// The length with which the file is created
    #[arg(long)]
    pub(crate) create: Option<u64>,
}

impl VictimArgs {
    /// As a command line.
    pub(crate) fn to_args(&self) -> Vec<std::ffi::OsString> {
        let mut args = vec!["crash-writer".into(), self.path.clone().into()];
        let rest = [
            ("--bytes", self.bytes.to_string()),
            ("--max", self.max.to_string()),
            ("--threads", self.threads.to_string()),
            ("--seed", self.seed.to_string()),
            ("--cycle", self.cycle.to_string()),
            ("--policy", self.policy.to_string()),
            ("--io", self.io.to_string()),
            ("--page", self.page.to_string()),
            ("--order", self.order.to_string()),
        ];
        args.extend(rest.into_iter().flat_map(|(name, value)| [name.into(), value.into()]));
        args.extend(self.two_views.then(|| "--two-views".into()));
        args.extend(self.reopens.then(|| "--reopens".into()));
        args.extend(self.map.map(|way| format!("--map={way}").into()));
        args.extend(self.zcache.map(|part| format!("--zcache={part}").into()));
        args.extend(self.region.map(|kind| format!("--region={kind}").into()));
        args.extend(self.patience.map(|millis| format!("--patience={millis}").into()));
        args.extend(self.create.map(|bytes| format!("--create={bytes}").into()));
        args
    }

    /// Pages, folios, views or a map, and a region.
    pub(crate) fn shape(&self) -> Shape {
        Shape {
            page: self.page,
            order: self.order,
            two_views: self.two_views,
            reopens: self.reopens,
            map: self.map,
            zcache: self.zcache,
            region: self.region.and_then(|kind| SwapKind::ALL.get(kind).copied()),
            patience: self.patience.map(Duration::from_millis),
        }
    }

    /// A thread of the process.
    pub(crate) const fn part(&self, thread: usize) -> Part {
        Part {
            seed: self.seed,
            cycle: self.cycle,
            thread,
            threads: self.threads,
            mapped: self.map.is_some(),
        }
    }
}

/// A message of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Begun,
    /// The first changes of a thread, up to a number, are durable.
    Flushed {
        thread: usize,
        /// Number of changes.
        n: u64,
    },
    /// The effect of the first changes on one slot is durable.
    FlushedSlot {
        thread: usize,
        slot: usize,
        /// Number of changes.
        n: u64,
    },
}

impl Message {
    const BYTES: usize = 24;

    fn to_bytes(self) -> [u8; Self::BYTES] {
        let words = match self {
            Self::Begun => [0, 0, 0],
            Self::Flushed { thread, n } => [1 << 32 | thread as u64, 0, n],
            Self::FlushedSlot { thread, slot, n } => [2 << 32 | thread as u64, slot as u64, n],
        };
        let mut bytes = [0; Self::BYTES];
        for (to, word) in bytes.chunks_mut(8).zip(words) {
            to.copy_from_slice(&u64::to_le_bytes(word));
        }
        bytes
    }

    /// The next message, or `None` at the end.
    ///
    /// # Errors
    /// Those of the pipe; [`InvalidData`](io::ErrorKind::InvalidData) for an invalid message.
    pub(crate) fn receive(from: &mut impl Read) -> io::Result<Option<Self>> {
        let mut bytes = [0; Self::BYTES];
        match from.read_exact(&mut bytes) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error),
        }
        let word = |index: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[8 * index..][..8]);
            u64::from_le_bytes(word)
        };
        let thread = (word(0) & 0xFFFF_FFFF) as usize;
        match word(0) >> 32 {
            0 => Ok(Some(Self::Begun)),
            1 => Ok(Some(Self::Flushed { thread, n: word(2) })),
            2 => Ok(Some(Self::FlushedSlot { thread, slot: word(1) as usize, n: word(2) })),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

fn say(message: Message) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(&message.to_bytes())?;
    out.flush()
}

/// Writes until killed.
///
/// # Errors
/// A description of the unexpected failure.
pub(crate) fn run(args: &VictimArgs) -> Result<(), String> {
    // The bench may be killed before it kills this process.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let layout = Layout::new(args.bytes);
    let file = match args.create {
        Some(_) => Vec::new(),
        None => std::fs::read(&args.path).map_err(|error| error.to_string())?,
    };
    let mut ledger = Ledger::new(&layout);
    // The parent has verified the content of the file.
    ledger.adopt(&layout, &file);
    let shape = args.shape();
    let dir = args.path.parent().unwrap_or(Path::new("."));
    let builder = shape.builder(args.max.bytes(), dir).policy(args.policy).io_engine(args.io);
    let pager = builder.build().map_err(|error| error.to_string())?;
    let stream = SplitMix64::new(mix64(args.seed ^ mix64(args.cycle)));
    let heap = shape.region.map(|swap| Heap::new(&pager, swap, false, stream)).transpose()?;
    if let Some(heap) = heap {
        // It ends with the process.
        std::thread::spawn(move || use_region(heap));
    }
    let parts: Vec<_> = (0..args.threads).map(|thread| args.part(thread)).collect();
    let mut writers = Writer::all(&layout, &parts);
    say(Message::Begun).map_err(|error| error.to_string())?;
    if shape.reopens {
        act(args, &pager, &mut writers, &ledger, args.create, STEPS_BEFORE_REOPENING)?;
    }
    act(args, &pager, &mut writers, &ledger, args.create, u64::MAX)
}

/// Uses a region until the process is killed; ends it where bytes are found that cannot be.
fn use_region(mut heap: Heap) {
    loop {
        if let Err(what) = heap.step() {
            out::note(what);
            std::process::exit(1);
        }
    }
}

/// Opens the file, lets each thread write a number of steps, and closes it.
fn act(
    args: &VictimArgs,
    pager: &Pager,
    writers: &mut [Writer<'_>],
    ledger: &Ledger,
    create: Option<u64>,
    steps: u64,
) -> Result<(), String> {
    let opened = args.shape().open(pager, &args.path, create, args.bytes);
    let opened = opened.map_err(|error| error.to_string())?;
    let stop = Stop::default();
    let play = |thread: usize, writer: &mut Writer<'_>| -> Result<(), String> {
        let access = opened.access(thread);
        for _ in 0..steps {
            if stop.is_requested() {
                break;
            }
            let mut step = writer.step(access, ledger);
            // A thread that hardly waits finds no room where others would.
            while args.patience.is_some() && matches!(step, Step::Refused(_)) {
                if stop.is_requested() {
                    return Ok(());
                }
                step = writer.try_again(access);
            }
            let said = match step {
                Step::Changed(_) | Step::Read => Ok(()),
                Step::Flushed(n) => say(Message::Flushed { thread, n }),
                Step::FlushedSlot(slot, n) => say(Message::FlushedSlot { thread, slot, n }),
                Step::Refused(error) => return Err(error.to_string()),
                Step::Wrong(_, what) => return Err(what),
            };
            if said.is_err() {
                // The bench has ended.
                stop.request();
            }
        }
        Ok(())
    };
    let works = writers.iter_mut().enumerate().map(|(thread, writer)| {
        let (play, stop) = (&play, &stop);
        move || play(thread, writer).inspect_err(|_| stop.request())
    });
    let ended = threads::run(&stop, works, || ());
    let ((), ends) = ended.map_err(|error| error.to_string())?;
    ends.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_pipe() {
        let messages = [
            Message::Begun,
            Message::Flushed { thread: 7, n: u64::MAX },
            Message::FlushedSlot { thread: 1, slot: 12345, n: 9 },
        ];
        let mut pipe: Vec<u8> = messages.iter().flat_map(|message| message.to_bytes()).collect();
        pipe.extend([1, 2, 3]);
        let mut from = &pipe[..];
        for message in messages {
            assert_eq!(Message::receive(&mut from).unwrap(), Some(message));
        }
        assert_eq!(
            Message::receive(&mut from).unwrap(),
            None,
            "a message that was cut off is none"
        );
    }
}
