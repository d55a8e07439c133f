//! `circles`: tenants that each read a file from start to end, over and over, and that do not fit
//! into the budget together.
//!
//! The worst case of recency: each page is evicted just before it is wanted again. A policy that
//! keeps some of the pages, whichever they are, finds them in each round; one that keeps the newest
//! finds none. The row says what each tenant found, since a policy may keep all of one file and
//! nothing of another. A tenant pauses after each load, because the one that never misses would
//! make most of the loads otherwise. Sizes and speeds are made up.

use crate::experiments::SharingRow;
use std::time::Duration;

use clap::Args;
use lowtide::Size;
use lowtide_experiments::client::script::Done;
use lowtide_experiments::programs::script::{Actor, Call, Order, Script};
use lowtide_report::columns::{Columns, label, number, refaults};
use lowtide_report::row::Row;
use lowtide_report::values::budget;

use super::simulated::Defaults;
use super::{Experiment, Play, Played, Setting, together};
use crate::throttle::{ProgramError, ThrottlePolicy};

const TENANTS: u64 = 4;
/// The file of each tenant, in percent of the budget.
const FILE_PCT: u64 = 31;
/// Pause after each load: some ten thousand loads a second at most.
const PAUSE: Duration = Duration::from_micros(100);

#[derive(Debug, Args)]
pub(crate) struct Circles {
    /// Memory budget of all tenants; the file of each is 31 % of it
    #[arg(long, value_name = "SIZE", value_parser = budget, default_value = "64M",
          allow_hyphen_values = true)]
    max: u64,
}

impl Circles {
    fn script(&self, setting: &Setting) -> Script {
        let tenant = |number: u64| Actor {
            name: format!("tenant-{}", number + 1),
            low: 0,
            high: None,
            io_max: None,
            file: setting.file(self.max / 100 * FILE_PCT),
            threads: 1,
            order: Order::Sequential,
            call: Call::Load { around: false },
            work: Duration::ZERO,
            pause: PAUSE,
            timed: false,
            stream: number as u32,
        };
        Script {
            max: Some(self.max),
            memory: self.max,
            actors: (0..TENANTS).map(tenant).collect(),
            warm: setting.warm,
            run: setting.run,
            seed: setting.seed,
        }
    }
}

impl Experiment for Circles {
    const NAME: &str = "circles";
    const ABOUT: &str = "tenants that each read a file in circles, together more than the budget";
    const HELP: &str = "\
Four tenants share the budget; each has a file of 31 % of it. Each policy has a row.

Examples:
  lowtide-lab bench circles --policy mglru,lru
  lowtide-lab sim circles --policy mglru,lru";
    const SIMULATED: Defaults = Defaults {
        machine: "laptop",
        policies: "mglru,mglru-7.1,lru",
        seconds: "5",
        warm: Duration::from_secs(5),
    };
    const REAL_SECONDS: &str = "4";
    const COLUMNS: Columns = Columns::named(
        1,
        &[
            ("policy", label),
            ("hit %", |row| percent(row.own::<SharingRow>().hit_ratio)),
            ("least hit %", |row| percent(tenants(row).reduce(f64::min))),
            ("most hit %", |row| percent(tenants(row).reduce(f64::max))),
            ("ops/s", |row| number(row.ops_per_s)),
            ("file refaults", refaults),
        ],
    );

    fn plays(&self, setting: &Setting) -> Result<Vec<Play>, ProgramError> {
        let play = |policy| Play {
            policy,
            script: self.script(setting),
            throttle: ThrottlePolicy::default(),
            label: policy.to_string(),
        };
        Ok(setting.policies.iter().copied().map(play).collect())
    }

    fn describe(&self, _: &Setting, plays: &[Play]) -> Vec<(&'static str, String)> {
        let file = Size::new(plays[0].script.actors[0].file);
        let data = format!("{TENANTS} tenants with {file} each, read in order, over and over");
        vec![("budget", Size::new(self.max).to_string()), ("tenants", data)]
    }

    fn rows(&self, setting: &Setting, plays: &[Play], played: &[Option<Played>]) -> Vec<Row> {
        let row = |(play, played): (&Play, &Option<Played>)| {
            let played = played.as_ref()?;
            let row = {
                let base = setting.row(Self::NAME, play, played);
                let own = SharingRow {
                    hit_ratio: Some(together(&played.actors)),
                    tenant_hit_ratios: Some(played.actors.iter().map(Done::hit_ratio).collect()),
                };
                Row {
                    max_bytes: Some(self.max),
                    data_bytes: Some(play.script.bytes()),
                    threads: TENANTS as u32,
                    ..base
                }
                .with(own)
            };
            Some(row.with_ops(played.actors.iter().map(Done::calls).sum()))
        };
        plays.iter().zip(played).filter_map(row).collect()
    }
}

fn tenants(row: &Row) -> impl Iterator<Item = f64> + use<> {
    row.own::<SharingRow>().tenant_hit_ratios.into_iter().flatten()
}

fn percent(ratio: Option<f64>) -> String {
    ratio.map_or_else(String::new, |ratio| format!("{:.1}", 100.0 * ratio))
}
