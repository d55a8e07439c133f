//! `high-thrash`: threads that thrash above `high`, under each throttle policy, with and
//! without read-ahead; and a neighbour on the same device.
//!
//! ```text
//!   thrashers (group: high 150 MiB, no max)      neighbour (group: no limit)
//!     forever: load a uniformly chosen page       forever: read a page of its own file
//!     of a file of 200 MiB                         past the cache, think 1 ms
//!                 └───────────── one device ────────────┘
//! ```
//!
//! Memory is plentiful: only the limit causes evictions, and all evicted pages are needed again.
//! Nothing is written. Each row is two runs: the thrasher alone, as published, which gives the
//! figures of the device; and the same beside the neighbour, which gives the `neighbour` columns.
//! One more run measures the neighbour without a thrasher.
//!
//! `--high` varies the limit and leaves the file as it is: reviewers of the patch said that a
//! thrash is answered by a lower limit, or by a higher one. `--io-max` adds what they called the
//! right tool: a limit of what the group may read in a second. `--cold` adds the other case of the
//! published discussion: the group reads new pages forever and needs none of them again, so it is
//! above its `high` as often, but reclaim is no harm, and it should not be made to sleep.
//!
//! A run uses its throttle policy from its first access, so the time before the measurement must be
//! long enough for the prices to have settled. Source: `docs/kernel/workloads.md` §10.

use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use lowtide::{HighPolicy, Policy, Size};
use lowtide_bench::options::threads;
use lowtide_experiments::programs::script::{Actor, Call, Order, Script};
use lowtide_experiments::published::{
    Arm, MeasuredThrash, SarSample, ThrashArms, published_thrash, thrash_verdict,
};
use lowtide_report::columns::{Columns, loads_per_mib, number, slept};
use lowtide_report::json::LatencyUs;
use lowtide_report::names;
use lowtide_report::row::{DeviceFigures, DeviceSample, KernelFigures, NeighbourRow, Row};
use lowtide_report::table::{thousands, us};
use lowtide_report::values::budget;
use lowtide_report::verdict::{Closing, CriterionRow};

use super::simulated::Defaults;
use super::{Experiment, Play, Played, Setting};
use crate::sim::compare;
use crate::throttle::{ProgramError, ThrottlePolicy};

/// What only the rows of this experiment say.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct ThrashRow {
    /// The throttle policy of `memory.high`; `bpf:NAME` for a program.
    pub(crate) high_policy: Option<String>,
    /// Whether the group above high needs its memory again: `hot` or `cold`.
    pub(crate) memory: Option<&'static str>,
    /// Whether the kernel reads ahead.
    pub(crate) readahead: Option<bool>,
    /// The neighbour on the same device, measured in a separate run.
    pub(crate) neighbour: Option<NeighbourRow>,
    /// Number of runs of a program.
    pub(crate) program_runs: Option<u64>,
}

/// Of 150 parts of `high`: the thrasher's file, and the neighbour's.
const PARTS: u64 = 150;
const FILE: u64 = 200;
const NEIGHBOUR_FILE: u64 = 1024;
/// A file of which no page is needed twice: more than the published disk reads in two minutes. No
/// memory is taken for what is not read.
const COLD_FILE: u64 = 64 << 30;
/// `high` of the published run.
const PUBLISHED_HIGH: &str = "150M";
const PUBLISHED_HIGH_BYTES: u64 = 150 << 20;
/// CPU time of an iteration besides its load: a random number and a loop. A guess.
const ITERATION: Duration = Duration::from_nanos(20);
/// The neighbour's pause after each read. Alone it keeps the published disk an eighth busy.
const THINK: Duration = Duration::from_millis(1);

#[derive(Debug, Args)]
pub(crate) struct HighThrash {
    /// memory.high for which the files are sized: that of the group is a third larger
    #[arg(long, value_name = "SIZE", value_parser = budget, default_value = PUBLISHED_HIGH,
          allow_hyphen_values = true)]
    base: u64,
    /// Threads of the group, a list for rows of each
    #[arg(long, value_name = "N,N", value_delimiter = ',', value_parser = threads(),
          default_value = "1")]
    threads: Vec<u32>,
    /// Throttle policies of high: overage, refault-recency or stall-debt [default: all]
    #[arg(long, value_name = "P,P", value_delimiter = ',', value_parser = names::high_policy)]
    high_policy: Option<Vec<HighPolicy>>,
    /// A program that decides about throttling, an eBPF object file; one more row for each
    #[arg(long, value_name = "FILE")]
    bpf: Vec<PathBuf>,
    /// Only the rows without read-ahead
    #[arg(long)]
    no_readahead: bool,
    /// Limits of the group, a list for rows of each; the files do not change [default: --base]
    #[arg(long, value_name = "SIZE,SIZE", value_delimiter = ',', value_parser = budget,
          allow_hyphen_values = true)]
    high: Vec<u64>,
    /// Also rows of a group that reads new pages and needs none of them again (simulation only)
    #[arg(long)]
    cold: bool,
    /// Also rows with throttle policy overage and a limit of what the group reads in a second,
    /// io.max, a list for rows of each (simulation only)
    #[arg(long, value_name = "SIZE,SIZE", value_delimiter = ',', value_parser = budget)]
    io_max: Vec<u64>,
}

impl HighThrash {
    /// The actors of a run: a thrasher, if it has threads, and the neighbour, if present.
    fn actors(&self, setting: &Setting, run: Run) -> Vec<Actor> {
        let Run { threads, around, beside, high, io_max, cold } = run;
        let parts = |parts| setting.file(self.base / PARTS * parts);
        let thrasher = Actor {
            name: "thrasher".into(),
            low: 0,
            high: Some(high),
            io_max,
            file: if cold { COLD_FILE } else { parts(FILE) },
            threads,
            order: if cold { Order::Sequential } else { Order::Uniform },
            call: if around { Call::Load { around } } else { Call::LoadRandom },
            work: ITERATION,
            pause: Duration::ZERO,
            timed: false,
            stream: 0,
        };
        let neighbour = Actor {
            name: "neighbour".into(),
            high: None,
            io_max: None,
            file: parts(NEIGHBOUR_FILE),
            threads: 1,
            order: Order::Uniform,
            call: Call::ReadOnce,
            work: Duration::ZERO,
            pause: THINK,
            timed: true,
            // The same for any number of thrashers.
            stream: u32::MAX,
            ..thrasher
        };
        std::iter::once(thrasher).chain(beside.then_some(neighbour)).collect()
    }

    fn play(&self, setting: &Setting, policy: Policy, throttle: &ThrottlePolicy, run: Run) -> Play {
        let actors = self.actors(setting, run);
        let label = match run.threads {
            0 => "the neighbour alone".into(),
            _ => format!("{policy} {}", throttle.name()),
        };
        let script = Script {
            max: None,
            // Cold pages are evicted at the limit: they need no more memory than hot ones.
            memory: setting.file(self.base / PARTS * FILE).max(run.high),
            actors,
            warm: setting.warm,
            run: setting.run,
            seed: setting.seed,
        };
        Play { policy, script, throttle: throttle.clone(), label }
    }

    fn row(&self, setting: &Setting, play: &Play, parts: [&Played; 3]) -> Row {
        let [quiet, alone, beside] = parts;
        let thrasher = &play.script.actors[0];
        let rate =
            |played: &Played, actor: usize| played.actors[actor].calls() as f64 / played.seconds;
        let row = {
            let base = setting.row(Self::NAME, play, alone);
            let own = ThrashRow {
                high_policy: Some(match thrasher.io_max {
                    Some(limit) => format!("{}, io.max {}", play.throttle.name(), Size::new(limit)),
                    None => play.throttle.name(),
                }),
                memory: Some(if thrasher.order == Order::Uniform { "hot" } else { "cold" }),
                readahead: Some(thrasher.call == Call::Load { around: true }),
                program_runs: alone.program_runs,
                neighbour: Some(NeighbourRow {
                    ops_per_s: rate(beside, 1),
                    alone_ops_per_s: rate(quiet, 1),
                    latency_us: LatencyUs::from(&beside.actors[1].latency),
                    thrasher_ops_per_s: rate(beside, 0),
                }),
            };
            Row {
                data_bytes: Some(thrasher.file),
                threads: thrasher.threads,
                kernel: KernelFigures {
                    high_bytes: thrasher.high,
                    throttled_ms: Some(alone.slept_ms),
                    ..base.kernel
                },
                device: DeviceFigures {
                    samples: Some(alone.samples.clone()),
                    device_tps: Some(alone.device_tps),
                    ..base.device
                },
                ..base
            }
            .with(own)
        };
        let row = row.with_ops(alone.actors[0].calls());
        if thrasher.threads > 1 { row.with_workers(alone.actors[0].ops.clone()) } else { row }
    }

    /// Whether it is the published experiment, on the published machine.
    fn is_published(&self, setting: &Setting) -> bool {
        let high = self.limits() == [PUBLISHED_HIGH_BYTES];
        setting.is_default_machine
            && self.threads == [1]
            && self.base == PUBLISHED_HIGH_BYTES
            && high
    }

    /// The limits of the group.
    fn limits(&self) -> Vec<u64> {
        if self.high.is_empty() { vec![self.base] } else { self.high.clone() }
    }
}

#[derive(Clone, Copy, Debug)]
struct Run {
    /// Threads of the thrasher.
    threads: u32,
    /// Whether a miss reads around.
    around: bool,
    /// Whether the neighbour is there.
    beside: bool,
    /// The limit of the thrasher's group.
    high: u64,
    /// What its group may read in a second, in bytes.
    io_max: Option<u64>,
    /// Whether the thrasher needs new pages forever, instead of the same.
    cold: bool,
}

/// The published results, one row for each set of samples.
fn published(setting: &Setting) -> Vec<Row> {
    let arms = [
        (Arm::Before, HighPolicy::Overage, true),
        (Arm::After, HighPolicy::RefaultRecency, true),
        (Arm::After, HighPolicy::RefaultRecency, false),
    ];
    let row = |(arm, policy, readahead): (Arm, HighPolicy, bool)| {
        let samples: Vec<DeviceSample> = published_thrash(arm, readahead)
            .iter()
            .map(|s| DeviceSample { tps: s.tps, read_kib: s.read_kib, util_pct: Some(s.util_pct) })
            .collect();
        let mean = DeviceSample::mean(&samples);
        Row {
            workload: HighThrash::NAME,
            world: "real",
            system: "published",
            source: Some("patch"),
            policy: "not stated".into(),
            machine: setting.machine.clone(),
            page_bytes: 4096,
            threads: 1,
            kernel: KernelFigures {
                high_bytes: Some(PUBLISHED_HIGH_BYTES),
                ..KernelFigures::default()
            },
            device: DeviceFigures {
                device_tps: Some(mean.tps),
                device_read_kib_per_s: Some(mean.read_kib),
                device_util_pct: mean.util_pct,
                samples: Some(samples),
                ..DeviceFigures::default()
            },
            ..Row::default()
        }
        .with(ThrashRow {
            high_policy: Some(policy.to_string()),
            memory: Some("hot"),
            readahead: Some(readahead),
            ..ThrashRow::default()
        })
    };
    arms.map(row).into()
}

/// The verdict for the rows of a policy.
fn verdict(rows: &[Row], policy: Policy) -> Vec<CriterionRow> {
    let of = |throttle: HighPolicy, readahead: bool| {
        let row = rows.iter().find(|row| {
            row.policy == policy.to_string()
                && row.own::<ThrashRow>().high_policy == Some(throttle.to_string())
                && row.own::<ThrashRow>().readahead == Some(readahead)
                && row.own::<ThrashRow>().memory == Some("hot")
        })?;
        let sample = |s: &DeviceSample| SarSample {
            tps: s.tps,
            read_kib: s.read_kib,
            util_pct: s.util_pct.unwrap_or(f64::NAN),
        };
        Some(MeasuredThrash {
            samples: row.device.samples.iter().flatten().map(sample).collect(),
            ops_per_s: row.ops_per_s.unwrap_or(f64::NAN),
            neighbour_per_s: row
                .own::<ThrashRow>()
                .neighbour
                .as_ref()
                .map_or(f64::NAN, |n| n.ops_per_s),
        })
    };
    let arms = ThrashArms {
        before: of(HighPolicy::Overage, true),
        patched: of(HighPolicy::RefaultRecency, true),
        patched_random: of(HighPolicy::RefaultRecency, false),
        ours: of(HighPolicy::StallDebt, true),
        ours_random: of(HighPolicy::StallDebt, false),
    };
    compare::judged(Some(&policy.to_string()), &thrash_verdict(&arms))
}

/// A cell about the neighbour.
fn neighbour(row: &Row, of: fn(&NeighbourRow) -> String) -> String {
    row.own::<ThrashRow>().neighbour.as_ref().map_or_else(String::new, of)
}

impl Experiment for HighThrash {
    const NAME: &str = "high-thrash";
    const ABOUT: &str = "random loads by a group above its high, and a neighbour on its device";
    const HELP: &str = "\
A group with a memory.high of 150M loads a larger file at random. Each policy has a row for each
throttle policy of --high-policy and each program of --bpf, with and without read-ahead. A row shows
how the group is throttled, and what a neighbour on the same device achieves; it needs two runs.
Published samples are shown too, and in a simulation of their machine a verdict. Stall debt needs
ten seconds to settle.

Examples:
  lowtide-lab bench high-thrash --threads 1,4,16 --no-readahead
  lowtide-lab sim high-thrash --policy mglru-7.1 --high 50M,100M,150M,200M --cold
  lowtide-lab sim high-thrash --policy mglru --bpf examples/bpf/refault_recency.bpf.o";
    // The machine of the published samples; its kernel is older than the reclaim-loop series.
    const SIMULATED: Defaults = Defaults {
        machine: "thrash",
        policies: "mglru,mglru-7.1",
        seconds: "30",
        warm: Duration::from_secs(60),
    };
    const REAL_SECONDS: &str = "10";
    const COLUMNS: Columns =
        Columns::named(
            6,
            &[
                ("policy", |row| {
                    if row.source.is_some() { "published".into() } else { row.policy.clone() }
                }),
                ("threads", |row| row.threads.to_string()),
                ("high", |row| {
                    row.kernel.high_bytes.map_or_else(String::new, |b| Size::new(b).to_string())
                }),
                ("memory", |row| row.own::<ThrashRow>().memory.unwrap_or_default().into()),
                ("throttle", |row| row.own::<ThrashRow>().high_policy.unwrap_or_default()),
                ("read-ahead", |row| {
                    row.own::<ThrashRow>()
                        .readahead
                        .map_or("", |on| if on { "on" } else { "off" })
                        .into()
                }),
                ("requests/s", |row| number(row.device.device_tps)),
                ("KiB/s", |row| number(row.device.device_read_kib_per_s)),
                ("device %", |row| {
                    row.device
                        .device_util_pct
                        .map_or_else(String::new, |percent| format!("{percent:.1}"))
                }),
                ("loads/s", |row| number(row.ops_per_s)),
                ("loads/MiB", loads_per_mib),
                ("slept ms/s", slept),
                ("neighbour/s", |row| neighbour(row, |n| thousands(n.ops_per_s))),
                ("mean µs", |row| neighbour(row, |n| us(n.latency_us.mean))),
                ("p99", |row| neighbour(row, |n| us(n.latency_us.p99))),
                ("loads/s beside it", |row| neighbour(row, |n| thousands(n.thrasher_ops_per_s))),
            ],
        );

    /// The neighbour without a thrasher, and for each row the thrasher alone and beside it.
    fn plays(&self, setting: &Setting) -> Result<Vec<Play>, ProgramError> {
        let throttles = ThrottlePolicy::all(self.high_policy.as_deref(), &self.bpf)?;
        let readahead: &[bool] = if self.no_readahead { &[false] } else { &[true, false] };
        // Cold rows need a file that is larger than what is read in a run.
        let cold: &[bool] =
            if self.cold && setting.world == "sim" { &[false, true] } else { &[false] };
        let run = Run {
            threads: 0,
            around: true,
            beside: false,
            high: self.base,
            io_max: None,
            cold: false,
        };
        let mut runs = Vec::new();
        for &threads in &self.threads {
            for high in self.limits() {
                runs.extend(cold.iter().map(|&cold| Run { threads, high, cold, ..run }));
                if setting.world == "sim" {
                    let limited = |&limit| Run { threads, high, io_max: Some(limit), ..run };
                    runs.extend(self.io_max.iter().map(limited));
                }
            }
        }
        let overage = [ThrottlePolicy::Builtin(HighPolicy::Overage)];
        let mut plays = Vec::new();
        for &policy in &setting.policies {
            for &run in &runs {
                let throttles = if run.io_max.is_some() { &overage } else { &throttles[..] };
                for throttle in throttles {
                    for &around in readahead.iter().take(if run.cold { 1 } else { 2 }) {
                        let play = |run| self.play(setting, policy, throttle, run);
                        if plays.is_empty() {
                            plays.push(play(Run { threads: 0, around, beside: true, ..run }));
                        }
                        plays.extend(
                            [false, true].map(|beside| play(Run { around, beside, ..run })),
                        );
                    }
                }
            }
        }
        Ok(plays)
    }

    fn describe(&self, _: &Setting, plays: &[Play]) -> Vec<(&'static str, String)> {
        let [thrasher, neighbour] = &plays[0].script.actors[..] else { return Vec::new() };
        let limits: Vec<String> =
            self.limits().into_iter().map(|high| Size::new(high).to_string()).collect();
        let data = format!(
            "a file of {}, high {}; the neighbour reads a page of {} past the cache and thinks 1 \
             ms, in runs of its own",
            Size::new(thrasher.file),
            limits.join(", "),
            Size::new(neighbour.file)
        );
        vec![("groups", data)]
    }

    fn rows(&self, setting: &Setting, plays: &[Play], played: &[Option<Played>]) -> Vec<Row> {
        // An interrupted run shows the rows whose runs are all complete, including that of the
        // neighbour alone.
        let Some((Some(quiet), played)) = played.split_first() else { return Vec::new() };
        let mut rows = Vec::new();
        for (play, pair) in plays[1..].chunks_exact(2).zip(played.chunks_exact(2)) {
            if let [Some(alone), Some(beside)] = pair {
                rows.push(self.row(setting, &play[0], [quiet, alone, beside]));
            }
        }
        if !rows.is_empty() && (setting.world == "real" || self.is_published(setting)) {
            rows.extend(published(setting));
        }
        rows
    }

    fn closing(&self, setting: &Setting, rows: &[Row]) -> Closing {
        let Some(neighbour) = rows.first().and_then(|row| row.own::<ThrashRow>().neighbour) else {
            return Closing::default();
        };
        let mut lines =
            vec![format!("the neighbour alone: {:.0} reads a second", neighbour.alone_ops_per_s)];
        if setting.world == "real" {
            lines.push(
                "published: a disk with 250 MB/s and 0.25 ms per request; its first row has the \
                 kernel's own throttle policy"
                    .into(),
            );
        }
        let judge = setting.policies.iter().filter(|_| self.is_published(setting));
        Closing { lines, verdict: judge.flat_map(|&policy| verdict(rows, policy)).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::simulated;
    use lowtide_sim::spec::MachineSpec;

    /// A run of the published size on its machine, in seconds.
    fn played(
        policy: Policy,
        throttle: HighPolicy,
        run: (u32, bool, bool),
        seconds: (u64, u64),
    ) -> Played {
        let (threads, around, beside) = run;
        let high = PUBLISHED_HIGH_BYTES;
        run_of(
            policy,
            throttle,
            Run { threads, around, beside, high, io_max: None, cold: false },
            seconds,
        )
    }

    fn run_of(
        policy: Policy,
        throttle: HighPolicy,
        run: Run,
        (warm, measured): (u64, u64),
    ) -> Played {
        let spec = MachineSpec::load(HighThrash::SIMULATED.machine).expect("a preset");
        let setting = Setting {
            world: "sim",
            machine: spec.name.clone(),
            is_default_machine: true,
            page: spec.page,
            policies: vec![policy],
            seed: 42,
            warm: Duration::from_secs(warm),
            run: Duration::from_secs(measured),
        };
        let thrash = HighThrash {
            base: PUBLISHED_HIGH_BYTES,
            threads: vec![run.threads],
            high_policy: None,
            bpf: vec![],
            no_readahead: false,
            high: vec![],
            cold: false,
            io_max: vec![],
        };
        let play = thrash.play(&setting, policy, &ThrottlePolicy::Builtin(throttle), run);
        simulated::play(&spec, &play).expect("nothing can fail")
    }

    const THRASHER: Run = Run {
        threads: 1,
        around: true,
        beside: false,
        high: PUBLISHED_HIGH_BYTES,
        io_max: None,
        cold: false,
    };

    /// Pages that no thread has touched yet are rare by then, and prices have settled.
    const SHORT: (u64, u64) = (40, 6);

    fn busy_percent(played: &Played) -> f64 {
        DeviceSample::mean(&played.samples).util_pct.expect("simulated")
    }

    /// `docs/kernel/workloads.md` §10(d).
    #[test]
    fn overage_alone_leaves_the_device_to_the_thrasher() {
        let [before, after] = [HighPolicy::Overage, HighPolicy::RefaultRecency]
            .map(|throttle| played(Policy::MGLRU_7_1, throttle, (1, true, false), SHORT));
        assert!(busy_percent(&before) >= 85.0, "{}", busy_percent(&before));
        assert_eq!(before.slept_ms, 0.0, "it never stays above the limit");
        assert_eq!(before.samples.len(), 6);
        let [calls, patched] = [&before, &after].map(|played| played.actors[0].calls());
        assert!(calls > 6 * 1000 && patched < calls / 10, "it costs the thrasher its progress");
        let [read, less] =
            [&before, &after].map(|played| DeviceSample::mean(&played.samples).read_kib);
        assert!(read >= 20.0 * less, "{read} {less}");
    }

    /// `docs/kernel/workloads.md` §10(b): the fingerprint.
    #[test]
    fn the_patch_without_read_ahead_reads_single_pages_in_whole_batches_of_64() {
        let patch = HighPolicy::RefaultRecency;
        let found = played(Policy::MGLRU, patch, (1, false, false), (60, 30)).samples;
        assert!(found.iter().all(|sample| sample.read_kib == 4.0 * sample.tps));
        let whole = found.iter().filter(|sample| sample.tps % 64.0 == 0.0).count();
        assert!(whole >= 20, "{found:?}");
        let tps = DeviceSample::mean(&found).tps;
        assert!((400.0..=701.0).contains(&tps), "{tps}");
    }

    /// The target of the policy is a tenth.
    #[test]
    fn stall_debt_keeps_the_device_at_a_tenth_with_and_without_read_ahead_and_for_many_threads() {
        for (readahead, threads) in [(true, 1), (false, 1), (true, 16)] {
            let run = (threads, readahead, false);
            let found = played(Policy::MGLRU, HighPolicy::StallDebt, run, (30, 10));
            let busy = busy_percent(&found);
            assert!((5.0..=11.0).contains(&busy), "{readahead}, {threads} threads: {busy}");
            assert_eq!(found.actors[0].ops.len(), threads as usize);
            assert!(found.actors[0].ops.iter().all(|&calls| calls > 0), "each makes progress");
        }
    }

    /// `docs/kernel/workloads.md` §10: above `high` with memory that is never needed again, no
    /// policy lets a task sleep for long, although it reads as fast as the device can.
    #[test]
    fn cold_memory_above_high_costs_no_sleep() {
        for throttle in [HighPolicy::Overage, HighPolicy::RefaultRecency, HighPolicy::StallDebt] {
            let run = Run { cold: true, ..THRASHER };
            let found = run_of(Policy::MGLRU, throttle, run, (3, 3));
            assert!(found.slept_ms < 30.0, "{throttle}: {} ms of 3 s", found.slept_ms);
            let read = DeviceSample::mean(&found.samples).read_kib;
            assert!(read > 150_000.0, "{throttle}: {read} KiB/s");
        }
    }

    /// A limit that holds the file ends the thrash, and a lower one does not.
    #[test]
    fn only_a_higher_limit_ends_a_thrash() {
        // Loads that hit take long to simulate, so the run in which all do is a short one.
        let busy = |(high, seconds)| {
            let run = Run { high: high << 20, ..THRASHER };
            busy_percent(&run_of(Policy::MGLRU_7_1, HighPolicy::Overage, run, seconds))
        };
        let [lower, published, higher] =
            [(50_u64, (20, 3)), (150, (20, 3)), (201, (2, 1))].map(busy);
        assert!(lower > 85.0 && published > 85.0, "{lower} {published}");
        assert!(higher < 1.0, "{higher}");
    }

    /// It limits what the device is used for, whether or not the pages come back.
    #[test]
    fn io_max_bounds_what_a_thrash_reads_and_makes_cold_memory_wait_as_well() {
        for cold in [false, true] {
            let run = Run { io_max: Some(20 << 20), cold, ..THRASHER };
            let found = run_of(Policy::MGLRU_7_1, HighPolicy::Overage, run, (20, 5));
            let read = DeviceSample::mean(&found.samples).read_kib;
            assert!((18_000.0..21_500.0).contains(&read), "{cold}: {read} KiB/s");
        }
    }

    #[test]
    fn a_neighbour_has_more_of_the_device_the_less_the_thrasher_has() {
        let reads = |throttle, threads, times| {
            played(Policy::MGLRU, throttle, (threads, true, true), times).actors[1].calls()
        };
        let [overage, ours] =
            [HighPolicy::Overage, HighPolicy::StallDebt].map(|throttle| reads(throttle, 1, SHORT));
        let alone = reads(HighPolicy::Overage, 0, (1, 6));
        assert!(overage < ours * 3 / 4, "{overage} {ours}");
        assert!(ours < alone && ours > alone * 9 / 10, "{ours} {alone}");
    }

    #[test]
    fn each_part_of_the_table_names_its_rows() {
        let neighbour = Some(NeighbourRow::default());
        let (ops_per_s, device_tps, device_util_pct) = (Some(1e6), Some(1e6), Some(1e6));
        let row = Row {
            ops_per_s,
            device: DeviceFigures { device_tps, device_util_pct, ..DeviceFigures::default() },
            ..Row::default()
        }
        .with(ThrashRow { neighbour, ..ThrashRow::default() });
        let text = lowtide_report::columns::table(HighThrash::COLUMNS, &[row]).to_string();
        let heads: Vec<_> = text.lines().filter(|line| line.starts_with("policy")).collect();
        assert!(heads.len() > 1 && heads.iter().all(|head| head.contains("read-ahead")), "{text}");
    }
}
