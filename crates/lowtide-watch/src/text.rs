//! A process as lines for people, and all processes as a table.
//!
//! With an earlier look, what counts is shown as a rate a second: `1.2k/s`.

use lowtide_core::Size;
use lowtide_status::counters::{Numbers, Unit};
use lowtide_status::{Origin, PagerStatus, Status, TenantStatus, printable};
use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

/// Tenants that have a line.
const TENANTS: usize = 20;
/// Files of a tenant that are named.
const FILES: usize = 4;

fn size(bytes: u64) -> String {
    Size::new(bytes).short().to_string()
}

/// A number with a thousand as `k`.
fn number(value: f64) -> String {
    let units = ["", "k", "M", "G", "T"];
    let (mut value, mut unit) = (value, 0);
    while value >= 9999.5 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    format!("{value:.0}{}", units[unit])
}

/// What counts: in all, or a second.
#[derive(Clone, Copy)]
struct Rates {
    seconds: Option<f64>,
}

impl Rates {
    fn between(now: &Status, before: Option<&Status>) -> Self {
        let same = before.filter(|before| before.start_ticks == now.start_ticks);
        let ns = same.map(|before| now.written_ns.saturating_sub(before.written_ns));
        Self { seconds: ns.filter(|ns| *ns > 0).map(|ns| ns as f64 / 1e9) }
    }

    fn count(self, now: u64, before: u64) -> String {
        match self.seconds {
            Some(seconds) => {
                format!("{}/s", number(now.saturating_sub(before) as f64 / seconds))
            }
            None => number(now as f64),
        }
    }

    fn bytes(self, now: u64, before: u64) -> String {
        match self.seconds {
            Some(seconds) => {
                format!("{}/s", size((now.saturating_sub(before) as f64 / seconds) as u64))
            }
            None => size(now),
        }
    }

    /// Time of waiting: in all, or its share.
    fn waiting(self, now: u64, before: u64) -> String {
        let seconds = now.saturating_sub(before) as f64 / 1e9;
        match self.seconds {
            Some(of) => format!("{:.1} %", 100.0 * seconds / of),
            None => format!("{:.1} s", now as f64 / 1e9),
        }
    }
}

/// Seconds since a page was written.
fn age(status: &Status) -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    now.saturating_sub(u128::from(status.written_ns)) as f64 / 1e9
}

/// A process; rates, if there is an earlier look at it. Ends with a newline.
#[must_use]
pub fn process(now: &Status, before: Option<&Status>) -> String {
    let rates = Rates::between(now, before);
    let none = Status::default();
    let before = before.filter(|_| rates.seconds.is_some()).unwrap_or(&none);
    let how = match now.origin {
        Origin::Library => "with the library",
        Origin::Run => "under lowtide run",
        Origin::Python => "with the Python package",
    };
    let (program, pid) = (printable(&now.program), now.pid);
    let mut text = format!("{program} ({pid}), {how}, as it was {:.1} s ago\n", age(now));
    let _ = writeln!(text, "{}", phrases(&now.stat, &before.stat, rates));
    if now.pagers.is_empty() {
        text += "nothing is kept within a budget so far\n";
    }
    for (at, of) in now.pagers.iter().enumerate() {
        let empty = PagerStatus::default();
        pager(&mut text, at, of, before.pagers.get(at).unwrap_or(&empty), rates);
        if now.origin != Origin::Run {
            // Pointers are not counted, and `lowtide run` has nothing else.
            hits(&mut text, of, before.pagers.get(at).unwrap_or(&empty));
        }
    }
    text
}

fn pager(text: &mut String, at: usize, now: &PagerStatus, before: &PagerStatus, rates: Rates) {
    let _ = writeln!(
        text,
        "\npager {at}: policy {}, {} in frames, {} in tables",
        printable(&now.policy),
        size(now.stat.resident_bytes),
        size(now.stat.frame_metadata_bytes)
    );
    let _ = writeln!(text, "  {}", phrases(&now.stat, &before.stat, rates));
    if now.stat.failed_pages > 0 {
        let _ = writeln!(text, "  {} pages could not be written", now.stat.failed_pages);
    }
    let rows: Vec<[String; 9]> = now
        .tenants
        .iter()
        .take(TENANTS)
        .map(|tenant| {
            let empty = TenantStatus::default();
            let old = before.tenants.iter().find(|old| old.path == tenant.path).unwrap_or(&empty);
            row(tenant, old, rates)
        })
        .collect();
    let heads =
        ["tenant", "usage", "max", "swap", "dirty", "faults", "refaults", "evicted", "waited"];
    table(text, "  ", &heads, &rows);
    let left = now.tenants.len().saturating_sub(TENANTS) as u64 + now.tenants_left_out;
    if left > 0 {
        let _ = writeln!(text, "  and {left} more tenants with less memory");
    }
    if let Some(root) = now.tenants.first().filter(|root| !root.generations.is_empty()) {
        let ages = root.generations.iter().map(|age| {
            let bytes = size(age.anon_bytes + age.file_bytes);
            if age.age_ns == 0 {
                bytes
            } else {
                format!("{bytes} ({:.0} s)", age.age_ns as f64 / 1e9)
            }
        });
        let _ =
            writeln!(text, "  by age, the youngest first: {}", ages.collect::<Vec<_>>().join(", "));
    }
    for tenant in now.tenants.iter().filter(|tenant| !tenant.files.is_empty()).take(TENANTS) {
        let more = tenant.files.len().saturating_sub(FILES);
        let named = tenant.files.iter().take(FILES).map(|file| printable(file));
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let _ = writeln!(
            text,
            "  files of {}: {}{more}",
            printable(&tenant.path),
            named.collect::<Vec<_>>().join(", ")
        );
    }
}

/// The numbers that the table has a phrase for.
fn phrases<T: Numbers>(now: &T, before: &T, rates: Rates) -> String {
    let mut earlier = Vec::new();
    before.each(&mut |_, value| earlier.push(value.whole()));
    let (mut text, mut at) = (String::new(), 0);
    now.each(&mut |counter, value| {
        let (value, before) = (value.whole(), earlier[at]);
        at += 1;
        let Some(phrase) = counter.phrase else { return };
        if !text.is_empty() {
            text += if phrase.starts_with('(') { " " } else { ", " };
        }
        let shown = match counter.unit {
            Unit::Bytes => rates.bytes(value, before),
            Unit::Time => rates.waiting(value, before),
            Unit::Events | Unit::Pages | Unit::Share => rates.count(value, before),
        };
        text += &phrase.replace("{}", &shown);
    });
    text
}

/// How many reads of pages missed, through views.
fn hits(text: &mut String, now: &PagerStatus, before: &PagerStatus) {
    if let Some(ratio) = now.stat.hit_ratio_since(&before.stat) {
        let _ = writeln!(text, "  {:.2} % of the reads of pages missed", 100.0 * (1.0 - ratio));
    }
}

fn row(now: &TenantStatus, before: &TenantStatus, rates: Rates) -> [String; 9] {
    let (path, limit) = (printable(&now.path), now.limit_bytes());
    let (now, before) = (&now.stat, &before.stat);
    [
        path,
        size(now.usage_bytes),
        limit.map_or_else(|| "-".into(), size),
        size(now.swap_bytes),
        size(now.dirty_bytes),
        rates.count(now.faults, before.faults),
        rates.count(now.refaults, before.refaults),
        rates.count(now.evicted, before.evicted),
        rates.waiting(now.stall_some_ns, before.stall_some_ns),
    ]
}

/// All processes, a line for each, the most memory first. `before`: an earlier look.
#[must_use]
pub fn processes(now: &[Status], before: &[Status]) -> String {
    let sum = |status: &Status, of: fn(&TenantStatus) -> u64| -> u64 {
        status.pagers.iter().filter_map(|pager| pager.tenants.first()).map(of).sum()
    };
    let mut sorted: Vec<&Status> = now.iter().collect();
    sorted.sort_by_key(|status| std::cmp::Reverse(sum(status, |root| root.stat.usage_bytes)));
    let rows: Vec<[String; 9]> = sorted
        .into_iter()
        .map(|status| {
            let old = before.iter().find(|old| old.pid == status.pid);
            let rates = Rates::between(status, old);
            let none = Status::default();
            let old = old.filter(|_| rates.seconds.is_some()).unwrap_or(&none);
            let count = |of: fn(&TenantStatus) -> u64| rates.count(sum(status, of), sum(old, of));
            let waited = rates.waiting(
                sum(status, |root| root.stat.stall_some_ns),
                sum(old, |root| root.stat.stall_some_ns),
            );
            [
                status.pid.to_string(),
                printable(&status.program),
                size(sum(status, |root| root.stat.usage_bytes)),
                size(status.pagers.iter().filter_map(PagerStatus::limit_bytes).sum()),
                size(sum(status, |root| root.stat.swap_bytes)),
                count(|root| root.stat.faults),
                count(|root| root.stat.refaults),
                count(|root| root.stat.evicted),
                waited,
            ]
        })
        .collect();
    let mut text = String::new();
    let heads =
        ["pid", "program", "usage", "max", "swap", "faults", "refaults", "evicted", "waited"];
    table(&mut text, "", &heads, &rows);
    text
}

/// Columns as wide as need be: the first words to the left, figures to the right.
fn table<const N: usize>(text: &mut String, margin: &str, heads: &[&str; N], rows: &[[String; N]]) {
    let width = |at: usize| {
        let cells = rows.iter().map(|row| row[at].chars().count());
        cells.chain([heads[at].len()]).max().unwrap_or_default()
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let words =
        heads.iter().take_while(|head| ["tenant", "pid", "program"].contains(*head)).count();
    let mut line = |cells: [&str; N]| {
        text.push_str(margin);
        for (at, cell) in cells.into_iter().enumerate() {
            let (width, gap) = (widths[at], if at == 0 { "" } else { "  " });
            let _ = if at < words {
                write!(text, "{gap}{cell:<width$}")
            } else {
                write!(text, "{gap}{cell:>width$}")
            };
        }
        text.push('\n');
    };
    line(*heads);
    for row in rows {
        line(std::array::from_fn(|at| row[at].as_str()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowtide_status::TenantStat;

    fn status(written_ns: u64, faults: u64) -> Status {
        let tenant = TenantStatus {
            path: "/".into(),
            stat: TenantStat {
                usage_bytes: 3 << 20,
                max_bytes: Some(8 << 20),
                faults,
                stall_some_ns: faults * 1_000_000,
                ..TenantStat::default()
            },
            files: vec!["/data/a".into(), "/data/\u{1b}[2J".into()],
            ..TenantStatus::default()
        };
        let pager =
            PagerStatus { policy: "mglru".into(), tenants: vec![tenant], ..PagerStatus::default() };
        Status {
            pid: 17,
            program: "search".into(),
            origin: Origin::Run,
            written_ns,
            pagers: vec![pager],
            ..Status::default()
        }
    }

    #[test]
    fn counts_are_shown_in_all_and_with_an_earlier_look_as_rates() {
        let (before, now) = (status(1_000_000_000, 100), status(3_000_000_000, 500));
        let named = Status { program: "\u{1b}]0;x\u{7}".into(), ..status(1, 1) };
        assert!(process(&named, None).starts_with("?]0;x? (17), "));
        let text = process(&now, None);
        assert!(text.starts_with("search (17), under lowtide run, as it was "), "{text}");
        let row = |text: &str| -> Vec<String> {
            let line = text.lines().find(|line| line.trim_start().starts_with("/ ")).unwrap();
            line.split("  ").map(str::trim).filter(|c| !c.is_empty()).map(str::to_owned).collect()
        };
        assert_eq!(row(&text)[1..3], ["3M", "8M"]);
        assert_eq!(row(&text)[5], "500");
        assert_eq!(row(&text)[8], "0.5 s");
        let rates = row(&process(&now, Some(&before)));
        assert_eq!(rates[5], "200/s", "400 in two seconds");
        assert_eq!(rates[8], "20.0 %");
        assert!(text.contains("files of /: /data/a, /data/?[2J"), "{text}");
    }

    #[test]
    fn all_processes_have_a_line_the_largest_first() {
        let (mut small, large) = (status(1, 1), status(1, 1));
        small.pid = 18;
        let mut auto = small.pagers[0].tenants[0].clone();
        (auto.path, auto.stat.high_bytes) = ("/run-0".into(), Some(5 << 20));
        auto.stat.usage_bytes = 1;
        small.pagers[0].tenants.push(auto);
        small.pagers[0].tenants[0].stat.usage_bytes = 1;
        let text = processes(&[small, large], &[]);
        let pids: Vec<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
        assert_eq!(pids, ["pid", "17", "18"], "{text}");
        assert!(text.contains("8M") && text.contains("5M"), "the limit that is set now: {text}");
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([0.4, 9999.0, 12_345.0, 3e9].map(number), ["0", "9999", "12k", "3000M"]);
    }
}
