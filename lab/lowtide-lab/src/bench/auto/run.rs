//! The budgets side by side: options, table, JSON, timeline.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::bench::options::OnePolicy;
use clap::Args;
use lowtide::Size;
use lowtide::budget::AutoLimits;
use lowtide_bench::content::Content;
use lowtide_bench::datafile::Purpose;
use lowtide_bench::error::BenchError;
use lowtide_bench::options::{Files, Io, Output, Seed};
use lowtide_report::interrupt::Cut;
use lowtide_report::table::{self, Table};
use lowtide_report::values::{PAGE, budget, seconds};
use lowtide_report::{out, progress::Patient};
use serde::Serialize;

use super::load::{Load, Sizes};
use super::play::{Budget, Played, Player, Point};
use crate::bench::tenancy::host::{check_memory, head, page, tail, whole_windows};

pub(crate) const NAME: &str = "auto";
/// One line for listings.
pub(crate) const ABOUT: &str = "a limit that sets itself, and fixed budgets, as the load changes";

#[derive(Debug, Args)]
pub(crate) struct AutoArgs {
    /// What is read: phases (a small part, a large one, nothing, the small one), all of it in
    /// order, or a loop a quarter larger than the small part
    #[arg(long, value_enum, default_value = "phases")]
    load: Load,
    /// The small part of the file
    #[arg(long, value_name = "SIZE", value_parser = budget, default_value = "64M")]
    small: u64,
    /// The large part of the file
    #[arg(long, value_name = "SIZE", value_parser = budget, default_value = "400M")]
    large: u64,
    /// Lower bound of the limit that sets itself
    #[arg(long, value_name = "SIZE", value_parser = budget, default_value = "16M")]
    least: u64,
    /// Upper bound of it; a scan reads twice as much
    #[arg(long, value_name = "SIZE", value_parser = budget, default_value = "512M")]
    most: u64,
    /// Share of the time that may be waited, in percent
    #[arg(long, value_name = "PERCENT", value_parser = seconds, default_value = "1")]
    stall: f64,
    /// Fixed budgets to compare it with [default: those of the small part, and of half and all of
    /// the large one]
    #[arg(long, value_name = "SIZE", value_parser = budget, value_delimiter = ',')]
    fixed: Option<Vec<u64>>,
    /// Seconds of each phase
    #[arg(long, value_name = "S", value_parser = seconds, default_value = "40")]
    seconds: f64,
    /// Microseconds that are computed between two reads
    #[arg(long, value_name = "US", default_value_t = 5)]
    think: u64,
    /// Write the timeline to this file, as CSV
    #[arg(long, value_name = "FILE")]
    timeline: Option<PathBuf>,
    #[command(flatten)]
    policy: OnePolicy,
    /// lowtide's base page, 1K or more
    #[arg(long, value_name = "SIZE", value_parser = page, default_value = PAGE)]
    page: u64,
    #[command(flatten)]
    seed: Seed,
    #[command(flatten)]
    io: Io,
    #[command(flatten)]
    files: Files,
    #[command(flatten)]
    output: Output,
}

/// A budget, and what became of a phase under it.
#[derive(Debug, Serialize)]
struct AutoRow {
    workload: &'static str,
    world: &'static str,
    system: &'static str,
    policy: String,
    load: &'static str,
    /// `auto`, or a size.
    budget: String,
    /// Of a fixed budget; the upper bound of one that sets itself.
    max_bytes: u64,
    #[serde(flatten)]
    played: Played,
    timeline: Vec<Point>,
}

const HEADERS: [&str; 9] = [
    "budget",
    "phase",
    "reads/s",
    "waiting %",
    "refaults",
    "mean limit MiB",
    "mean usage MiB",
    "at the end MiB",
    "mean memory MiB",
];

fn mib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}

impl AutoRow {
    fn cells(&self) -> [String; 9] {
        let Played { phase, reads_per_s, stall_share, refaults, .. } = &self.played;
        [
            self.budget.clone(),
            (*phase).into(),
            format!("{reads_per_s:.0}"),
            format!("{:.2}", 100.0 * stall_share),
            refaults.to_string(),
            mib(self.played.mean_limit_bytes),
            mib(self.played.mean_usage_bytes),
            mib(self.played.end_usage_bytes),
            mib(self.played.mean_resident_bytes),
        ]
    }
}

fn table(rows: &[AutoRow]) -> Table {
    let mut table = table::new(&HEADERS, 2);
    rows.iter().for_each(|row| table.add_row(row.cells()));
    table
}

/// The timelines of all rows, as CSV.
fn csv(rows: &[AutoRow]) -> String {
    let mut text = String::from(
        "budget,phase,seconds,limit_bytes,usage_bytes,resident_bytes,stall_share,reads_per_s,\
         refaults\n",
    );
    for row in rows {
        for point in &row.timeline {
            let Point { phase, seconds, limit_bytes, usage_bytes, .. } = point;
            let Point { resident_bytes, stall_share, reads_per_s, refaults, .. } = point;
            let budget = &row.budget;
            let _ = writeln!(
                text,
                "{budget},{phase},{seconds:.3},{limit_bytes},{usage_bytes},{resident_bytes},\
                 {stall_share:.5},{reads_per_s:.0},{refaults}"
            );
        }
    }
    text
}

/// For each budget, its memory over time and its reads over all phases.
fn closing(rows: &[AutoRow]) -> Vec<String> {
    let mut lines = Vec::new();
    for of_budget in rows.chunk_by(|a, b| a.budget == b.budget) {
        let sum = |of: fn(&Played) -> f64| of_budget.iter().map(|row| of(&row.played)).sum::<f64>();
        let time = sum(|played| played.seconds);
        let memory = sum(|played| played.mean_resident_bytes as f64 * played.seconds) / time;
        let usage = sum(|played| played.mean_usage_bytes as f64 * played.seconds) / time;
        let busy = of_budget.iter().filter(|row| row.played.reads > 0);
        let busy: f64 = busy.map(|row| row.played.seconds).sum();
        let waited = sum(|played| played.stall_share * played.seconds) / busy.max(1e-9);
        lines.push(format!(
            "{}: {} reads; {:.2} % of the time with reads was waited; in use {} MiB, memory {} \
             MiB, means over all phases",
            of_budget[0].budget,
            sum(|played| played.reads as f64),
            100.0 * waited,
            mib(usage as u64),
            mib(memory as u64),
        ));
    }
    lines
}

fn budgets(args: &AutoArgs) -> Vec<Budget> {
    let fit = |bytes: u64| bytes + bytes / 16;
    let fixed = args.fixed.clone().unwrap_or_else(|| match args.load {
        Load::Phases => vec![fit(args.small), args.large / 2, fit(args.large)],
        Load::Scan => vec![args.least, args.most],
        Load::Loop => vec![fit(args.small), fit(args.small + args.small / 4)],
    });
    let target = args.stall / 100.0;
    let auto = AutoLimits::new(Size::new(args.least), Size::new(args.most)).with_target(target);
    fixed.into_iter().map(Budget::Fixed).chain([Budget::Auto(auto)]).collect()
}

/// Plays the load under each budget.
///
/// # Errors
/// The reason why there is no trustworthy result.
pub(crate) fn run(args: &AutoArgs) -> Result<(), BenchError> {
    let sizes = Sizes { small: args.small, large: args.large, whole: 2 * args.most };
    let time = Duration::from_secs_f64(args.seconds);
    let phases = args.load.phases(sizes, args.page, time)?;
    let budgets = budgets(args);
    let largest = budgets.iter().map(|budget| match budget {
        Budget::Fixed(bytes) => *bytes,
        Budget::Auto(limits) => limits.most.bytes(),
    });
    let most = largest.max().unwrap_or(args.most) + (8 << 20);
    check_memory(most)?;
    let bytes = whole_windows(args.load.bytes(sizes), args.page);
    let pager = |budget| args.io.pager(args.policy.policy, budget, args.page, |builder| builder);
    let data_dir = args.files.data_dir()?;
    let file = data_dir.prepare(Content::Words, bytes, 1, Purpose::Lasting)?.remove(0);
    let phases_text = format!(
        "{:.0} s for each phase, {} us of computing between reads; seed {}",
        args.seconds, args.think, args.seed.seed
    );
    let auto_text =
        format!("{} to {}, target {} %", Size::new(args.least), Size::new(args.most), args.stall);
    let lines = [("run", phases_text), ("auto", auto_text)];
    let machine = head((NAME, ABOUT), &pager(most)?, &file, &lines)?;
    let mut steps = Patient::steps((budgets.len() * phases.len()) as u64);
    let (mut rows, mut cut) = (Vec::new(), Cut::default());
    'budgets: for budget in budgets {
        let (name, max_bytes) = match budget {
            Budget::Fixed(bytes) => (Size::new(bytes).to_string(), bytes),
            Budget::Auto(limits) => ("auto".into(), limits.most.bytes()),
        };
        // A pager of its own: memory that another budget took is gone.
        let pager = pager(most)?;
        let think = Duration::from_micros(args.think);
        let mut player = Player::new(&pager, &file, budget, think, args.seed.seed)?;
        for phase in &phases {
            steps.say(format!("{name} {}", phase.name));
            let Some(mut played) = cut.take(player.play(phase))? else { break 'budgets };
            let timeline = std::mem::take(&mut played.timeline);
            rows.push(AutoRow {
                workload: NAME,
                world: "real",
                system: "lowtide",
                policy: args.policy.policy.to_string(),
                load: match args.load {
                    Load::Phases => "phases",
                    Load::Scan => "scan",
                    Load::Loop => "loop",
                },
                budget: name.clone(),
                max_bytes,
                played,
                timeline,
            });
            steps.add(1);
        }
        player.end()?;
    }
    drop(steps);
    if let Some(path) = &args.timeline {
        fs::write(path, csv(&rows)).map_err(|source| BenchError::file("write", path, source))?;
        out::note(format_args!("the timeline is in {}", path.display()));
    }
    let closing = closing(&rows);
    let table = table(&rows);
    tail(&args.output, &machine, &table, rows, &*closing, cut)
}
