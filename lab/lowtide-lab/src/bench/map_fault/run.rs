//! Rounds of all systems, their table and JSON.

use crate::bench::options::OnePolicy;
use clap::Args;
use lowtide::map::{Access, MapMode};
use lowtide::{IoMode, Pager, Policy, Size};
use lowtide_bench::content::Content;
use lowtide_bench::datafile::{DataFile, Purpose};
use lowtide_bench::error::BenchError;
use lowtide_bench::machine::Machine;
use lowtide_bench::map;
use lowtide_bench::options::memory::check_memory;
use lowtide_bench::options::{Files, Output, Seed, rounds};
use lowtide_host::probe::Probe;
use lowtide_report::interrupt::Cut;
use lowtide_report::json::Report;
use lowtide_report::spread::Spread;
use lowtide_report::values::{grain, size};
use lowtide_report::{out, progress::Patient, table};
use lowtide_sys::memory::page_size;
use serde::Serialize;

use super::memory::Memory;
use super::steps::{Step, resident, turnover};

pub(crate) const NAME: &str = "map-fault";
/// One line for listings.
pub(crate) const ABOUT: &str =
    "what a page costs in a map: its fault, looks at it, its eviction, without a device";

/// A map in the page cache may have this part of its budget in the cache unnoticed. So a file of
/// that part, read before it is touched, stays there.
const UNNOTICED_PART: u64 = 16;
/// Room beside the pages, in bytes: some frames are kept free.
const ROOM_BYTES: u64 = 16 << 20;
/// The data of the turnover as a multiple of its budget.
const TURNOVER: u64 = 4;
const PER_GIB: f64 = 1024.0 * 1024.0 * 1024.0;

#[derive(Debug, Args)]
pub(crate) struct MapFaultArgs {
    /// Bytes that are mapped
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "64M",
          allow_hyphen_values = true)]
    size: u64,
    /// Slices of the measurement; systems take turns
    #[arg(long, value_name = "N", value_parser = rounds(), default_value_t = 5)]
    rounds: u32,
    #[command(flatten)]
    policy: OnePolicy,
    #[command(flatten)]
    seed: Seed,
    #[command(flatten)]
    files: Files,
    #[command(flatten)]
    output: Output,
}

/// A row of the JSON.
#[derive(Debug, Serialize)]
struct FaultRow {
    workload: &'static str,
    world: &'static str,
    system: &'static str,
    policy: Option<String>,
    step: &'static str,
    data_bytes: u64,
    /// The budget; absent for the kernel's mapping, which has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_bytes: Option<u64>,
    page_bytes: u64,
    /// Pages that the step was done to, over all rounds.
    pages: u64,
    ns_per_page: f64,
    ns_per_page_spread: Spread,
    per_s: f64,
    ms_per_gib: f64,
    rounds: usize,
    verified: u64,
    errors: u64,
    seed: u64,
}

/// A mapping that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum System {
    Map(MapMode),
    Kernel,
}

const SYSTEMS: [System; 3] =
    [System::Map(MapMode::Userfault), System::Map(MapMode::PageCache), System::Kernel];

impl System {
    const fn name(self) -> &'static str {
        match self {
            Self::Map(way) => map::name(way),
            Self::Kernel => "mmap-random",
        }
    }

    /// The budget in which all of `size` bytes have room.
    const fn roomy(self, size: u64) -> Option<u64> {
        match self {
            Self::Map(MapMode::PageCache) => Some((UNNOTICED_PART + 1) * size + ROOM_BYTES),
            Self::Map(_) => Some(size + size / 8 + ROOM_BYTES),
            Self::Kernel => None,
        }
    }

    /// The budget of a step.
    fn budget(self, step: &str, size: u64) -> Option<u64> {
        let roomy = self.roomy(size)?;
        Some(if step == "turnover" { size / TURNOVER } else { roomy })
    }
}

/// One step of one system, in all rounds.
struct Measured {
    system: System,
    steps: Vec<Step>,
}

/// Measures every step.
pub(crate) fn run(args: &MapFaultArgs) -> Result<(), BenchError> {
    let probe = Probe::ask();
    let (size, policy) = (grain(args.size), args.policy.policy);
    // The page cache, and a mirror of it.
    check_memory(0, 2, size, probe.memory_available)?;
    let data_dir = args.files.data_dir()?;
    let file = data_dir.prepare(Content::Words, size, 1, Purpose::Lasting)?.remove(0);
    let machine = Machine::ask(&probe, &file, &pager(policy, size + ROOM_BYTES)?)?;
    out::line(format_args!("{NAME}: {ABOUT}"));
    for line in machine.lines(&file) {
        out::line(line);
    }
    out::line(format_args!(
        "run       1 thread, {} rounds in turns, policy {policy}\n",
        args.rounds
    ));
    if let Err(why) = &probe.maps.scan {
        out::note(format_args!("the step `scan` is left out: {why}"));
    }
    let scans = probe.maps.scan.is_ok();
    let mut systems = SYSTEMS.to_vec();
    let mut measured: Vec<Measured> = Vec::new();
    let mut progress = Patient::steps(u64::from(args.rounds) * systems.len() as u64);
    let mut cut = Cut::default();
    'rounds: for round in 0..args.rounds {
        let seed = args.seed.seed.wrapping_add(u64::from(round));
        let mut at = 0;
        while let Some(&system) = systems.get(at) {
            progress.say(format!("{}, round {}", system.name(), round + 1));
            match measure(system, policy, &file, size, (scans, seed)) {
                Err(BenchError::Map(why)) => {
                    progress.clear();
                    out::note(format_args!("{} left out: {why}", system.name()));
                    systems.remove(at);
                }
                steps => {
                    let Some(steps) = cut.take(steps)? else { break 'rounds };
                    note(&mut measured, system, steps);
                    at += 1;
                }
            }
            progress.add(1);
        }
    }
    drop(progress);
    cut.refuse_nothing(measured.is_empty())?;
    let rows: Vec<FaultRow> =
        measured.iter().map(|of| of.row(size, policy, args.seed.seed)).collect();
    print(&rows);
    let wrong = rows.iter().find(|row| row.errors > 0).map(|row| BenchError::Wrong {
        system: row.system.into(),
        errors: row.errors,
        first: format!("words of the step {} are not those of the file", row.step),
    });
    Report::new(&machine, rows).cut_short(cut.is_cut()).write(args.output.json.as_deref())?;
    wrong.map_or_else(|| cut.verdict(), Err)
}

/// A pager whose reads come from the page cache.
fn pager(policy: Policy, max_bytes: u64) -> Result<Pager, BenchError> {
    let max = Size::new(max_bytes);
    let built = Pager::builder().max(max).policy(policy).direct(IoMode::Buffered);
    let page_bytes = page_size() as u64;
    built.base_page(page_size()).build().map_err(|source| BenchError::Setup {
        max,
        page_bytes,
        source,
    })
}

/// One round of one system.
fn measure(
    system: System,
    policy: Policy,
    file: &DataFile,
    size: u64,
    (scans, seed): (bool, u64),
) -> Result<Vec<Step>, BenchError> {
    let System::Map(way) = system else {
        let len = usize::try_from(size).unwrap_or(usize::MAX);
        let memory = Memory::kernel(file, len)
            .map_err(|source| BenchError::file("map", file.path(), source))?;
        return resident(&memory, None, file, (scans, seed));
    };
    let mapped = |budget: Option<u64>| {
        let pager = pager(policy, budget.unwrap_or(size))?;
        let map = map::open(&pager, way, file, size, Some(0))?;
        map.advise(Access::Random)
            .map_err(|source| BenchError::file("advise on", file.path(), source))?;
        Ok::<_, BenchError>((pager, Memory::Map(map)))
    };
    let (pager, memory) = mapped(system.budget("", size))?;
    let mut steps = resident(&memory, Some(&pager), file, (scans, seed))?;
    drop((memory, pager));
    let (pager, memory) = mapped(system.budget("turnover", size))?;
    steps.push(turnover(&memory, &pager, file, seed)?);
    Ok(steps)
}

/// Adds the steps of a round to those of the rounds before.
fn note(measured: &mut Vec<Measured>, system: System, steps: Vec<Step>) {
    for step in steps {
        let same = |of: &&mut Measured| of.system == system && of.steps[0].name == step.name;
        match measured.iter_mut().find(same) {
            Some(of) => of.steps.push(step),
            None => measured.push(Measured { system, steps: vec![step] }),
        }
    }
}

impl Measured {
    fn row(&self, size: u64, policy: Policy, seed: u64) -> FaultRow {
        let step = self.steps[0].name;
        // Rounds in which it was done to no page are not finite, and do not count.
        let each = |step: &Step| step.ns / step.pages as f64;
        let spread = Spread::of(self.steps.iter().map(each));
        let sum = |count: fn(&Step) -> u64| self.steps.iter().map(count).sum();
        let max_bytes = self.system.budget(step, size);
        FaultRow {
            workload: NAME,
            world: "real",
            system: self.system.name(),
            policy: max_bytes.is_some().then(|| policy.to_string()),
            step,
            data_bytes: size,
            max_bytes,
            page_bytes: page_size() as u64,
            pages: sum(|step| step.pages),
            ns_per_page: spread.median,
            ns_per_page_spread: spread,
            per_s: if spread.median > 0.0 { 1e9 / spread.median } else { 0.0 },
            ms_per_gib: spread.median * PER_GIB / page_size() as f64 / 1e6,
            rounds: self.steps.len(),
            verified: sum(|step| step.verified),
            errors: sum(|step| step.errors),
            seed,
        }
    }
}

fn print(rows: &[FaultRow]) {
    let mut printed = table::new(&["system", "step", "pages", "ns/page", "pages/s", "ms/GiB"], 2);
    for system in SYSTEMS {
        for row in rows.iter().filter(|row| row.system == system.name()) {
            printed.add_row(vec![
                row.system.to_owned(),
                row.step.to_owned(),
                table::thousands(row.pages as f64),
                row.ns_per_page_spread.text(),
                table::thousands(row.per_s),
                format!("{:.1}", row.ms_per_gib),
            ]);
        }
    }
    out::line(printed);
    out::line("");
    for system in SYSTEMS {
        let of = |step: &&str| {
            let row = rows.iter().find(|row| row.system == system.name() && row.step == *step);
            row.map(|row| row.ns_per_page)
        };
        let round = ["scan", "zap", "touch"].iter().map(of).sum::<Option<f64>>();
        if let Some(ns) = round {
            out::line(format_args!(
                "a round of sampling costs {} {ns:.0} ns for each page in use",
                system.name()
            ));
        }
    }
    let verified: u64 = rows.iter().map(|row| row.verified).sum();
    let errors: u64 = rows.iter().map(|row| row.errors).sum();
    out::line(format_args!(
        "{} contents verified, {} errors",
        table::thousands(verified as f64),
        table::thousands(errors as f64)
    ));
}
