//! What a column shows, how wide it is, and how it sorts.
//!
//! A list has more columns than a small terminal has room for. Columns come in by importance until
//! the width is used up; the order on the screen is another one. What is left goes to names and
//! bars, which profit from it.

use std::cmp::Ordering;

use lowtide_report::table::memory;
use lowtide_status::Origin;

use super::rows::Row;

/// Blanks between two columns.
const GAP: usize = 1;

/// A column of one list or of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    Pid,
    Name,
    Way,
    Policy,
    Used,
    Max,
    Bar,
    Peak,
    File,
    Anon,
    Swap,
    Dirty,
    Faults,
    Refaults,
    Evicted,
    Scanned,
    Stall,
    Full,
    Hit,
    Read,
    Write,
    Tenants,
}

use Column::*;

/// Columns of the list of processes, from left to right.
pub(crate) const PROCESSES: &[Column] = &[
    Pid, Name, Way, Policy, Used, Max, Bar, Peak, Swap, Faults, Refaults, Evicted, Scanned, Stall,
    Full, Hit, Read, Write, Dirty, Tenants,
];
const PROCESSES_BY_IMPORTANCE: &[Column] = &[
    Pid, Name, Used, Faults, Stall, Max, Refaults, Bar, Hit, Read, Write, Dirty, Policy, Way,
    Evicted, Peak, Tenants, Full, Swap, Scanned,
];
/// Columns of the list of tenants, from left to right.
pub(crate) const TENANTS: &[Column] = &[
    Name, Used, Max, Bar, Peak, File, Anon, Swap, Dirty, Faults, Refaults, Evicted, Scanned, Stall,
    Full, Hit,
];
const TENANTS_BY_IMPORTANCE: &[Column] = &[
    Name, Used, Faults, Stall, Max, Refaults, Bar, Hit, Dirty, File, Anon, Evicted, Swap, Peak,
    Full, Scanned,
];

/// How lowtide came into a process, in the word of the table.
pub(crate) const fn way(origin: Origin) -> &'static str {
    match origin {
        Origin::Library => "library",
        Origin::Run => "run",
        Origin::Python => "python",
    }
}

impl Column {
    /// Its title. `is_tenant` distinguishes the two lists.
    pub(crate) const fn title(self, is_tenant: bool) -> &'static str {
        match self {
            Pid => "PID",
            Name if is_tenant => "TENANT",
            Name => "PROGRAM",
            Way => "WAY",
            Policy => "POLICY",
            Used => "USED",
            Max => "MAX",
            Bar => "USE",
            Peak => "PEAK",
            File => "FILE",
            Anon => "ANON",
            Swap => "SWAP",
            Dirty => "DIRTY",
            Faults => "FAULT/s",
            Refaults => "REFLT/s",
            Evicted => "EVICT/s",
            Scanned => "SCAN/s",
            Stall => "STALL",
            Full => "FULL",
            Hit => "HIT",
            Read => "RD/s",
            Write => "WR/s",
            Tenants => "TEN",
        }
    }

    const fn width_min(self, is_tenant: bool) -> usize {
        match self {
            Name if is_tenant => 16,
            Name => 10,
            Way | Pid | Faults | Refaults | Evicted | Scanned => 7,
            Policy => 9,
            Bar => 6,
            Tenants => 4,
            _ => 5,
        }
    }

    /// How wide it may become where there is room.
    const fn width_max(self, is_tenant: bool) -> usize {
        match self {
            Name if is_tenant => 48,
            Name => 16,
            Bar => 24,
            Policy => 16,
            _ => self.width_min(is_tenant),
        }
    }

    /// Whether it is text, and so begins at the left.
    pub(crate) const fn is_text(self) -> bool {
        matches!(self, Name | Way | Policy | Bar)
    }

    /// Whether it sorts from A to Z: numbers begin with the largest.
    pub(crate) const fn sorts_upwards(self) -> bool {
        matches!(self, Pid | Name | Way | Policy)
    }

    /// What it shows of a row. A bar is drawn elsewhere.
    pub(crate) fn text(self, row: &Row) -> String {
        let of = &row.measures;
        match self {
            Pid => row.pid.to_string(),
            Name => row.name.clone(),
            Way => row.way.to_owned(),
            Policy => row.policy.clone(),
            Used => memory(of.used),
            Max => of.max.map_or("-".into(), memory),
            Bar => of.max.map_or("-".into(), |max| percent(Some(used_percent(of.used, max)))),
            Peak => memory(of.peak),
            File => memory(of.file),
            Anon => memory(of.anon),
            Swap => memory(of.swap),
            Dirty => memory(of.dirty),
            Faults => count(of.faults),
            Refaults => count(of.refaults),
            Evicted => count(of.evicted),
            Scanned => count(of.scanned),
            Stall => percent(of.stall),
            Full => percent(of.full),
            Hit => percent(of.hit),
            Read => of.read.map_or("-".into(), |bytes| memory(bytes as u64)),
            Write => of.write.map_or("-".into(), |bytes| memory(bytes as u64)),
            Tenants => row.tenants.to_string(),
        }
    }

    /// How two rows sort: text upwards, numbers downwards, and what is not known last.
    pub(crate) fn compare(self, one: &Row, other: &Row) -> Ordering {
        match self {
            Pid => one.pid.cmp(&other.pid),
            Name | Way | Policy => self.text(one).cmp(&self.text(other)),
            _ => other_first(self.number(one), self.number(other)),
        }
    }

    fn number(self, row: &Row) -> Option<f64> {
        let of = &row.measures;
        match self {
            Used => Some(of.used as f64),
            Max => of.max.map(|max| max as f64),
            Bar => of.max.map(|max| used_percent(of.used, max)),
            Peak => Some(of.peak as f64),
            File => Some(of.file as f64),
            Anon => Some(of.anon as f64),
            Swap => Some(of.swap as f64),
            Dirty => Some(of.dirty as f64),
            Faults => of.faults,
            Refaults => of.refaults,
            Evicted => of.evicted,
            Scanned => of.scanned,
            Stall => of.stall,
            Full => of.full,
            Hit => of.hit,
            Read => of.read,
            Write => of.write,
            Tenants => Some(row.tenants as f64),
            Pid | Name | Way | Policy => None,
        }
    }
}

/// The larger number first.
fn other_first(one: Option<f64>, other: Option<f64>) -> Ordering {
    let of = |number: Option<f64>| number.unwrap_or(f64::NEG_INFINITY);
    of(other).total_cmp(&of(one))
}

/// Usage of a limit, in percent.
pub(crate) fn used_percent(used: u64, max: u64) -> f64 {
    if max == 0 { 100.0 } else { used as f64 / max as f64 * 100.0 }
}

/// A rate in at most five characters.
pub(crate) fn count(rate: Option<f64>) -> String {
    let Some(rate) = rate else { return "-".into() };
    match rate {
        0.0 => "0".into(),
        rate if rate < 0.05 => "<0.1".into(),
        rate if rate < 9.95 => format!("{rate:.1}"),
        rate if rate < 9999.5 => format!("{rate:.0}"),
        rate if rate < 99_950.0 => format!("{:.1}k", rate / 1e3),
        rate if rate < 999_500.0 => format!("{:.0}k", rate / 1e3),
        rate if rate < 99_950_000.0 => format!("{:.1}M", rate / 1e6),
        rate => format!("{:.0}M", rate / 1e6),
    }
}

/// A share in at most five characters.
pub(crate) fn percent(share: Option<f64>) -> String {
    match share {
        None => "-".into(),
        Some(0.0) => "0%".into(),
        Some(share) if share < 0.05 => "<0.1%".into(),
        Some(share) if share < 99.95 => format!("{share:.1}%"),
        Some(share) => format!("{share:.0}%"),
    }
}

/// A column that is shown, and its width.
pub(crate) type Shown = (Column, usize);

/// The columns that fit into a width, from left to right.
pub(crate) fn fit(is_tenant: bool, width: usize) -> Vec<Shown> {
    let (order, important) = match is_tenant {
        true => (TENANTS, TENANTS_BY_IMPORTANCE),
        false => (PROCESSES, PROCESSES_BY_IMPORTANCE),
    };
    let mut left = width + GAP;
    let mut chosen = Vec::new();
    for &column in important {
        let needed = column.width_min(is_tenant) + GAP;
        if needed > left {
            break;
        }
        left -= needed;
        chosen.push(column);
    }
    let shown = order.iter().copied().filter(|column| chosen.contains(column));
    let mut shown: Vec<Shown> = shown.map(|column| (column, column.width_min(is_tenant))).collect();
    for wanted in [Name, Bar, Policy] {
        if let Some((_, width)) = shown.iter_mut().find(|(column, _)| *column == wanted) {
            let more = left.min(wanted.width_max(is_tenant) - *width);
            *width += more;
            left -= more;
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eighty_columns_have_what_is_needed_and_two_hundred_have_all() {
        let names = |is_tenant, width| -> Vec<Column> {
            fit(is_tenant, width).into_iter().map(|(column, _)| column).collect()
        };
        let needed = [Pid, Name, Used, Max, Bar, Faults, Refaults, Stall, Hit, Read, Write];
        assert_eq!(names(false, 79), needed);
        assert_eq!(
            names(true, 79),
            [Name, Used, Max, Bar, File, Dirty, Faults, Refaults, Stall, Hit]
        );
        assert_eq!(names(false, 199), PROCESSES);
        assert_eq!(names(true, 199), TENANTS);
    }

    #[test]
    fn columns_never_exceed_the_width() {
        for is_tenant in [false, true] {
            for width in 0..250 {
                let shown = fit(is_tenant, width);
                let used: usize = shown.iter().map(|(_, width)| width + GAP).sum();
                assert!(used <= width + GAP, "{used} of {width}");
            }
        }
    }

    #[test]
    fn rates_and_shares_are_short() {
        for (rate, text) in [
            (0.0, "0"),
            (0.01, "<0.1"),
            (3.25, "3.2"),
            (9.99, "10"),
            (9999.0, "9999"),
            (12_345.0, "12.3k"),
            (123_456.0, "123k"),
            (1_234_567.0, "1.2M"),
            (123_456_789.0, "123M"),
        ] {
            assert_eq!(count(Some(rate)), text);
        }
        let shares = [0.0, 0.01, 7.25, 99.94, 99.99, 100.0].map(|share| percent(Some(share)));
        assert_eq!(shares, ["0%", "<0.1%", "7.2%", "99.9%", "100%", "100%"]);
        assert_eq!((count(None), percent(None)), ("-".into(), "-".into()));
    }

    #[test]
    fn all_columns_of_a_list_have_an_importance() {
        for (order, important) in
            [(PROCESSES, PROCESSES_BY_IMPORTANCE), (TENANTS, TENANTS_BY_IMPORTANCE)]
        {
            assert_eq!(order.len(), important.len());
            assert!(order.iter().all(|column| important.contains(column)));
        }
    }
}
