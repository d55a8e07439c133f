//! `noisy-neighbour`: the effect of a scanning tenant on tenants with working sets, and their
//! protection by `low`.
//!
//! ```text
//!   parent (max)
//!    ├── tenant 1..4   loads of its own file, zipf popularity; with protection: low
//!    └── scanner       reads a file larger than everything from start to end, over and over
//! ```
//!
//! Three rows for each policy: the tenants alone, with the scanner, and with the scanner and `low`.
//! With programs (`--bpf`) one more each: with the scanner, and the program deciding what reclaim
//! spares.
//! They compare the hit ratio of the tenants' loads. The tenants fit in the budget without the
//! scanner: 40 MiB each in 176 MiB, of which 38 MiB are protected, so a small part of the budget is
//! always left to the scanner. No thread runs at full speed; otherwise the fastest would determine
//! the shares of memory. Source: `docs/kernel/memcg.md` §5; sizes and speeds are made up.

use crate::experiments::SharingRow;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use lowtide::{Policy, Size};
use lowtide_experiments::client::script::Done;
use lowtide_experiments::programs::script::{Actor, Call, Order, Script};
use lowtide_report::columns::{Columns, label, number, refaults};
use lowtide_report::row::Row;
use lowtide_report::values::budget;
use lowtide_report::verdict::Closing;

use super::simulated::Defaults;
use super::{Experiment, Play, Played, Setting, together};
use crate::throttle::{ProgramError, ThrottlePolicy};

/// What only the rows of this experiment say.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct NoisyRow {
    /// What runs beside the tenants: `alone`, `scanner`, or `scanner, low`.
    pub(crate) company: Option<&'static str>,
    /// Its change relative to the tenants alone, in percent.
    pub(crate) hit_ratio_change_pct: Option<f64>,
    /// Pages that the scanner read per virtual second.
    pub(crate) scanned_pages_per_s: Option<f64>,
    /// The program that decides about the limits of a group.
    pub(crate) limits_program: Option<String>,
}

/// Tenants with a working set.
const TENANTS: u32 = 4;
/// Of 176 parts of the budget: the file of each tenant, its `low`, and the scanner's file.
const PARTS: u64 = 176;
const FILE: u64 = 40;
const LOW: u64 = 38;
const SCAN: u64 = 1024;
/// CPU time of a tenant's operation besides its load: at most fifty thousand loads a second.
const WORK: Duration = Duration::from_micros(20);
/// Pages that the scanner reads at once, and its pause after each: at most eighty thousand pages a
/// second.
const SCAN_PAGES: u64 = 8;
const SCAN_PAUSE: Duration = Duration::from_micros(100);
/// Largest relative change of the hit ratio that counts as protected, in percent.
const KEPT_PCT: f64 = 2.0;

/// What runs beside the tenants, in the order of the rows.
const COMPANIES: [&str; 3] = ["alone", "scanner", "scanner, low"];

#[derive(Debug, Args)]
pub(crate) struct Noisy {
    /// Memory budget of tenants and scanner; their files are parts or multiples of it
    #[arg(long, value_name = "SIZE", value_parser = budget, default_value = "176M",
          allow_hyphen_values = true)]
    max: u64,
    /// A program that decides what is spared and reclaimed in advance, an eBPF object file; one
    /// more row for each
    #[arg(long, value_name = "FILE")]
    bpf: Vec<PathBuf>,
}

impl Noisy {
    /// Rows of a policy.
    const fn each(&self) -> usize {
        COMPANIES.len() + self.bpf.len()
    }

    /// A number of 176ths of the budget.
    const fn parts(&self, parts: u64) -> u64 {
        // A budget that is not a whole number of pages loses less than a page by this.
        self.max / PARTS * parts
    }

    fn script(&self, setting: &Setting, company: usize) -> Script {
        let whole_pages = |bytes| bytes / setting.page * setting.page;
        let low = if company == 2 { whole_pages(self.parts(LOW)) } else { 0 };
        let tenant = |number: u32| Actor {
            name: format!("tenant-{}", number + 1),
            low,
            high: None,
            io_max: None,
            file: setting.file(self.parts(FILE)),
            threads: 1,
            order: Order::Zipf,
            call: Call::Load { around: false },
            work: WORK,
            pause: Duration::ZERO,
            timed: false,
            stream: number,
        };
        let scanner = Actor {
            name: "scanner".into(),
            low: 0,
            file: setting.file(self.parts(SCAN)),
            order: Order::Sequential,
            call: Call::Read { pages: SCAN_PAGES },
            work: Duration::ZERO,
            pause: SCAN_PAUSE,
            ..tenant(TENANTS)
        };
        let tenants = (0..TENANTS).map(tenant);
        Script {
            max: Some(self.max),
            memory: self.max,
            actors: tenants.chain((company > 0).then_some(scanner)).collect(),
            warm: setting.warm,
            run: setting.run,
            seed: setting.seed,
        }
    }

    fn row(&self, setting: &Setting, (play, played): (&Play, &Played), company: usize) -> Row {
        let (tenants, scanner) = played.actors.split_at(TENANTS as usize);
        let pages = scanner.iter().map(Done::calls).sum::<u64>() * SCAN_PAGES;
        {
            let base = setting.row(Self::NAME, play, played);
            let own = NoisyRow {
                // A program is beside the scanner.
                company: Some(COMPANIES.get(company).unwrap_or(&COMPANIES[1])),
                limits_program: (company >= COMPANIES.len()).then(|| play.throttle.name()),
                scanned_pages_per_s: Some(pages as f64 / played.seconds),
                ..base.own()
            };
            let sharing = SharingRow {
                hit_ratio: Some(together(tenants)),
                tenant_hit_ratios: Some(tenants.iter().map(Done::hit_ratio).collect()),
            };
            Row {
                max_bytes: Some(self.max),
                data_bytes: Some(u64::from(TENANTS) * play.script.actors[0].file),
                threads: TENANTS,
                ..base
            }
            .with(own)
            .with(sharing)
        }
        .with_ops(tenants.iter().map(Done::calls).sum())
    }
}

impl Experiment for Noisy {
    const NAME: &str = "noisy-neighbour";
    const ABOUT: &str = "tenants with working sets beside one that scans, with and without low";
    const HELP: &str = "\
Four tenants and a scanner share the budget. Each policy has three rows: the tenants alone, with the
scanner, and with the scanner and low. Changes of the hit ratio are relative to the first row. A
program of --bpf decides for the group of all, in one more row with the scanner, without low.

Examples:
  lowtide-lab bench noisy-neighbour --policy mglru,lru
  lowtide-lab sim noisy-neighbour --policy mglru,lru
  lowtide-lab sim noisy-neighbour --policy lru --bpf examples/bpf/fair_share.bpf.o";
    const SIMULATED: Defaults = Defaults {
        machine: "laptop",
        policies: "mglru,mglru-7.1,lru",
        seconds: "10",
        warm: Duration::from_secs(10),
    };
    const REAL_SECONDS: &str = "4";
    const COLUMNS: Columns = Columns::named(
        2,
        &[
            ("policy", label),
            ("company", |row| {
                let company = row.own::<NoisyRow>().company.unwrap_or_default();
                row.own::<NoisyRow>()
                    .limits_program
                    .as_ref()
                    .map_or(company.into(), |program| format!("{company}, {program}"))
            }),
            ("hit %", |row| {
                row.own::<SharingRow>()
                    .hit_ratio
                    .map_or_else(String::new, |ratio| format!("{:.2}", 100.0 * ratio))
            }),
            ("change %", |row| {
                row.own::<NoisyRow>()
                    .hit_ratio_change_pct
                    .map_or_else(String::new, |change| format!("{change:+.2}"))
            }),
            ("tenants' ops/s", |row| number(row.ops_per_s)),
            ("scanned pages/s", |row| number(row.own::<NoisyRow>().scanned_pages_per_s)),
            ("file refaults", refaults),
        ],
    );

    fn plays(&self, setting: &Setting) -> Result<Vec<Play>, ProgramError> {
        let programs = ThrottlePolicy::programs(&self.bpf)?;
        let play = |policy, company: usize, throttle: &ThrottlePolicy| Play {
            policy,
            script: self.script(setting, company),
            throttle: throttle.clone(),
            label: match throttle {
                ThrottlePolicy::Builtin(_) => format!("{policy} {}", COMPANIES[company]),
                ThrottlePolicy::Program { .. } => format!("{policy} {}", throttle.name()),
            },
        };
        let builtin = ThrottlePolicy::default();
        let of = |&policy: &Policy| {
            let fixed = (0..COMPANIES.len()).map(|company| play(policy, company, &builtin));
            let plays: Vec<_> =
                fixed.chain(programs.iter().map(|program| play(policy, 1, program))).collect();
            plays
        };
        Ok(setting.policies.iter().flat_map(of).collect())
    }

    fn describe(&self, _: &Setting, plays: &[Play]) -> Vec<(&'static str, String)> {
        let (tenant, scanner) = (&plays[2].script.actors[0], &plays[2].script.actors[4]);
        let data = format!(
            "{TENANTS} tenants with {} each, zipf, low {}; a scanner with {}",
            Size::new(tenant.file),
            Size::new(tenant.low),
            Size::new(scanner.file)
        );
        vec![("budget", Size::new(self.max).to_string()), ("tenants", data)]
    }

    fn rows(&self, setting: &Setting, plays: &[Play], played: &[Option<Played>]) -> Vec<Row> {
        let mut rows = Vec::new();
        let each = self.each();
        for (plays, played) in plays.chunks_exact(each).zip(played.chunks_exact(each)) {
            // An interrupted run shows the policies whose rows are all complete.
            let Some(played) = played.iter().map(Option::as_ref).collect::<Option<Vec<_>>>() else {
                continue;
            };
            let alone = together(&played[0].actors[..TENANTS as usize]);
            for (company, pair) in plays.iter().zip(played).enumerate() {
                let row = self.row(setting, pair, company);
                let change = |ratio| 100.0 * (ratio / alone - 1.0);
                rows.push({
                    let own = NoisyRow {
                        hit_ratio_change_pct: row.own::<SharingRow>().hit_ratio.map(change),
                        ..row.own()
                    };
                    row.with(own)
                });
            }
        }
        rows
    }

    /// Whether protection preserved the hit ratio, one line for each policy.
    fn closing(&self, _: &Setting, rows: &[Row]) -> Closing {
        let lines = |rows: &[Row]| {
            let change = |row: &Row| row.own::<NoisyRow>().hit_ratio_change_pct.unwrap_or(f64::NAN);
            let kept = if change(&rows[2]).abs() <= KEPT_PCT { "kept" } else { "not kept" };
            let low = format!(
                "{}: hit ratio {kept} with low ({:+.2} %, at most {KEPT_PCT} %), {:+.2} % without",
                rows[0].policy,
                change(&rows[2]),
                change(&rows[1])
            );
            let program = |row: &Row| {
                let name = row.own::<NoisyRow>().limits_program.unwrap_or_default();
                format!("{}: hit ratio {:+.2} % with {name}", row.policy, change(row))
            };
            std::iter::once(low).chain(rows[COMPANIES.len()..].iter().map(program)).collect()
        };
        rows.chunks_exact(self.each()).flat_map::<Vec<String>, _>(lines).collect::<Vec<_>>().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::simulated;
    use lowtide_sim::spec::MachineSpec;

    fn machine() -> MachineSpec {
        MachineSpec {
            memory: 512 << 20,
            kernel: 0,
            ..MachineSpec::load("laptop").expect("a preset")
        }
    }

    fn setting(spec: &MachineSpec, policies: &[Policy]) -> Setting {
        Setting {
            world: "sim",
            machine: spec.name.clone(),
            is_default_machine: false,
            page: spec.page,
            policies: policies.to_vec(),
            seed: 1,
            warm: Duration::from_secs(4),
            run: Duration::from_secs(2),
        }
    }

    /// The program is in the names that are proposed for the kernel.
    #[test]
    fn a_program_decides_what_reclaim_spares() {
        let spec = machine();
        let setting = setting(&spec, &[Policy::LRU]);
        let object = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/bpf/fair_share.bpf.o");
        let noisy = Noisy { max: 44 << 20, bpf: vec![object.into()] };
        let plays = noisy.plays(&setting).expect("a program");
        let played: Vec<_> = plays.iter().map(|play| simulated::play(&spec, play).ok()).collect();
        let rows = noisy.rows(&setting, &plays, &played);
        let [_, scanned, _, program] = &rows[..] else { panic!("{}", rows.len()) };
        assert_eq!(program.own::<NoisyRow>().limits_program.as_deref(), Some("bpf:fair_share"));
        assert_eq!(
            (program.own::<NoisyRow>().company, scanned.own::<NoisyRow>().limits_program.as_ref()),
            (scanned.own::<NoisyRow>().company, None)
        );
        // A tenant's file is 40 parts of 176, a fair share 35.
        let change = |row: &Row| row.own::<NoisyRow>().hit_ratio_change_pct.expect("a change");
        assert!(change(scanned) < 2.0 * change(program), "{} {}", change(scanned), change(program));
        assert!(
            program.own::<NoisyRow>().scanned_pages_per_s > Some(5_000.0),
            "the scanner goes on"
        );
        let closing = noisy.closing(&setting, &rows).lines;
        assert!(closing[1].ends_with(" % with bpf:fair_share"), "{closing:?}");
    }

    #[test]
    fn protection_keeps_the_hit_ratio_that_a_scanner_takes() {
        let spec = machine();
        let setting = setting(&spec, &[Policy::MGLRU, Policy::LRU]);
        // A quarter of the size.
        let noisy = Noisy { max: 44 << 20, bpf: Vec::new() };
        let plays = noisy.plays(&setting).expect("no programs");
        let played: Vec<_> = plays.iter().map(|play| simulated::play(&spec, play).ok()).collect();
        let found = noisy.rows(&setting, &plays, &played);
        assert_eq!(found.len(), 6);
        for rows in found.chunks_exact(3) {
            let [alone, scanned, low] = [&rows[0], &rows[1], &rows[2]];
            assert_eq!(alone.own::<NoisyRow>().scanned_pages_per_s, Some(0.0));
            assert!(alone.ops > Some(10_000) && alone.own::<SharingRow>().hit_ratio <= Some(1.0));
            for row in [scanned, low] {
                assert!(
                    row.own::<NoisyRow>().scanned_pages_per_s > Some(5_000.0),
                    "the scanner goes on"
                );
            }
            assert!(
                scanned.own::<NoisyRow>().hit_ratio_change_pct < Some(0.0),
                "{:?}",
                scanned.own::<NoisyRow>().hit_ratio_change_pct
            );
            let change = low.own::<NoisyRow>().hit_ratio_change_pct.unwrap();
            assert!(change.abs() <= KEPT_PCT, "{}: {change}", low.policy);
        }
        let closing = noisy.closing(&setting, &found).lines;
        assert!(closing.iter().all(|line| line.contains(" kept ")), "{closing:?}");
        let first = &played[..1];
        assert!(noisy.rows(&setting, &plays[..3], first).is_empty(), "not all of its rows ended");
    }
}
