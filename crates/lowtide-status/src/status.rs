//! What a process says of itself.
//!
//! Counters grow from the beginning of the process: a reader takes differences. Sizes are in bytes,
//! times in nanoseconds unless the name says otherwise. Names are an interface: names may be added,
//! and none is renamed or changes its meaning while [`VERSION`] stays. A reader ignores names that
//! it does not know, and takes those that are missing as zero or absent.

use crate::curve::Curve;
use lowtide_core::counters::{ProcessStat, Stat, TenantStat};
use serde::{Deserialize, Serialize};

/// Of the format.
pub const VERSION: u32 = 1;

/// How lowtide came into the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// It is linked with the library.
    #[default]
    Library,
    /// It was started by `lowtide run`.
    Run,
    /// It imported the Python package.
    Python,
}

/// A process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// [`VERSION`] of the writer.
    pub version: u32,
    /// Version of lowtide.
    pub lowtide: String,
    /// The process.
    pub pid: u32,
    /// When it started, in clock ticks since the machine did (field 22 of `/proc/PID/stat`): with
    /// `pid` it names a process forever.
    pub start_ticks: u64,
    /// Its name, as in `/proc/PID/comm`.
    pub program: String,
    /// How lowtide came into it.
    pub origin: Origin,
    /// When this was written: nanoseconds since 1970.
    pub written_ns: u64,
    /// What the kernel counts for it.
    #[serde(flatten, with = "crate::numbers")]
    pub stat: ProcessStat,
    /// Its pagers; few processes have more than one.
    pub pagers: Vec<PagerStatus>,
}

/// A pager: a budget, and what it did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PagerStatus {
    /// Policy of the engine.
    pub policy: String,
    /// Bytes of a base page.
    pub page_bytes: u64,
    /// What it counts: of [`Stat`] the numbers that the table shows on pages.
    #[serde(flatten, with = "crate::numbers")]
    pub stat: Stat,
    /// The tenants: the root first, then by usage.
    pub tenants: Vec<TenantStatus>,
    /// Tenants that have no place here.
    pub tenants_left_out: u64,
}

/// A tenant, with those below it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TenantStatus {
    /// Its path, `/` for the root.
    pub path: String,
    /// What is counted for it.
    #[serde(flatten, with = "crate::numbers")]
    pub stat: TenantStat,
    /// Generations of a multi-gen LRU, the youngest first; active and inactive of a classical one.
    pub generations: Vec<Generation>,
    /// Some of its files.
    pub files: Vec<String>,
    /// How many misses there would be at other sizes.
    pub curve: Option<Curve>,
}

impl PagerStatus {
    /// The limit that all of it is kept below now: the root's, or, where its memory is that of the
    /// tenants below it, as under `lowtide run`, the sum of theirs, if that is less.
    #[must_use]
    pub fn limit_bytes(&self) -> Option<u64> {
        let (root, below) = self.tenants.split_first()?;
        let top = || below.iter().filter(|tenant| tenant.path.rfind('/') == Some(0));
        let usage: u64 = top().map(|tenant| tenant.stat.usage_bytes).sum();
        // They were not looked at in the same instant.
        let is_all = self.tenants_left_out == 0 && usage + usage / 16 >= root.stat.usage_bytes;
        let limits: Option<u64> = top().map(TenantStatus::limit_bytes).sum();
        let limits = limits.filter(|_| is_all && !below.is_empty());
        limits.into_iter().chain(root.limit_bytes()).min()
    }
}

impl TenantStatus {
    /// The limit that it is kept below now: `high`, which a limit that sets itself moves, or `max`.
    #[must_use]
    pub fn limit_bytes(&self) -> Option<u64> {
        self.stat.high_bytes.into_iter().chain(self.stat.max_bytes).min()
    }
}

/// Pages of about one age.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Generation {
    /// Nanoseconds since it was opened; 0 where there is no such time.
    pub age_ns: u64,
    /// Bytes of pages without a file.
    pub anon_bytes: u64,
    /// Bytes of pages of files.
    pub file_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(path: &str, usage_bytes: u64, max: u64, high: Option<u64>) -> TenantStatus {
        let (max_bytes, high_bytes) = (Some(max), high);
        let stat = TenantStat { usage_bytes, max_bytes, high_bytes, ..TenantStat::default() };
        TenantStatus { path: path.into(), stat, ..TenantStatus::default() }
    }

    #[test]
    fn a_limit_is_the_one_that_binds_now_of_a_tenant_and_of_all_of_them() {
        let auto = tenant("/run-0", 70, 400, Some(390));
        assert_eq!(auto.limit_bytes(), Some(390), "also where it is near the upper bound");
        let fixed = tenant("/run-1", 5, 50, None);
        assert_eq!(fixed.limit_bytes(), Some(50));
        let part = tenant("/run-0/file-0", 60, 10, None);
        let root = tenant("/", 75, 450, None);
        let tenants = vec![root, auto, fixed, part];
        let mut pager = PagerStatus { tenants, ..PagerStatus::default() };
        assert_eq!(pager.limit_bytes(), Some(440));
        pager.tenants[0].stat.usage_bytes = 79;
        assert_eq!(pager.limit_bytes(), Some(440), "a moment later");
        // The root has memory of its own, tenants are not shown, or one has no limit.
        pager.tenants[0].stat.usage_bytes = 90;
        assert_eq!(pager.limit_bytes(), Some(450));
        pager.tenants[0].stat.usage_bytes = 75;
        pager.tenants_left_out = 1;
        assert_eq!(pager.limit_bytes(), Some(450));
        pager.tenants_left_out = 0;
        pager.tenants[2].stat.max_bytes = None;
        assert_eq!(pager.limit_bytes(), Some(450));
        pager.tenants.truncate(1);
        assert_eq!(pager.limit_bytes(), Some(450), "a root alone");
        assert_eq!(PagerStatus::default().limit_bytes(), None);
    }
}
