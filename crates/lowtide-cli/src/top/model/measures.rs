//! What a row shows of a process or of a tenant, as numbers: sizes as they are, and counters as
//! rates between two pages of the same process.
//!
//! The time between two pages is that between their `written_ns`, not that between two looks at
//! them: a page is written about once a second, whatever the interval of the samples. A counter
//! that became smaller has begun again (a tenant of the same name was created), and has no rate
//! until the next page.

use lowtide_status::{Curve, Origin, PagerStatus, Status, TenantStatus};

/// Sizes in bytes, rates per second, shares in percent. `None` is what is not known (yet).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Measures {
    pub(crate) used: u64,
    pub(crate) max: Option<u64>,
    pub(crate) peak: u64,
    pub(crate) swap: u64,
    pub(crate) file: u64,
    pub(crate) anon: u64,
    pub(crate) dirty: u64,
    pub(crate) faults: Option<f64>,
    pub(crate) refaults: Option<f64>,
    pub(crate) scanned: Option<f64>,
    pub(crate) evicted: Option<f64>,
    /// Share of the time in which some thread waited for memory.
    pub(crate) stall: Option<f64>,
    /// Share of the time in which all threads waited for memory.
    pub(crate) full: Option<f64>,
    /// Share of the accesses that found their page in memory.
    pub(crate) hit: Option<f64>,
    /// Bytes from devices and to devices; only of processes.
    pub(crate) read: Option<f64>,
    pub(crate) write: Option<f64>,
}

/// A page that was there before, and the seconds from its writing to that of the present one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before<T> {
    pub(crate) was: T,
    pub(crate) seconds: f64,
}

impl<T> Before<T> {
    /// The same for a part of it.
    pub(crate) fn part<U>(self, part: impl FnOnce(T) -> Option<U>) -> Option<Before<U>> {
        let seconds = self.seconds;
        part(self.was).map(|was| Before { was, seconds })
    }
}

/// The root of a pager: the first of its tenants.
fn root(pager: &PagerStatus) -> Option<&TenantStatus> {
    pager.tenants.first()
}

/// The growth of a counter per second.
fn rate<T>(now: u64, before: Option<&Before<T>>, of: impl Fn(&T) -> u64) -> Option<f64> {
    let before = before.filter(|before| before.seconds > 0.0)?;
    let grown = now.checked_sub(of(&before.was))?;
    Some(grown as f64 / before.seconds)
}

/// The share of the time, in percent, that a counter of nanoseconds grew by.
fn share<T>(now: u64, before: Option<&Before<T>>, of: impl Fn(&T) -> u64) -> Option<f64> {
    rate(now, before, of).map(|ns| (ns / 1e7).min(100.0))
}

/// The share of hits that a curve knows: its own misses are exact.
fn curve_hits(curve: &Curve) -> Option<f64> {
    (curve.accesses > 0.0).then(|| (1.0 - curve.missed / curve.accesses).clamp(0.0, 1.0) * 100.0)
}

/// Of a tenant.
pub(crate) fn of_tenant(now: &TenantStatus, before: Option<Before<&TenantStatus>>) -> Measures {
    let before = before.as_ref();
    Measures {
        used: now.stat.usage_bytes,
        max: now.limit_bytes(),
        peak: now.stat.peak_bytes,
        swap: now.stat.swap_bytes,
        file: now.stat.file_bytes,
        anon: now.stat.anon_bytes,
        dirty: now.stat.dirty_bytes + now.stat.writeback_bytes,
        faults: rate(now.stat.faults, before, |was| was.stat.faults),
        refaults: rate(now.stat.refaults, before, |was| was.stat.refaults),
        scanned: rate(now.stat.scanned, before, |was| was.stat.scanned),
        evicted: rate(now.stat.evicted, before, |was| was.stat.evicted),
        stall: share(now.stat.stall_some_ns, before, |was| was.stat.stall_some_ns),
        full: share(now.stat.stall_full_ns, before, |was| was.stat.stall_full_ns),
        hit: now.curve.as_ref().and_then(curve_hits),
        read: None,
        write: None,
    }
}

/// Adds two numbers of which one may be unknown.
fn add(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one + other),
        (one, other) => one.or(other),
    }
}

/// The larger of two numbers of which one may be unknown.
fn larger(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    one.into_iter().chain(other).reduce(f64::max)
}

/// Pagers have budgets of their own. Their sizes and rates add up; of their stalls the largest
/// counts, since they may be at the same time.
fn with(sum: Measures, pager: Measures) -> Measures {
    Measures {
        used: sum.used + pager.used,
        max: match (sum.max, pager.max) {
            (Some(sum), Some(pager)) => Some(sum.saturating_add(pager)),
            _ => None,
        },
        peak: sum.peak + pager.peak,
        swap: sum.swap + pager.swap,
        file: sum.file + pager.file,
        anon: sum.anon + pager.anon,
        dirty: sum.dirty + pager.dirty,
        faults: add(sum.faults, pager.faults),
        refaults: add(sum.refaults, pager.refaults),
        scanned: add(sum.scanned, pager.scanned),
        evicted: add(sum.evicted, pager.evicted),
        stall: larger(sum.stall, pager.stall),
        full: larger(sum.full, pager.full),
        hit: sum.hit.or(pager.hit),
        read: None,
        write: None,
    }
}

/// The share of reads since the page before that found their pages in memory. A process that only
/// follows pointers has no hits that could be counted, and so no such share: under `lowtide run`
/// the reads are those that lowtide makes ahead.
fn hits(now: &Status, before: Option<&Before<&Status>>) -> Option<f64> {
    if now.origin == Origin::Run {
        return None;
    }
    let sum = |status: &Status, of: fn(&PagerStatus) -> u64| status.pagers.iter().map(of).sum();
    let (hits, misses): (u64, u64) =
        (sum(now, |pager| pager.stat.hits), sum(now, |pager| pager.stat.misses));
    let was = before?.was;
    let hits_before: u64 = sum(was, |pager| pager.stat.hits);
    let misses_before: u64 = sum(was, |pager| pager.stat.misses);
    let found = hits.checked_sub(hits_before).filter(|_| hits > 0)? as f64;
    let all = found + misses.checked_sub(misses_before)? as f64;
    (all > 0.0).then(|| found / all * 100.0)
}

/// Of a process: of all its pagers together.
pub(crate) fn of_process(now: &Status, before: Option<Before<&Status>>) -> Measures {
    let of_pager = |(at, pager): (usize, &PagerStatus)| {
        let before = before.and_then(|before| before.part(|was| root(was.pagers.get(at)?)));
        let of_root = of_tenant(root(pager)?, before);
        Some(Measures { max: pager.limit_bytes(), ..of_root })
    };
    let pagers = now.pagers.iter().enumerate().filter_map(of_pager);
    let mut all = pagers.reduce(with).unwrap_or_default();
    let before = before.as_ref();
    all.hit = hits(now, before).or(all.hit);
    all.read = rate(now.stat.device_read_bytes, before, |was| was.stat.device_read_bytes);
    all.write = rate(now.stat.device_write_bytes, before, |was| was.stat.device_write_bytes);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowtide_status::TenantStat;

    fn tenant(faults: u64, stalled: u64) -> TenantStatus {
        TenantStatus {
            stat: TenantStat {
                usage_bytes: 10,
                max_bytes: Some(40),
                faults,
                stall_some_ns: stalled,
                ..TenantStat::default()
            },
            ..TenantStatus::default()
        }
    }

    fn process(tenants: &[TenantStatus], hits: u64, misses: u64) -> Status {
        let pager = |tenant: &TenantStatus| {
            let mut pager = PagerStatus { tenants: vec![tenant.clone()], ..PagerStatus::default() };
            (pager.stat.hits, pager.stat.misses) = (hits, misses);
            pager
        };
        Status { pagers: tenants.iter().map(pager).collect(), ..Status::default() }
    }

    #[test]
    fn counters_become_rates_over_the_time_between_the_pages() {
        let (was, now) = (tenant(100, 0), tenant(160, 500_000_000));
        let measures = of_tenant(&now, Some(Before { was: &was, seconds: 2.0 }));
        assert_eq!((measures.faults, measures.stall), (Some(30.0), Some(25.0)));
        assert_eq!(of_tenant(&now, None).faults, None, "one page has no rates");
    }

    #[test]
    fn a_counter_that_began_again_has_no_rate() {
        let (was, now) = (tenant(100, 0), tenant(3, 0));
        assert_eq!(of_tenant(&now, Some(Before { was: &was, seconds: 1.0 })).faults, None);
        assert_eq!(of_tenant(&now, Some(Before { was: &now, seconds: 0.0 })).faults, None);
    }

    #[test]
    fn a_process_is_the_sum_of_its_pagers_and_the_worst_of_their_stalls() {
        let was = process(&[tenant(0, 0), tenant(0, 0)], 0, 0);
        let now = process(&[tenant(10, 100_000_000), tenant(20, 400_000_000)], 30, 10);
        let measures = of_process(&now, Some(Before { was: &was, seconds: 1.0 }));
        assert_eq!((measures.used, measures.max), (20, Some(80)));
        assert_eq!((measures.faults, measures.stall), (Some(30.0), Some(40.0)));
        assert_eq!(measures.hit, Some(75.0));
    }

    #[test]
    fn a_process_shows_the_limit_that_is_set_now() {
        let mut now = process(&[tenant(0, 0)], 0, 0);
        let mut below = tenant(0, 0);
        (below.path, below.stat.high_bytes) = ("/run-0".into(), Some(30));
        now.pagers[0].tenants.push(below);
        assert_eq!(of_process(&now, None).max, Some(30));
    }

    #[test]
    fn pointers_alone_have_no_share_of_hits() {
        let was = process(&[tenant(0, 0)], 0, 0);
        let now = process(&[tenant(10, 0)], 0, 10);
        assert_eq!(of_process(&now, Some(Before { was: &was, seconds: 1.0 })).hit, None);
        let ahead = Status { origin: Origin::Run, ..process(&[tenant(10, 0)], 30, 10) };
        assert_eq!(of_process(&ahead, Some(Before { was: &was, seconds: 1.0 })).hit, None);
    }

    #[test]
    fn a_curve_gives_the_share_of_hits_of_a_tenant() {
        let curve = Curve { accesses: 200.0, missed: 50.0, ..Curve::default() };
        let now = TenantStatus { curve: Some(curve), ..TenantStatus::default() };
        assert_eq!(of_tenant(&now, None).hit, Some(75.0));
    }
}
