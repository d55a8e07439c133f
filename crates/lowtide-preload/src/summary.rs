//! What a process says at its end, or when it gets SIGUSR1: text for people, or a line of JSON.
//!
//! The names in the JSON are an interface: names may be added, none is renamed.

use crate::budgets::Figures;
use crate::left::LeftAlone;
use crate::settings::Settings;
use rustix::fs::{Mode, OFlags, open};
use serde::Serialize;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write;

/// Files of a budget that are named.
pub(crate) const FILES: usize = 8;

/// One budget, and what it did.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Budget {
    /// The glob of `--map`; none for the common one.
    pub(crate) glob: Option<String>,
    /// Mappings that were adopted.
    pub(crate) mappings: u64,
    /// The first of their files.
    pub(crate) files: Vec<String>,
    /// What it did.
    #[serde(flatten)]
    pub(crate) figures: Figures,
}

#[derive(Serialize)]
struct Row<'a> {
    reason: &'a str,
    count: u64,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    first: Option<&'a str>,
}

#[derive(Serialize)]
struct Whole<'a> {
    lowtide: &'a str,
    pid: u32,
    program: &'a str,
    way: &'a str,
    max_bytes: u64,
    budgets: &'a [Budget],
    /// How often a mapping changed between being read ahead and not.
    read_ahead_switches: u64,
    left_alone: Vec<Row<'a>>,
}

/// Writes it where the settings say. A summary that cannot be written is lost: the program must not
/// suffer from it.
pub(crate) fn write(settings: &Settings, budgets: &[Budget], switches: u64, left: &[LeftAlone]) {
    let program = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
    let program = program.trim_end();
    let text = if settings.json {
        json(settings, program, budgets, switches, left)
    } else {
        text(settings, program, budgets, left)
    };
    match &settings.summary {
        Some(path) => {
            let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC;
            if let Ok(file) = open(path, flags, Mode::from_raw_mode(0o666)) {
                let _ = File::from(file).write_all(text.as_bytes());
            }
        }
        None => {
            let _ = std::io::stderr().write_all(text.as_bytes());
        }
    }
}

fn json(
    settings: &Settings,
    program: &str,
    budgets: &[Budget],
    switches: u64,
    left: &[LeftAlone],
) -> String {
    let rows = left.iter().map(|left| Row {
        reason: left.reason.name(),
        count: left.count,
        bytes: left.bytes,
        first: left.first.as_deref(),
    });
    let whole = Whole {
        lowtide: env!("CARGO_PKG_VERSION"),
        pid: std::process::id(),
        program,
        way: "pagecache",
        max_bytes: settings.max,
        budgets,
        read_ahead_switches: switches,
        left_alone: rows.collect(),
    };
    serde_json::to_string(&whole).unwrap_or_default() + "\n"
}

fn text(settings: &Settings, program: &str, budgets: &[Budget], left: &[LeftAlone]) -> String {
    let mut text = format!("lowtide: {program} ({})", std::process::id());
    if budgets.is_empty() {
        let _ = writeln!(text, ": no file mapping to keep within {}", mib(settings.max));
    } else {
        text.push('\n');
    }
    for budget in budgets {
        let figures = &budget.figures;
        let of = budget.glob.as_ref().map(|glob| format!(" of {glob}")).unwrap_or_default();
        let plural = if budget.mappings == 1 { "" } else { "s" };
        let _ = writeln!(
            text,
            "  budget{of}: {}, {} mapping{plural} ({})",
            mib(figures.max_bytes),
            budget.mappings,
            budget.files.join(", ")
        );
        let _ = writeln!(
            text,
            "    in memory {} now, {} at most; {} pages came in, {} of them again; {} evicted",
            mib(figures.resident_bytes),
            mib(figures.peak_bytes),
            figures.faults,
            figures.refaults,
            figures.evicted
        );
    }
    for left in left {
        let plural = if left.count == 1 { "" } else { "s" };
        let first = left.first.as_ref().map(|path| format!(" ({path})")).unwrap_or_default();
        let _ = writeln!(
            text,
            "  left to the kernel: {} mapping{plural}, {}: {}{first}",
            left.count,
            mib(left.bytes),
            left.reason.text()
        );
    }
    text
}

fn mib(bytes: u64) -> String {
    let tenths = bytes.saturating_mul(10) >> 20;
    format!("{}.{} MiB", tenths / 10, tenths % 10)
}
