//! `dd-oom`: the throttling OOM of the published series, at full size, which is small.
//!
//! A file of one and a half budgets is written to a device whose writes take a second each
//! (`docs/kernel/fault-and-writeback.md` B12). Soon all memory is dirty or under writeback, and
//! reclaim finds nothing to free for a long time; whether the writer survives depends on who waits.
//! A simulated kill is a result: the row reports it, with the group's counters at the kill. The
//! runtime kills no writer, but a write may fail, which is an error. The file is not made durable,
//! as in the published run; a real one is flushed before it is verified, and that time is apart.

use crate::experiments::writing::WrittenRow;
use std::time::Duration;

use crate::sim::options::PUBLISHED_POLICIES;
use clap::Args;
use lowtide_bench::error::BenchError;
use lowtide_experiments::programs::writer::Writer;
use lowtide_experiments::published::{Arm, MeasuredDd, dd_verdict, published_dd};
use lowtide_report::columns::{Columns, counted, label, number, whole};
use lowtide_report::row::Row;
use lowtide_report::span::Span;
use lowtide_report::table::mib;
use lowtide_report::verdict::Closing;

use super::Sizes;
use super::writing::{Beside, Writing, Written};
use crate::bench::write::FillPeer;
use crate::sim::compare::judged;

#[derive(Debug, Args)]
#[command(
    mut_arg("max", |arg| arg.default_value("128M")),
    mut_arg("scale", |arg| arg.default_value("1.5"))
)]
pub(crate) struct DdOom {
    #[command(flatten)]
    sizes: Sizes,
    /// Write latency of the device, as in 100ms or 5s [default: 1s, or the machine's]
    #[arg(long, value_name = "TIME")]
    delay: Option<Span>,
}

/// There is no other program to compare with: a delay applies only to lowtide's requests.
#[derive(Debug, Args)]
pub(crate) struct NoPeers {}

impl Beside for NoPeers {
    fn peers(&self) -> Result<Vec<FillPeer>, BenchError> {
        Ok(Vec::new())
    }
}

impl Writing for DdOom {
    const NAME: &str = "dd-oom";
    const ABOUT: &str =
        "a writer to a slow device, in a group smaller than its file: the throttling OOM";
    const HELP: &str = "\
The published experiment is small and runs at its full size. In a simulation a kill is a result: the
row says when, and its counters are those of the group at that moment; with the default sizes each
row stands beside its published outcome, with a verdict. On real memory no write may fail.

Examples:
  lowtide-lab bench dd-oom --policy mglru
  lowtide-lab sim dd-oom --delay 100ms --policy mglru-7.1,mglru-7.1+series";
    const MACHINE: &str = "delay-1s";
    const POLICIES: &str = PUBLISHED_POLICIES;
    const DELAY: Option<Span> = Some(Span(Duration::from_secs(1)));
    const ROUNDS: &str = "1";
    const KILL_IS_RESULT: bool = true;
    const COLUMNS: Columns = Columns::named(
        1,
        &[
            ("policy", label),
            ("outcome", |row| {
                match (row.own::<WrittenRow>().outcome_published, &row.own::<WrittenRow>().kill) {
                    (Some(outcome), _) => outcome.into(),
                    (None, Some(_)) => "killed".into(),
                    (None, None) => "finished".into(),
                }
            }),
            ("MiB written", |row| {
                row.own::<WrittenRow>().written_bytes.map_or_else(String::new, mib)
            }),
            ("seconds", |row| row.seconds.map_or_else(String::new, |s| format!("{s:.3}"))),
            ("dirty or writeback %", |row| {
                row.own::<WrittenRow>()
                    .unclean_pct
                    .map_or_else(String::new, |part| format!("{part:.1}"))
            }),
            ("naps", |row| {
                row.own::<WrittenRow>().naps.map_or_else(String::new, |naps| whole(naps.congested))
            }),
            ("nap ms", |row| number(row.kernel.throttled_ms)),
            ("writer's pauses ms", |row| number(row.kernel.dirty_throttled_ms)),
            ("flusher wakes", |row| number(row.kernel.flusher_wakes.map(|wakes| wakes as f64))),
            ("pgscan", |row| counted(row, "pgscan", whole)),
            ("pgrefill", |row| counted(row, "pgrefill", whole)),
            ("pgsteal", |row| counted(row, "pgsteal", whole)),
        ],
    );
    type Peers = NoPeers;

    fn writer(&self) -> Writer {
        self.sizes.writer(Writer::published())
    }

    fn delay(&self) -> Option<Span> {
        self.delay
    }

    fn rows(&self, written: Written, published: bool) -> Vec<Row> {
        let Written { unclean_pct, naps, kill, row, .. } = written;
        let row = {
            let own = WrittenRow { unclean_pct, naps, kill, ..row.own() };
            row.with(own)
        };
        let published = published && self.writer() == Writer::published();
        let arm = row.policy.parse().ok().and_then(Arm::of).filter(|_| published);
        let beside = arm.map(|arm| self::published(&row, arm));
        std::iter::once(row).chain(beside).collect()
    }

    fn closing(&self, rows: &[Row]) -> Closing {
        let mut lines: Vec<String> = rows.iter().filter_map(kill_line).collect();
        if let Some(first) = lines.first_mut() {
            first.insert(0, '\n');
        }
        let of = |wanted: Arm| {
            let row = rows.iter().find(|row| {
                let arm = row.policy.parse().ok().and_then(Arm::of);
                (row.world, row.system) == ("sim", "lowtide") && arm == Some(wanted)
            });
            row.map(measured)
        };
        let mut verdict = Vec::new();
        if let (Some(before), Some(after)) = (of(Arm::Before), of(Arm::After)) {
            verdict = judged(None, &dd_verdict(&before, &after, of(Arm::Classical).as_ref()));
        }
        Closing { lines, verdict }
    }
}

/// The published outcome of an arm.
fn published(beside: &Row, arm: Arm) -> Row {
    let (posting, outcome) = published_dd(arm);
    Row {
        workload: beside.workload,
        world: "real",
        system: "published",
        source: Some(posting),
        policy: beside.policy.clone(),
        machine: beside.machine.clone(),
        max_bytes: beside.max_bytes,
        page_bytes: beside.page_bytes,
        threads: 1,
        oom: Some(u64::from(arm == Arm::Before)),
        ..Row::default()
    }
    .with(WrittenRow { outcome_published: Some(outcome), ..WrittenRow::default() })
}

/// One line about a row's kill.
fn kill_line(row: &Row) -> Option<String> {
    let kill = row.own::<WrittenRow>().kill?;
    Some(format!(
        "{}: killed after {:.3} s, in MiB {}: a charge failed after {:.2} ms, with {:.1} % of the \
         group's cached file pages dirty or being written",
        row.policy,
        kill.seconds,
        (row.own::<WrittenRow>().written_bytes.unwrap_or(0) >> 20) + 1,
        kill.tried_ms,
        row.own::<WrittenRow>().unclean_pct.unwrap_or(0.0)
    ))
}

/// A row in the verdict's form.
fn measured(row: &Row) -> MeasuredDd {
    let part =
        |part: Option<u64>, of: Option<u64>| part.unwrap_or(0) as f64 / of.unwrap_or(0) as f64;
    MeasuredDd {
        written: part(row.own::<WrittenRow>().written_bytes, row.data_bytes),
        oom: row.oom.unwrap_or(0) as f64,
    }
}
