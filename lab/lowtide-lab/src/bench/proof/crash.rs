//! `bench crash`: killed processes, and the file that they leave.
//!
//! Each cycle starts a process (`victim.rs`) whose threads write records to one file under a small
//! budget, lets it write for a random time, and kills it with SIGKILL. Then the file is read and
//! compared with the data that the process had reported as durable. The next cycle continues with
//! the file.
//!
//! A kill loses nothing that the kernel already has: this proof finds acknowledgements before the
//! write, and pages that the runtime loses, tears or confuses. `bench power-cut` simulates the loss
//! of data that the kernel has.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::fs::{File, TryLockError};
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::bench::options::OnePolicy;
use clap::Args;
use lowtide::{IoEngine, Size};
use lowtide_bench::error::BenchError;
use lowtide_bench::options::{engines, threads};
use lowtide_host::file as facts;
use lowtide_host::itself;
use lowtide_proof::coverage::{Coverage, Tally};
use lowtide_proof::files::Files;
use lowtide_proof::heap::SwapKind;
use lowtide_proof::layout::Layout;
use lowtide_proof::ledger::{Findings, Ledger};
use lowtide_proof::script::{Part, Version};
use lowtide_proof::shape::{Beginning, Shape};
use lowtide_report::interrupt::{self, Cut};
use lowtide_report::progress::{Patient, Unit};
use lowtide_report::threads::{self, Stop};
use lowtide_report::values::budget;
use lowtide_report::{out, table};
use lowtide_workload::SplitMix64;

use super::coverage::{drawn_table, must_have};
use super::report::{Common, Setting, Sizes, conclude};
use super::victim::{Message, VictimArgs};
use super::ways_of_maps;

pub(crate) const NAME: &str = "crash";
/// One line for listings.
pub(crate) const ABOUT: &str =
    "writers killed by SIGKILL at random moments: no flushed byte may be lost";

/// A proof with this many kills must have drawn every variant.
const CYCLES_FOR_COVERAGE: u64 = 500;
/// The longest time that a process writes, in microseconds.
const LIFE_US: u64 = 60_000;
/// The largest number of changes that a thread can begin in that time.
const CHANGES_MAX: u64 = 1 << 15;
/// Kills per file.
const CYCLES_OF_A_FILE: u64 = 16;
/// Time limit for the start of a process.
const PATIENCE: Duration = Duration::from_secs(30);
/// Interval at which a wait checks for Ctrl-C.
const POLL: Duration = Duration::from_millis(50);

#[derive(Debug, Args)]
pub(crate) struct CrashArgs {
    /// Number of writers to kill
    #[arg(long, value_name = "N", default_value_t = 1000,
          value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    cycles: u64,
    /// Threads of each writer
    #[arg(long, value_name = "N", value_parser = threads(), default_value_t = 8)]
    threads: u32,
    /// Memory budget of a writer
    #[arg(long, value_name = "SIZE", value_parser = budget, default_value = "512K",
          allow_hyphen_values = true)]
    max: u64,
    #[command(flatten)]
    policy: OnePolicy,
    /// I/O system calls that lowtide uses; auto prefers io_uring
    #[arg(long, value_parser = engines(), default_value = "auto")]
    io: IoEngine,
    #[command(flatten)]
    common: Common,
}

/// Runs the proof.
///
/// # Errors
/// Any [`BenchError`]; [`LabError::Broken`](crate::error::LabError::Broken) for a broken guarantee.
pub(crate) fn run(args: &CrashArgs) -> Result<(), BenchError> {
    let Sizes { max_bytes, bytes, threads, layout } =
        Sizes::new(args.max, args.common.scale, args.threads)?;
    let seed = args.common.seed.seed;
    let data_dir = args.common.place.data_dir()?;
    let scratch = data_dir.scratch("crash")?;
    let files = Files::beside(scratch.path());
    let path = files.now.as_path();

    let policy = args.policy.policy;
    let engine = args.io;
    let setting = Setting {
        proof: NAME,
        cycles: "kills",
        in_process: false,
        policy: policy.to_string(),
        max_bytes,
        data_bytes: bytes,
        threads,
        seed,
        file_system: facts::fs_name(scratch.path()).unwrap_or_else(|_| "unknown".into()),
        io: engine.to_string(),
    };
    let cycles = args.cycles;
    out::line(format_args!(
        "crash: {threads} threads write records to {} under a budget of {}, and are killed \
         {cycles} times; seed {}",
        table::memory(bytes),
        Size::new(max_bytes),
        seed
    ));
    let began = Instant::now();
    let mut progress = Patient::new("killing", Unit::Steps, cycles);
    let mut rng = SplitMix64::new(seed);
    let mut killer = Killer {
        args,
        bytes,
        layout: &layout,
        path,
        ledger: Ledger::new(&layout),
        create: None,
        tally: Tally::default(),
        coverage: Coverage { ways: ways_of_maps(), ..Coverage::default() },
    };
    let mut cut = Cut::default();
    for cycle in 0..cycles {
        let during = || format!("killing writers ({cycle} times so far)");
        if cut.take(interrupt::check(during).map_err(BenchError::from))?.is_none() {
            break;
        }
        progress.set(cycle);
        if cut.take(killer.cycle(cycle, &mut rng))?.is_none() {
            break;
        }
    }
    let Killer { tally, coverage, .. } = killer;
    cut.refuse_nothing(tally.cycles == 0)?;
    drop(progress);
    let seconds = began.elapsed().as_secs_f64();
    out::line(format_args!("{}\n", drawn_table(&coverage)));
    conclude(&args.common.output, &setting, &tally, seconds, &coverage, cut)?;
    let long = cycles >= CYCLES_FOR_COVERAGE;
    must_have(long, &coverage.missing_draws())
}

/// Kills writers of one file after another, and checks what they leave.
struct Killer<'a> {
    args: &'a CrashArgs,
    /// Of the file.
    bytes: u64,
    layout: &'a Layout,
    path: &'a Path,
    /// What is durable by the writers' words.
    ledger: Ledger,
    /// The size with which a writer creates the file, while there is none.
    create: Option<u64>,
    tally: Tally,
    coverage: Coverage,
}

impl Killer<'_> {
    /// One writer: started, killed, and its file verified.
    fn cycle(&mut self, cycle: u64, rng: &mut SplitMix64) -> Result<(), BenchError> {
        if cycle.is_multiple_of(CYCLES_OF_A_FILE) {
            self.begin_file(rng)?;
        }
        let shape = Shape::draw(rng, &self.coverage.ways);
        self.coverage.add_shape(&shape);
        let victim = self.victim(cycle, &shape);
        let life = Duration::from_micros(rng.below(LIFE_US));
        let said = kill_one(&victim, life)?;
        if let Some(row) = shape.mapped_row() {
            self.coverage.count(&row, 1);
        }
        let counts = promise(self.layout, &victim, &said, &mut self.ledger, &mut self.tally);
        for (row, times) in counts {
            self.coverage.count(row, times);
        }
        // Unless it was killed before it created the file.
        self.create = self.create.filter(|_| !self.path.exists());
        let found = verify(self.path, self.layout, &victim, &mut self.ledger)?;
        self.tally.findings.add(found);
        self.tally.cycles += 1;
        Ok(())
    }

    /// Makes a file of which nothing has been promised.
    fn begin_file(&mut self, rng: &mut SplitMix64) -> Result<(), BenchError> {
        let beginning = Beginning::draw(rng);
        beginning.rows().for_each(|row| self.coverage.count(row, 1));
        let half = self.layout.slot(self.layout.tail()).start;
        let made = beginning.make(self.path, half, self.bytes);
        self.create = made.map_err(|source| BenchError::file("make", self.path, source))?;
        self.ledger = Ledger::new(self.layout);
        Ok(())
    }

    fn victim(&self, cycle: u64, shape: &Shape) -> VictimArgs {
        let args = self.args;
        let map = shape.map;
        VictimArgs {
            path: self.path.to_owned(),
            bytes: self.bytes,
            max: Size::new(args.max),
            threads: args.threads as usize,
            seed: args.common.seed.seed,
            cycle,
            policy: args.policy.policy,
            // A map takes no lock, so that of a killed process does not say when its last write has
            // ended. A thread that writes by itself ends after it.
            io: if map.is_some() { IoEngine::Psync } else { args.io },
            page: shape.page,
            order: shape.order,
            two_views: shape.two_views,
            reopens: shape.reopens,
            map,
            region: shape.region.and_then(|kind| SwapKind::ALL.iter().position(|k| *k == kind)),
            zcache: shape.zcache,
            patience: shape.patience.map(|patience| patience.as_millis() as u64),
            create: self.create,
        }
    }
}

/// A process that is killed and reaped on drop.
struct Victim(Child);

impl Victim {
    /// Kills it. Returns whether it was still alive.
    fn kill(&mut self) -> io::Result<bool> {
        self.0.kill()?;
        Ok(self.0.wait()?.signal() == Some(9))
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// Starts a process, lets it write for a time, and kills it. Returns its messages.
fn kill_one(args: &VictimArgs, life: Duration) -> Result<Vec<Message>, BenchError> {
    let broken = |what: &str| {
        let what = what.to_owned();
        move |error: io::Error| BenchError::Peer {
            peer: "crash-writer",
            what: format!("{what}: {error}"),
        }
    };
    let child = Command::new(itself::path())
        .args(args.to_args())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // Ctrl-C at a terminal goes to the whole process group; ending it is the bench's task.
        .process_group(0)
        .spawn()
        .map_err(broken("cannot be started"))?;
    let mut victim = Victim(child);
    let mut pipe =
        victim.0.stdout.take().ok_or_else(|| broken("has no pipe")(io::ErrorKind::Other.into()))?;
    let (send, receive) = channel();
    // Drain the pipe while the process writes, or the process would block.
    let listen = move || {
        let mut said = Vec::new();
        while let Some(message) = Message::receive(&mut pipe)? {
            if message == Message::Begun {
                // The receiver may no longer wait.
                let _ = send.send(());
            }
            said.push(message);
        }
        io::Result::Ok(said)
    };
    // Owns the process: on any error it is dropped, hence killed, and its pipe ends.
    let live = move || {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match receive.recv_timeout(POLL) {
                Ok(()) => break,
                Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => {
                    interrupt::check(|| "starting a writer".into())?;
                }
                Err(_) => {
                    let what = "did not begin; its reason is above".to_owned();
                    return Err(BenchError::Peer { peer: "crash-writer", what });
                }
            }
        }
        std::thread::sleep(life);
        victim.kill().map_err(broken("cannot be killed"))
    };
    let (was_alive, said) = threads::run(&Stop::default(), [listen], live)?;
    let was_alive = was_alive?;
    let said: io::Result<Vec<_>> = said.into_iter().collect();
    let said = said.map_err(broken("cannot be heard"))?.concat();
    if !was_alive {
        let what = "ended before it was killed; its reason is above".to_owned();
        return Err(BenchError::Peer { peer: "crash-writer", what });
    }
    Ok(said)
}

/// Enters a process's messages into the ledger. Returns its counts.
fn promise(
    layout: &Layout,
    victim: &VictimArgs,
    said: &[Message],
    ledger: &mut Ledger,
    tally: &mut Tally,
) -> HashMap<&'static str, u64> {
    let mut counts = HashMap::new();
    // By thread: the number of its changes replayed so far, and the last one in each slot.
    let mut played: Vec<(u64, HashMap<usize, Version>)> = vec![Default::default(); victim.threads];
    // The messages of a thread are in order, so a slot never goes back.
    for message in said {
        let (thread, n, only) = match *message {
            Message::Begun => continue,
            Message::Flushed { thread, n } => (thread, n, None),
            Message::FlushedSlot { thread, slot, n } => (thread, n, Some(slot)),
        };
        let part = victim.part(thread);
        let (until, last) = &mut played[thread];
        for n in *until + 1..=n {
            let change = part.change(layout, n);
            for slot in change.slots(layout) {
                match change.makes(part.number(n)) {
                    Some(version) => drop(last.insert(slot, version)),
                    // Earlier flushes are already in the ledger.
                    None => drop(last.remove(&slot)),
                }
            }
            if let Some(row) = change.row() {
                *counts.entry(row).or_default() += 1;
            }
        }
        tally.flushes += 1;
        tally.writes += n - *until;
        *until = n;
        match only {
            Some(slot) => {
                if let Some(version) = last.get(&slot) {
                    ledger.promise(layout, slot, *version);
                }
            }
            None => {
                for (slot, version) in last.iter() {
                    ledger.promise(layout, *slot, *version);
                }
            }
        }
    }
    counts
}

/// Reads the file once all I/O of a killed process is complete. The kernel completes requests in
/// flight after the process has ended, and then releases its lock. A file that does not exist yet
/// is empty.
fn read_when_quiet(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        opened => opened?,
    };
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = file.try_lock() {
        match error {
            TryLockError::WouldBlock if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(1));
            }
            error => return Err(error.into()),
        }
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Compares the file with the ledger.
fn verify(
    path: &Path,
    layout: &Layout,
    victim: &VictimArgs,
    ledger: &mut Ledger,
) -> Result<Findings, BenchError> {
    let file = read_when_quiet(path).map_err(|source| BenchError::file("read", path, source))?;
    let thread_of = |slot| Part::thread_of(layout, slot, victim.threads);
    let begun = |slot, number| victim.part(thread_of(slot)).begun(layout, slot, number);
    let histories: Vec<OnceCell<_>> = vec![OnceCell::new(); victim.threads];
    let all_begun = |slot: usize| {
        let thread = thread_of(slot);
        let history = || victim.part(thread).history(layout, CHANGES_MAX);
        let versions: &Vec<Version> = &histories[thread].get_or_init(history)[slot];
        versions.clone()
    };
    let mut findings = ledger.settle(layout, &file, begun, all_begun);
    if let Some(first) = &mut findings.first {
        *first = format!("kill {}: {first}", victim.cycle);
    }
    Ok(findings)
}
