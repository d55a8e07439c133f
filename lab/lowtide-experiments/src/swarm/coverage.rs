//! What a swarm has been through: a row for everything that a plan can choose and that a run can
//! meet.
//!
//! A swarm that finds nothing proves nothing about what it never did; a row that is missing, or has
//! few runs, says so.

use std::collections::BTreeMap;
use std::fmt;

/// Runs in which something occurred, and how often in all, by group and name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Coverage {
    rows: BTreeMap<(&'static str, String), (u64, u64)>,
}

impl Coverage {
    /// Something occurred `times` times in a run; a row is made even for 0.
    pub(super) fn met(&mut self, group: &'static str, name: impl Into<String>, times: u64) {
        let row = self.rows.entry((group, name.into())).or_default();
        row.0 += u64::from(times > 0);
        row.1 += times;
    }

    /// Adds what another swarm has been through.
    pub(super) fn add(&mut self, other: &Self) {
        for (key, (runs, times)) in &other.rows {
            let row = self.rows.entry(key.clone()).or_default();
            row.0 += runs;
            row.1 += times;
        }
    }

    /// Every row: group, name, runs in which it occurred, times that it occurred in all.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str, u64, u64)> {
        self.rows
            .iter()
            .map(|((group, name), (runs, times))| (*group, name.as_str(), *runs, *times))
    }

    /// Times that something occurred in all; 0 for unknown names.
    #[must_use]
    pub fn times(&self, group: &str, name: &str) -> u64 {
        self.iter().find(|row| (row.0, row.1) == (group, name)).map_or(0, |row| row.3)
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<10} {:<30} {:>10} {:>16}", "", "", "runs", "times")?;
        for (group, name, runs, times) in self.iter() {
            writeln!(f, "{group:<10} {name:<30} {runs:>10} {times:>16}")?;
        }
        Ok(())
    }
}
