//! `lowtide-lab sim file-anon-mix`: the aging OOM on a simulated machine, at full size or scaled
//! down.
//!
//! At a smaller scale a pass over memory takes as long as at full size: the machine is slower by
//! the same factor, and pauses, threads and processors do not change (T-mode,
//! `docs/kernel/workloads.md` §0.3). The number of threads must not change, as the outcome depends
//! on how many reclaim while one of them ages. A kill is a result: the row reports it, with the
//! counters at the kill.

use crate::experiments::writing::WrittenRow;
use lowtide_report::outcome::MixRow;
use std::sync::atomic::AtomicU64;

use crate::sim::options;
use lowtide::{Policy, Size};
use lowtide_bench::sim::clock::Stopwatch;
use lowtide_bench::sim::error::SimError;
use lowtide_bench::sim::host::Host;
use lowtide_bench::sim::jobs;
use lowtide_bench::sim::show::{self, Head};
use lowtide_experiments::client::mix::{self, Faulted, MixConfig, MixResult, Posting};
use lowtide_experiments::published::{Arm, PublishedMix, published_mix};
use lowtide_report::interrupt::{self, Cut};
use lowtide_report::outcome::KillRow;
use lowtide_report::progress::{Patient, Unit};
use lowtide_report::row::{Row, named};
use lowtide_report::verdict::Closing;
use lowtide_sim::spec::MachineSpec;
use lowtide_sim::{MachineConfig, MachineError};

use super::reproducer::Reproducer;
use super::{ABOUT, COLUMNS, MACHINE, NAME, SimOptions, kill_line, seeds};

/// One run, with all options resolved.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) machine: MachineSpec,
    pub(super) max: Option<u64>,
    pub(super) config: MixConfig,
    /// The published setup that this is, at the scale.
    posting: Option<Posting>,
}

impl Plan {
    fn new(options: &SimOptions) -> Result<Self, SimError> {
        let scale = options.at_scale.scale;
        let machine = options.at_scale.machine.load()?;
        // Sizes are whole mebibytes, and so whole pages.
        let size = |bytes: u64| (((bytes >> 20) as f64 * scale).round() as u64).max(1) << 20;
        let Reproducer { config: whole, max: whole_max } = &options.args;
        let at_scale = |whole: &MixConfig| MixConfig {
            file: size(whole.file),
            anon: size(whole.anon),
            rounds: options.rounds,
            slowdown: (1.0 / scale).round().max(1.0) as u32,
            seed: options.at_scale.common.seed,
            ..whole.clone()
        };
        let config = at_scale(whole);
        let default = Some(size(*whole_max));
        let max = options::machine_budget(options.at_scale.max, &machine, default)?;
        if max.is_some_and(|max| max <= config.anon) {
            return Err(SimError::usage(
                format!(
                    "a budget of {} leaves no room for files: the threads fill {} that cannot be \
                     swapped",
                    Size::new(max.unwrap_or_default()),
                    Size::new(config.anon)
                ),
                "raise --max, or lower --scale",
            ));
        }
        if config.anon / machine.page < config.threads.into() {
            return Err(SimError::usage(
                format!(
                    "{} are fewer pages than there are threads to fill them: {}",
                    Size::new(config.anon),
                    config.threads
                ),
                "raise the first size of --args, or --scale",
            ));
        }
        let its_machine = MachineSpec::load(MACHINE).is_ok_and(|published| published == machine);
        let posting = Posting::ALL.into_iter().find(|posting| {
            its_machine && at_scale(&posting.config()) == config && max == Some(size(posting.max()))
        });
        Ok(Self { machine, max, config, posting })
    }

    /// Whether it is a published setup, at the scale.
    pub(super) const fn is_published(&self) -> bool {
        self.posting.is_some()
    }

    /// Pages of data, with the page tables of every reader: half a byte an entry.
    fn data_pages(&self) -> u64 {
        let file = self.config.file / self.machine.page;
        file + self.config.anon / self.machine.page + file * u64::from(self.config.readers) / 32
    }

    pub(super) fn head(&self) -> Head {
        let slower = match self.config.slowdown {
            1 => String::new(),
            times => format!(", {times} times slower, as memory is smaller"),
        };
        Head {
            what: format!("{NAME}: {ABOUT}"),
            machine: show::machine(&self.machine) + &slower,
            max: self.max,
            data: format!(
                "a file of {}, read by {} processes; {} of memory, filled by {} threads",
                Size::new(self.config.file),
                self.config.readers,
                Size::new(self.config.anon),
                self.config.threads
            ),
            run: format!("{} rounds of filling and unmapping", self.config.rounds),
        }
    }

    pub(super) fn simulate(
        &self,
        policy: Policy,
        seed: u64,
        done: &AtomicU64,
    ) -> Result<MixResult, MachineError> {
        let (spec, max) = (self.machine.clone(), self.max);
        let machine = MachineConfig { spec, policy, max, seed };
        let config = MixConfig { seed, ..self.config.clone() };
        mix::run(&machine, &config, done, interrupt::flag())
    }

    /// What rows of one run and of several seeds have in common.
    pub(super) fn setup_row(&self, policy: Policy) -> Row {
        Row {
            workload: NAME,
            program: Some("mappings and a heap"),
            world: "sim",
            system: "lowtide",
            policy: policy.to_string(),
            machine: self.machine.name.clone(),
            max_bytes: self.max,
            data_bytes: Some(self.config.file + self.config.anon),
            page_bytes: self.machine.page,
            threads: self.config.threads + self.config.readers,
            ..Row::default()
        }
    }

    fn row(&self, policy: Policy, result: &MixResult) -> Row {
        let memory = &result.stat.memory;
        let row = Row { seed: Some(self.config.seed), ..self.setup_row(policy) };
        let mut row = row.on_machine(None, &result.stat, u64::from(result.rounds));
        row.stat.insert("usage".into(), memory.current * memory.page_bytes);
        row.stat.insert("failcnt".into(), memory.limits.max);
        let own = WrittenRow {
            kill: result.killed.map(|kill| KillRow {
                seconds: kill.at_ns as f64 / 1e9,
                faulted: match kill.faulted {
                    Faulted::Heap => "heap",
                    Faulted::File => "file",
                },
                tried_ms: kill.tried_ns as f64 / 1e6,
                clean_file_bytes: kill.clean_file_pages * self.machine.page,
            }),
            ..row.own()
        };
        Row {
            // A round is not an operation in the sense of other workloads.
            ops: None,
            ops_per_s: None,
            oom: Some(u64::from(result.killed.is_some())),
            rounds: Some(result.rounds),
            ..row
        }
        .with(own)
    }

    /// The published row of an arm. Its counters are those of the full size.
    fn published(beside: &Row, posting: Posting, published: PublishedMix) -> Row {
        Row {
            workload: beside.workload,
            world: "real",
            system: "published",
            source: Some(published.posting),
            policy: beside.policy.clone(),
            machine: beside.machine.clone(),
            max_bytes: Some(posting.max()),
            page_bytes: beside.page_bytes,
            threads: beside.threads,
            oom: Some(u64::from(!published.stat.is_empty())),
            stat: named(published.stat),
            ..Row::default()
        }
        .with(MixRow { rounds_published: Some(published.rounds), ..MixRow::default() })
    }
}

/// Simulates the workload under every policy and prints the rows.
///
/// # Errors
/// Any [`SimError`]; a kill is not an error.
pub(crate) fn run(options: &SimOptions) -> Result<(), SimError> {
    let policies = options.at_scale.common.begin()?;
    let plan = Plan::new(options)?;
    let timing = options.at_scale.timing.is_on();
    let frames = plan.max.map_or(plan.machine.pages(), |max| max / plan.machine.page);
    let parallel = Host::ask().parallel(frames, plan.data_pages())?;
    if let Some(seeds) = options.seeds {
        return seeds::run(options, &plan, &policies, seeds, parallel);
    }
    plan.head().print(&options.at_scale.common);

    let total = u64::from(plan.config.rounds) * policies.len() as u64;
    let progress = Patient::new("rounds", Unit::Steps, total);
    let results =
        jobs::run(policies.len(), if timing { 1 } else { parallel }, progress, |number, done| {
            let began = Stopwatch::start();
            let result = plan.simulate(policies[number], plan.config.seed, done);
            result.map(|result| (result, began.elapsed()))
        });
    let mut rows = Vec::with_capacity(2 * policies.len());
    let mut cut = Cut::default();
    let mut runs = vec![Vec::new(); policies.len()];
    for (number, (&policy, result)) in policies.iter().zip(results).enumerate() {
        let result =
            result.map_err(|error| SimError::of_machine(policy, error, "simulating file-anon-mix"));
        let Some((result, took)) = cut.take(result)? else { continue };
        let row = plan.row(policy, &result);
        runs[number] = vec![plan.ended(&result)];
        let published = plan
            .posting
            .zip(Arm::of(policy))
            .map(|(posting, arm)| Plan::published(&row, posting, published_mix(posting, arm)));
        rows.push(if timing { row.timed(took, result.stat.bytes, plan.data_pages()) } else { row });
        rows.extend(published);
    }
    let mut closing: Vec<String> = rows.iter().filter_map(kill_line).collect();
    if plan.config.slowdown > 1 && rows.iter().any(|row| row.source.is_some()) {
        closing.push(format!(
            "published rows are of the full size: sizes and counters here are to be multiplied by \
             {}",
            plan.config.slowdown
        ));
    }
    if let Some(first) = closing.first_mut() {
        first.insert(0, '\n');
    }
    let closing = Closing { lines: closing, verdict: plan.verdict(&policies, &runs) };
    show::results(&options.at_scale.common, &plan.machine, &rows, COLUMNS, closing, cut)
}
