//! The processes that are known, from sample to sample.
//!
//! A process is named by its number and by when it started: numbers are used again. One that is
//! missing in a sample has ended. It stays for a few seconds and says so, so that a reader who
//! looks at it sees what became of it. One whose page cannot be read keeps its last numbers.

use std::collections::BTreeMap;

use lowtide_status::{PagerStatus, Status, TenantStatus};

use super::measures::{self, Before, Measures};
use super::sample::{Sample, Seen};
use super::trail::Trail;

/// How long a process that has ended is shown.
const LINGER_NS: u64 = 5_000_000_000;
/// A page that is older than this is not written any more, though its process is there.
const SILENT_NS: u64 = 5_000_000_000;

/// A process: its number, and when it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) pid: u32,
    pub(crate) start_ticks: u64,
}

/// What is known of a process apart from its numbers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum State {
    /// It writes its page.
    Live,
    /// Its page has not been written for these seconds.
    Silent(u64),
    /// Its page cannot be read, and why.
    Unreadable(String),
    /// It is gone, since this sample.
    Ended(u64),
}

/// A tenant of a process, apart from what its page says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tenant {
    pub(crate) measures: Measures,
    pub(crate) trail: Trail,
}

/// A tenant's place: the pager, and its path.
pub(crate) type Place = (usize, String);

/// A process.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) key: Key,
    pub(crate) state: State,
    /// The last page that was read.
    pub(crate) status: Status,
    pub(crate) measures: Measures,
    pub(crate) trail: Trail,
    pub(crate) tenants: BTreeMap<Place, Tenant>,
}

impl Process {
    fn new(key: Key) -> Self {
        Self {
            key,
            state: State::Live,
            status: Status::default(),
            measures: Measures::default(),
            trail: Trail::default(),
            tenants: BTreeMap::new(),
        }
    }

    /// Takes the next page, and makes rates of what it counts. The same page again says nothing.
    fn take(&mut self, status: &Status) {
        let last = self.status.written_ns;
        if !self.tenants.is_empty() && status.written_ns == last {
            return;
        }
        let seconds = status.written_ns.saturating_sub(last) as f64 / 1e9;
        let before = (last > 0).then_some(Before { was: &self.status, seconds });
        self.measures = measures::of_process(status, before);
        let mut tenants = BTreeMap::new();
        for (at, pager) in status.pagers.iter().enumerate() {
            let before = before.and_then(|before| before.part(|was| was.pagers.get(at)));
            let was: BTreeMap<&str, &TenantStatus> =
                before.iter().flat_map(|before| by_path(before.was)).collect();
            for now in &pager.tenants {
                let place = (at, now.path.clone());
                let mut tenant = self.tenants.remove(&place).unwrap_or_default();
                let before =
                    before.and_then(|before| before.part(|_| was.get(now.path.as_str()).copied()));
                tenant.measures = measures::of_tenant(now, before);
                if before.is_some() {
                    tenant.trail.add(status.written_ns, &tenant.measures);
                }
                tenants.insert(place, tenant);
            }
        }
        if before.is_some() {
            self.trail.add(status.written_ns, &self.measures);
        }
        self.tenants = tenants;
        self.status = status.clone();
    }

    /// The pager and the page's words about one of its tenants.
    pub(crate) fn find(&self, place: &Place) -> Option<(&PagerStatus, &TenantStatus)> {
        let pager = self.status.pagers.get(place.0)?;
        let tenant = pager.tenants.iter().find(|tenant| tenant.path == place.1)?;
        Some((pager, tenant))
    }

    /// The limit that a tenant meets first: the smallest of its own and those above it.
    pub(crate) fn limit(&self, place: &Place) -> Option<u64> {
        let pager = self.status.pagers.get(place.0)?;
        let above = pager.tenants.iter().filter(|tenant| is_within(&place.1, &tenant.path));
        above.filter_map(|tenant| tenant.stat.max_bytes).min()
    }

    /// The policies of its pagers, each once.
    pub(crate) fn policy(&self) -> String {
        let mut all: Vec<&str> =
            self.status.pagers.iter().map(|pager| pager.policy.as_str()).collect();
        all.dedup();
        all.join(",")
    }
}

fn by_path(pager: &PagerStatus) -> impl Iterator<Item = (&str, &TenantStatus)> {
    pager.tenants.iter().map(|tenant| (tenant.path.as_str(), tenant))
}

/// Whether a tenant is another one, or below it.
pub(crate) fn is_within(path: &str, above: &str) -> bool {
    let above = above.trim_end_matches('/');
    path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The processes.
#[derive(Debug, Default)]
pub(crate) struct Processes {
    all: BTreeMap<Key, Process>,
    /// When the last sample was taken.
    at_ns: u64,
}

impl Processes {
    /// Takes the next sample.
    pub(crate) fn take(&mut self, sample: &Sample) {
        self.at_ns = sample.at_ns;
        let mut seen = Vec::new();
        for process in &sample.processes {
            seen.push(self.see(process));
        }
        for (key, process) in &mut self.all {
            if seen.contains(key) {
                continue;
            }
            if !matches!(process.state, State::Ended(_)) {
                process.state = State::Ended(sample.at_ns);
            }
        }
        self.all.retain(|_, process| match process.state {
            State::Ended(since) => sample.at_ns.saturating_sub(since) < LINGER_NS,
            _ => true,
        });
    }

    fn see(&mut self, seen: &Seen) -> Key {
        if let Some(status) = &seen.status {
            let key = Key { pid: seen.pid, start_ticks: status.start_ticks };
            let process = self.all.entry(key).or_insert_with(|| Process::new(key));
            process.take(status);
            let silent = self.at_ns.saturating_sub(status.written_ns);
            process.state = match silent > SILENT_NS && status.written_ns > 0 {
                true => State::Silent(silent / 1_000_000_000),
                false => State::Live,
            };
            return key;
        }
        let of_pid = self.all.values().filter(|process| process.key.pid == seen.pid);
        let known = of_pid.filter(|process| !matches!(process.state, State::Ended(_)));
        let key = known.map(|process| process.key).next_back();
        let key = key.unwrap_or(Key { pid: seen.pid, start_ticks: 0 });
        let process = self.all.entry(key).or_insert_with(|| Process::new(key));
        process.state = State::Unreadable(seen.error.clone().unwrap_or_default());
        key
    }

    /// All of them, by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Process> {
        self.all.values()
    }

    /// One of them.
    pub(crate) fn get(&self, key: Key) -> Option<&Process> {
        self.all.get(&key)
    }

    /// The latest of this number.
    pub(crate) fn with_pid(&self, pid: u32) -> Option<&Process> {
        self.iter().filter(|process| process.key.pid == pid).last()
    }

    /// Those that have not ended.
    pub(crate) fn count(&self) -> usize {
        self.iter().filter(|process| !matches!(process.state, State::Ended(_))).count()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use lowtide_status::TenantStat;

    const SECOND: u64 = 1_000_000_000;

    /// A page of a process with one pager and these tenants.
    pub(crate) fn page(pid: u32, second: u64, tenants: &[(&str, u64)]) -> Status {
        let tenant = |&(path, faults): &(&str, u64)| TenantStatus {
            path: path.into(),
            stat: TenantStat {
                faults,
                usage_bytes: faults << 20,
                max_bytes: (path == "/").then_some(1 << 30),
                ..TenantStat::default()
            },
            ..TenantStatus::default()
        };
        Status {
            pid,
            start_ticks: 5,
            program: format!("program-{pid}"),
            written_ns: second * SECOND,
            pagers: vec![PagerStatus {
                policy: "mglru".into(),
                tenants: tenants.iter().map(tenant).collect(),
                ..PagerStatus::default()
            }],
            ..Status::default()
        }
    }

    /// A sample of these pages.
    pub(crate) fn sample(second: u64, pages: Vec<Status>) -> Sample {
        let processes = pages.into_iter().map(Seen::page).collect();
        Sample { at_ns: second * SECOND, processes }
    }

    fn only(processes: &Processes) -> &Process {
        assert_eq!(processes.iter().count(), 1);
        processes.iter().next().unwrap()
    }

    #[test]
    fn rates_come_from_two_pages_and_stay_until_there_is_another() {
        let mut processes = Processes::default();
        processes.take(&sample(1, vec![page(7, 1, &[("/", 100), ("/a", 10)])]));
        assert_eq!(only(&processes).measures.faults, None);
        processes.take(&sample(3, vec![page(7, 3, &[("/", 140), ("/a", 20)])]));
        let rate = |processes: &Processes| {
            let process = only(processes);
            let tenant = &process.tenants[&(0, "/a".to_owned())];
            (process.measures.faults, tenant.measures.faults, tenant.trail.last(9).count())
        };
        assert_eq!(rate(&processes), (Some(20.0), Some(5.0), 1));
        processes.take(&sample(4, vec![page(7, 3, &[("/", 140), ("/a", 20)])]));
        assert_eq!(rate(&processes), (Some(20.0), Some(5.0), 1), "the same page again");
    }

    #[test]
    fn a_process_that_ends_says_so_and_is_forgotten_after_some_seconds() {
        let mut processes = Processes::default();
        processes.take(&sample(1, vec![page(7, 1, &[("/", 1)])]));
        processes.take(&sample(2, vec![]));
        assert_eq!(only(&processes).state, State::Ended(2 * SECOND));
        assert_eq!(processes.count(), 0);
        processes.take(&sample(6, vec![]));
        assert_eq!(only(&processes).state, State::Ended(2 * SECOND));
        processes.take(&sample(7, vec![]));
        assert_eq!(processes.iter().count(), 0);
    }

    #[test]
    fn a_number_that_is_used_again_is_another_process() {
        let mut processes = Processes::default();
        processes.take(&sample(1, vec![page(7, 1, &[("/", 100)])]));
        let again = Status { start_ticks: 9, ..page(7, 2, &[("/", 300)]) };
        processes.take(&sample(2, vec![again]));
        let states: Vec<_> =
            processes.iter().map(|process| (&process.state, process.measures.faults)).collect();
        assert_eq!(states, [(&State::Ended(2 * SECOND), None), (&State::Live, None)]);
        assert_eq!(processes.with_pid(7).map(|process| process.key.start_ticks), Some(9));
    }

    #[test]
    fn a_page_that_cannot_be_read_keeps_the_numbers_before_and_says_why() {
        let mut processes = Processes::default();
        processes.take(&sample(1, vec![page(7, 1, &[("/", 100)])]));
        let unreadable = Seen::unreadable(7, "version 9".into());
        processes.take(&Sample { at_ns: 2 * SECOND, processes: vec![unreadable] });
        let process = only(&processes);
        assert_eq!(process.state, State::Unreadable("version 9".into()));
        assert_eq!(process.measures.used, 100 << 20);
    }

    #[test]
    fn a_process_that_does_not_write_its_page_is_silent() {
        let mut processes = Processes::default();
        processes.take(&sample(20, vec![page(7, 1, &[("/", 100)])]));
        assert_eq!(only(&processes).state, State::Silent(19));
    }

    #[test]
    fn the_limit_of_a_tenant_is_the_smallest_above_it() {
        let mut status = page(7, 1, &[("/", 1), ("/a", 1), ("/a/b", 1), ("/ab", 1)]);
        status.pagers[0].tenants[1].stat.max_bytes = Some(1 << 20);
        let mut processes = Processes::default();
        processes.take(&sample(1, vec![status]));
        let limit = |path: &str| only(&processes).limit(&(0, path.to_owned()));
        assert_eq!(limit("/a/b"), Some(1 << 20));
        assert_eq!(limit("/ab"), Some(1 << 30));
        assert_eq!(limit("/"), Some(1 << 30));
    }
}
