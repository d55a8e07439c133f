//! Turns of View, maps and pointer, their table and JSON.

use std::fmt::Display;
use std::time::Instant;

use crate::bench::options::OnePolicy;
use clap::Args;
use lowtide::map::MapMode;
use lowtide::{Pager, Size};
use lowtide_bench::content::Content;
use lowtide_bench::datafile::{DataFile, Purpose};
use lowtide_bench::error::BenchError;
use lowtide_bench::machine::Machine;
use lowtide_bench::map;
use lowtide_bench::options::memory::check_memory;
use lowtide_bench::options::{Files, Io, Output, Seed, rounds};
use lowtide_host::probe::Probe;
use lowtide_report::interrupt::{self, Cut};
use lowtide_report::json::Report;
use lowtide_report::spread::Spread;
use lowtide_report::values::{PAGE_BYTES, grain, size};
use lowtide_report::{out, progress::Patient, table};
use serde::Serialize;

use super::chase::{Definition, Pattern, ViewWords, Words};
use super::load;
use super::pointer::PointerWords;
use crate::error::LabError;

pub(crate) const NAME: &str = "hit";
/// One line for listings.
pub(crate) const ABOUT: &str =
    "random 8-byte reads of resident pages, through a View, a reader, maps and a raw pointer";

/// Default accesses of a slice; a quarter or half of a second.
const ACCESSES_DEPENDENT: u64 = 1_000_000;
const ACCESSES_INDEPENDENT: u64 = 8_000_000;
/// The ways of maps, one row each.
const WAYS: [MapMode; 2] = [MapMode::Userfault, MapMode::PageCache];

#[derive(Debug, Args)]
pub(crate) struct HitArgs {
    /// Bytes that stay in memory, one group of rows each
    // Within, and far beyond, the reach of a processor's TLB.
    #[arg(long, value_name = "SIZE,SIZE", value_delimiter = ',', value_parser = size,
          default_value = "256M,2G", allow_hyphen_values = true)]
    size: Vec<u64>,
    /// Reads of each slice [default: 1000000 dependent, 8000000 independent]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..),
          allow_negative_numbers = true)]
    ops: Option<u64>,
    /// Slices of the measurement; systems take turns
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
    /// Ratio of the time to the pointer's in the same round; 1 for the pointer.
    time_ratio: Spread,
    rounds: u32,
    ops: u64,
    verified: u64,
    errors: u64,
    seed: u64,
}

/// Measures every requested size.
pub(crate) fn run(args: &HitArgs) -> Result<(), BenchError> {
    let probe = Probe::ask();
    let (page_bytes, policy, rounds) = (PAGE_BYTES, args.policy.policy, args.rounds);
    let sizes: Vec<u64> = args.size.iter().map(|&size| grain(size)).collect();
    // The view, the pointer and the maps each have all of it.
    let with_maps = 2 + WAYS.len();
    let largest = sizes.iter().copied().max().unwrap_or_default();
    let room = |systems| check_memory(0, systems, budget(largest), probe.memory_available);
    let ways: &[MapMode] = match room(with_maps) {
        Ok(()) => &WAYS,
        Err(why) => {
            room(2)?;
            out::note(format_args!("the maps are left out: {why}"));
            &[]
        }
    };
    let data_dir = args.files.data_dir()?;
    let mut rows: Vec<HitRow> = Vec::new();
    let mut machine = None;
    let mut closing = Vec::new();
    let steps = sizes.len() * (1 + 2 * rounds as usize);
    let mut progress = Patient::steps(steps as u64);
    let mut cut = Cut::default();
    'sizes: for &size in &sizes {
        let file = data_dir.prepare(Content::Words, size, 1, Purpose::Lasting)?.remove(0);
        let pager = args.io.pager(policy, budget(size), page_bytes, |builder| builder)?;
        if machine.is_none() {
            let asked = Machine::ask(&probe, &file, &pager)?;
            head(&asked, &file, page_bytes, rounds);
            machine = Some(asked);
        }
        progress.say(format!("loading {}", Size::new(size)));
        let loaded = Loaded::new(&pager, &file, size, ways, |size| {
            args.io.pager(policy, budget(size), page_bytes, |builder| builder)
        });
        let Some(mut loaded) = cut.take(loaded)? else { break };
        progress.add(1);
        let missed = pager.stat().io.reads + loaded.faults();
        for pattern in Pattern::ALL {
            progress.say(format!("{} {}", Size::new(size), pattern.name()));
            let turns = loaded.take_turns(pattern, args, rounds, || progress.add(1));
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
        let pages = stat.io.reads + loaded.faults() - missed;
        if pages > 0 {
            return Err(LabError::NotResident { pages }.into());
        }
    }
    cut.refuse_nothing(rows.is_empty())?;
    drop(progress);
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

/// The same words in memory, once for each system.
struct Loaded {
    view: ViewWords,
    pointer: PointerWords,
    maps: Vec<(MapMode, PointerWords)>,
}

/// The turns of one system: nanoseconds per access in each round, and the rounds with wrong sums.
struct Turns {
    system: &'static str,
    ns: Vec<f64>,
    errors: u64,
}

/// The turns of all systems, with the accesses of a turn.
struct AllTurns {
    systems: Vec<Turns>,
    accesses: u64,
}

/// The name of the pointer's rows, which all ratios are to.
const POINTER: &str = "pointer";

impl Loaded {
    fn new(
        pager: &Pager,
        file: &DataFile,
        size: u64,
        ways: &[MapMode],
        another_pager: impl Fn(u64) -> Result<Pager, BenchError>,
    ) -> Result<Self, BenchError> {
        let (view, pointer) = (load::view(pager, file)?, load::pointer(file, size)?);
        let mut maps = Vec::new();
        for &way in ways {
            maps.extend(load::mapped(&another_pager(size)?, way, file, size)?.map(|w| (way, w)));
        }
        Ok(Self { view, pointer, maps })
    }

    /// Page faults of all maps.
    fn faults(&self) -> u64 {
        self.maps.iter().map(|(_, words)| words.faults()).sum()
    }

    fn take_turns(
        &mut self,
        pattern: Pattern,
        args: &HitArgs,
        rounds: u32,
        mut done: impl FnMut(),
    ) -> Result<AllTurns, BenchError> {
        let accesses = args.ops.unwrap_or(match pattern {
            Pattern::Dependent => ACCESSES_DEPENDENT,
            Pattern::Independent => ACCESSES_INDEPENDENT,
        });
        let maps = self.maps.iter().map(|(way, _)| map::name(*way));
        let names = ["view", "reader", POINTER].into_iter().chain(maps);
        let of = |system| Turns { system, ns: Vec::new(), errors: 0 };
        let mut systems: Vec<Turns> = names.map(of).collect();
        for round in 0..=u64::from(rounds) {
            let seed = args.seed.seed.wrapping_add(round);
            let Ok(want) = pattern.walk(&mut Definition(self.pointer.count()), accesses, seed);
            for (at, turns) in systems.iter_mut().enumerate() {
                let (sum, ns) = match at {
                    0 => timed(&mut self.view, pattern, accesses, seed)?,
                    1 => timed(&mut self.view.by_reader(), pattern, accesses, seed)?,
                    2 => timed(&mut self.pointer, pattern, accesses, seed)?,
                    _ => timed(&mut self.maps[at - 3].1, pattern, accesses, seed)?,
                };
                // The first turn is not measured: it warms up caches and translations.
                if round > 0 {
                    turns.ns.push(ns);
                    turns.errors += u64::from(sum != want);
                }
            }
            interrupt::check(|| format!("measuring {} hits", pattern.name()))?;
            if round > 0 {
                done();
            }
        }
        Ok(AllTurns { systems, accesses })
    }
}

/// One turn: the sum of the words, and the nanoseconds per access.
fn timed<W: Words<Error: Display>>(
    words: &mut W,
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

impl AllTurns {
    fn rows(
        &self,
        pattern: Pattern,
        size_bytes: u64,
        page_bytes: u64,
        policy: &str,
        seed: u64,
    ) -> Vec<HitRow> {
        let pointer = self.systems.iter().find(|turns| turns.system == POINTER);
        let pointer_ns = pointer.map_or(&[][..], |turns| &turns.ns);
        let row = |turns: &Turns| {
            let spread = Spread::of(turns.ns.iter().copied());
            let rounds = turns.ns.len() as u32;
            HitRow {
                workload: NAME,
                world: "real",
                system: turns.system,
                policy: (turns.system != POINTER).then(|| policy.to_owned()),
                pattern: pattern.name(),
                size_bytes,
                page_bytes,
                ns_per_access: spread.median,
                ns_per_access_spread: spread,
                time_ratio: Spread::of(turns.ns.iter().zip(pointer_ns).map(|(time, of)| time / of)),
                rounds,
                ops: self.accesses * u64::from(rounds),
                verified: self.accesses * (u64::from(rounds) - turns.errors),
                errors: turns.errors,
                seed,
            }
        };
        self.systems.iter().map(row).collect()
    }
}

fn head(machine: &Machine, file: &DataFile, page_bytes: u64, rounds: u32) {
    out::line(format_args!("{}: {}", NAME, ABOUT));
    for line in machine.lines(file) {
        out::line(line);
    }
    out::line(format_args!(
        "run       1 thread, {rounds} rounds in turns; view and maps on pages of {}, pointer on {} \
         pages without huge pages\n",
        Size::new(page_bytes),
        Size::new(lowtide_sys::memory::page_size() as u64)
    ));
}

fn print(rows: &[HitRow]) {
    let mut printed = table::new(&["size", "pattern", "system", "ns/access", "time / pointer"], 3);
    for row in rows {
        let ratio = if row.system == POINTER { String::new() } else { row.time_ratio.text() };
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
