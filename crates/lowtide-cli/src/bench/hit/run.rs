//! Turns of View and pointer, their table and JSON.

use std::fmt::Display;
use std::time::Instant;

use clap::Args;
use lowtide::{Pager, Size};
use lowtide_host::probe::Probe;
use serde::Serialize;

use super::chase::{Definition, Pattern, ViewWords, Words};
use super::pointer::PointerWords;
use crate::bench::content::Content;
use crate::bench::datafile::{DataFile, Purpose};
use crate::bench::error::BenchError;
use crate::bench::machine::Machine;
use crate::bench::options::memory::check_memory;
use crate::bench::options::values::{PAGE_BYTES, grain, size};
use crate::bench::options::{Files, Io, OnePolicy, Output, Seed, rounds};
use crate::bench::rounds::Spread;
use crate::bench::system::open_view;
use crate::interrupt::Cut;
use crate::json::Report;
use crate::{interrupt, out, progress, table};

/// The name.
pub(crate) const NAME: &str = "hit";
/// One line for listings.
pub(crate) const ABOUT: &str =
    "random 8-byte reads of resident pages, through a View and a raw pointer";

/// Default accesses of a slice; a quarter or half of a second.
const ACCESSES_DEPENDENT: u64 = 1_000_000;
const ACCESSES_INDEPENDENT: u64 = 8_000_000;
/// Pages loaded at a time before the measurement.
const LOAD_PAGES: u64 = 512;

/// Options of `hit`.
#[derive(Debug, Args)]
pub(crate) struct HitArgs {
    /// Bytes that stay in memory, one pair of rows each
    // Within, and far beyond, the reach of a processor's TLB.
    #[arg(long, value_name = "SIZE,SIZE", value_delimiter = ',', value_parser = size,
          default_value = "256M,2G", allow_hyphen_values = true)]
    size: Vec<u64>,
    /// Reads of each slice [default: 1000000 dependent, 8000000 independent]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..),
          allow_negative_numbers = true)]
    ops: Option<u64>,
    /// Slices of the measurement; view and pointer take turns
    #[arg(long, value_name = "N", value_parser = rounds(), default_value_t = 7)]
    rounds: u32,
    #[command(flatten)]
    policy: OnePolicy,
    #[command(flatten)]
    seed: Seed,
    #[command(flatten)]
    io: Io,
    #[command(flatten)]
    files: Files,
    #[command(flatten)]
    output: Output,
}

/// A row of the JSON.
#[derive(Debug, Serialize)]
struct HitRow {
    workload: &'static str,
    world: &'static str,
    system: &'static str,
    policy: Option<String>,
    pattern: &'static str,
    size_bytes: u64,
    page_bytes: u64,
    ns_per_access: f64,
    ns_per_access_spread: Spread,
    /// Ratio of the View's time to the pointer's in the same round; 1 for the pointer.
    ratio: Spread,
    rounds: u32,
    ops: u64,
    verified: u64,
    errors: u64,
    seed: u64,
}

/// Measures every requested size.
///
/// # Errors
/// Any [`BenchError`].
pub(crate) fn run(args: &HitArgs) -> Result<(), BenchError> {
    let probe = Probe::ask();
    let (page_bytes, policy, rounds) = (PAGE_BYTES, args.policy.policy, args.rounds);
    let sizes: Vec<u64> = args.size.iter().map(|&size| grain(size)).collect();
    for &size in &sizes {
        check_memory(0, 2, budget(size), probe.memory_available)?;
    }
    let data_dir = args.files.data_dir()?;
    let mut rows: Vec<HitRow> = Vec::new();
    let mut machine = None;
    let mut closing = Vec::new();
    let progress = progress::steps("", sizes.len() as u64 * (1 + 2 * u64::from(rounds)));
    let mut cut = Cut::default();
    'sizes: for &size in &sizes {
        let file = data_dir.prepare(Content::Words, size, 1, Purpose::Lasting)?.remove(0);
        let pager = args.io.pager(policy, budget(size), page_bytes, |builder| builder)?;
        if machine.is_none() {
            let asked = Machine::ask(&probe, &file, &pager)?;
            head(&asked, &file, page_bytes, rounds);
            machine = Some(asked);
        }
        progress.set_message(format!("loading {}", Size::new(size)));
        let pair = Pair::load(&pager, &file, size);
        let Some(pair) = cut.take(pair)? else { break };
        progress.inc(1);
        let reads = pager.stat().io.reads;
        for pattern in Pattern::ALL {
            progress.set_message(format!("{} {}", Size::new(size), pattern.name()));
            let turns = pair.take_turns(pattern, args, rounds, || progress.inc(1));
            let Some(turns) = cut.take(turns)? else { break 'sizes };
            rows.extend(turns.rows(pattern, size, page_bytes, &policy.to_string(), args.seed.seed));
        }
        let stat = pager.stat();
        closing.push(format!(
            "{}: {} of the view's {} of frames are in huge pages",
            Size::new(size),
            Size::new(stat.huge_bytes),
            Size::new(stat.budget_bytes)
        ));
        let pages = stat.io.reads - reads;
        if pages > 0 {
            return Err(BenchError::NotResident { pages });
        }
    }
    cut.refuse_nothing(rows.is_empty())?;
    progress.finish_and_clear();
    print(&rows);
    if !closing.is_empty() {
        out::line(format_args!("\n{}", closing.join("\n")));
    }
    let wrong = rows.iter().find(|row| row.errors > 0).map(|row| BenchError::Wrong {
        system: row.system.into(),
        errors: row.errors,
        first: format!("the words read {}ly do not add up", row.pattern),
    });
    if let Some(machine) = &machine {
        Report::new(machine, rows).cut_short(cut.is_cut()).write(args.output.json.as_deref())?;
    }
    wrong.map_or_else(|| cut.verdict(), Err)
}

/// The budget that holds `size` bytes with room to spare: some frames are kept free for the next
/// miss.
const fn budget(size: u64) -> u64 {
    size + size / 8 + (16 << 20)
}

/// The same words twice in memory.
struct Pair {
    view: ViewWords,
    pointer: PointerWords,
}

/// Nanoseconds per access in each round, and the number of accesses with correct sums.
struct Turns {
    view_ns: Vec<f64>,
    pointer_ns: Vec<f64>,
    accesses: u64,
    view_errors: u64,
    pointer_errors: u64,
}

impl Pair {
    fn load(pager: &Pager, file: &DataFile, size: u64) -> Result<Self, BenchError> {
        let view = open_view(pager, file, false)?;
        let pages: Vec<u64> = (0..view.pages()).collect();
        for chunk in pages.chunks(LOAD_PAGES as usize) {
            interrupt::check(|| "loading the words".into())?;
            view.get_many(chunk, |_, _| ()).map_err(|source| BenchError::Runtime {
                action: "load the words".into(),
                source,
            })?;
        }
        let bytes = usize::try_from(size).unwrap_or(usize::MAX);
        let pointer = PointerWords::new(bytes).map_err(|source| {
            BenchError::file("get memory for the words of", file.path(), source)
        })?;
        Ok(Self { view: ViewWords::new(view), pointer })
    }

    fn take_turns(
        &self,
        pattern: Pattern,
        args: &HitArgs,
        rounds: u32,
        mut done: impl FnMut(),
    ) -> Result<Turns, BenchError> {
        let accesses = args.ops.unwrap_or(match pattern {
            Pattern::Dependent => ACCESSES_DEPENDENT,
            Pattern::Independent => ACCESSES_INDEPENDENT,
        });
        let mut turns = Turns {
            view_ns: vec![],
            pointer_ns: vec![],
            accesses,
            view_errors: 0,
            pointer_errors: 0,
        };
        for round in 0..=u64::from(rounds) {
            let seed = args.seed.seed.wrapping_add(round);
            let Ok(want) = pattern.walk(&Definition(self.pointer.count()), accesses, seed);
            let (view_sum, view_ns) = timed(&self.view, pattern, accesses, seed)?;
            let (pointer_sum, pointer_ns) = timed(&self.pointer, pattern, accesses, seed)?;
            interrupt::check(|| format!("measuring {} hits", pattern.name()))?;
            // The first turn is not measured: it warms up caches and translations.
            if round > 0 {
                turns.view_ns.push(view_ns);
                turns.pointer_ns.push(pointer_ns);
                turns.view_errors += u64::from(view_sum != want);
                turns.pointer_errors += u64::from(pointer_sum != want);
                done();
            }
        }
        Ok(turns)
    }
}

/// One turn: the sum of the words, and the nanoseconds per access.
fn timed<W: Words<Error: Display>>(
    words: &W,
    pattern: Pattern,
    accesses: u64,
    seed: u64,
) -> Result<(u64, f64), BenchError> {
    let begin = Instant::now();
    let sum = pattern.walk(words, accesses, seed);
    let ns = begin.elapsed().as_nanos() as f64 / accesses as f64;
    let wrong = |error: W::Error| BenchError::Wrong {
        system: "view".into(),
        errors: 1,
        first: error.to_string(),
    };
    Ok((sum.map_err(wrong)?, ns))
}

impl Turns {
    fn rows(
        &self,
        pattern: Pattern,
        size_bytes: u64,
        page_bytes: u64,
        policy: &str,
        seed: u64,
    ) -> [HitRow; 2] {
        let row = |system, policy, times: &[f64], errors: u64| {
            let spread = Spread::of(times.iter().copied());
            let rounds = times.len() as u32;
            HitRow {
                workload: NAME,
                world: "real",
                system,
                policy,
                pattern: pattern.name(),
                size_bytes,
                page_bytes,
                ns_per_access: spread.median,
                ns_per_access_spread: spread,
                ratio: Spread::of(
                    times.iter().zip(&self.pointer_ns).map(|(time, pointer)| time / pointer),
                ),
                rounds,
                ops: self.accesses * u64::from(rounds),
                verified: self.accesses * (u64::from(rounds) - errors),
                errors,
                seed,
            }
        };
        [
            row("view", Some(policy.to_owned()), &self.view_ns, self.view_errors),
            row("pointer", None, &self.pointer_ns, self.pointer_errors),
        ]
    }
}

fn head(machine: &Machine, file: &DataFile, page_bytes: u64, rounds: u32) {
    out::line(format_args!("{}: {}", NAME, ABOUT));
    for line in machine.lines(file) {
        out::line(line);
    }
    out::line(format_args!(
        "run       1 thread, {rounds} rounds in turns; view pages of {}, pointer on {} pages \
         without huge pages\n",
        Size::new(page_bytes),
        Size::new(lowtide_sys::memory::page_size() as u64)
    ));
}

fn print(rows: &[HitRow]) {
    let mut printed = table::new(&["size", "pattern", "system", "ns/access", "view / pointer"], 3);
    for row in rows {
        let ratio = if row.system == "view" { row.ratio.text() } else { String::new() };
        printed.add_row(vec![
            Size::new(row.size_bytes).to_string(),
            row.pattern.to_owned(),
            row.system.to_owned(),
            row.ns_per_access_spread.text(),
            ratio,
        ]);
    }
    out::line(printed);
}
