//! Status pages as metrics, in the conventions of Prometheus. Feature `metrics`.
//!
//! The tables below are the list of all metrics; [`names`] has them as a scrape does. Labels are
//! `pid` and `program`, for pagers `pager` too (few processes have more than one: `0`), and
//! `tenant` for tenants. A limit that a tenant does not have is not there, so `usage / max` of a
//! tenant without a limit is no number and raises no alert.
//!
//! [`openmetrics`] and [`plain`] render some pages. A program that has a registry of its own
//! registers a [`Collector`]:
//!
//! ```
//! use lowtide_status::metrics::Collector;
//! use prometheus_client::registry::Registry;
//!
//! let mut registry = Registry::default();
//! let pages = || lowtide_status::read(std::process::id()).into_iter().collect();
//! registry.register_collector(Box::new(Collector::new(pages)));
//! ```

use crate::status::{PagerStatus, Status, TenantStatus};
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

/// The content type of [`openmetrics`].
pub const OPENMETRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The content type of [`plain`].
pub const PLAIN_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A value: counters begin at zero with the process and grow.
#[derive(Clone, Copy, Debug)]
enum Value {
    Count(u64),
    Seconds(u64),
    Size(u64),
    Share(f64),
    None,
}

use Value::{Count, Seconds, Share, Size};

/// What a kind of object has: the name, the type, what it means, and how it is read.
type Row<T> = (&'static str, MetricType, &'static str, fn(&T) -> Value);

const COUNTER: MetricType = MetricType::Counter;
const GAUGE: MetricType = MetricType::Gauge;

const PROCESS: &[Row<Status>] = &[
    (
        "lowtide_process_start_ticks",
        GAUGE,
        "Clock ticks from the start of the machine to that of \
        the process",
        |s| Size(s.start_ticks),
    ),
    (
        "lowtide_process_page_age_seconds",
        GAUGE,
        "Seconds since the process wrote its status \
        page, which it does every second",
        |s| Share(age(s)),
    ),
    (
        "lowtide_process_major_faults",
        COUNTER,
        "Page faults of the process that waited for a read",
        |s| Count(s.major_faults),
    ),
    (
        "lowtide_process_device_read_bytes",
        COUNTER,
        "Bytes that devices read for the process",
        |s| Count(s.device_read_bytes),
    ),
    (
        "lowtide_process_device_written_bytes",
        COUNTER,
        "Bytes that the process caused to be \
        written to devices",
        |s| Count(s.device_write_bytes),
    ),
];

const PAGER: &[Row<PagerStatus>] = &[
    ("lowtide_pager_resident_bytes", GAUGE, "Bytes of frames that have memory", |p| {
        Size(p.resident_bytes)
    }),
    ("lowtide_pager_metadata_bytes", GAUGE, "Bytes of tables, on top of the budget", |p| {
        Size(p.metadata_bytes)
    }),
    (
        "lowtide_pager_hits",
        COUNTER,
        "Reads of pages that found them in memory, estimated; \
        accesses through pointers are not counted",
        |p| Count(p.hits),
    ),
    ("lowtide_pager_misses", COUNTER, "Reads of pages that waited for the device", |p| {
        Count(p.misses)
    }),
    ("lowtide_pager_reads", COUNTER, "Transfers from files", |p| Count(p.reads)),
    ("lowtide_pager_read_bytes", COUNTER, "Bytes read from files", |p| Count(p.read_bytes)),
    ("lowtide_pager_writes", COUNTER, "Transfers to files", |p| Count(p.writes)),
    ("lowtide_pager_written_bytes", COUNTER, "Bytes written to files", |p| Count(p.write_bytes)),
    ("lowtide_pager_ahead_pages", COUNTER, "Pages that were read ahead", |p| Count(p.ahead_pages)),
    ("lowtide_pager_ahead_used_pages", COUNTER, "Pages that were read ahead and used", |p| {
        Count(p.ahead_used)
    }),
    (
        "lowtide_pager_ahead_wasted_pages",
        COUNTER,
        "Pages that were read ahead and evicted unused",
        |p| Count(p.ahead_wasted),
    ),
    (
        "lowtide_pager_throttled_seconds",
        COUNTER,
        "Seconds that threads slept because a tenant \
        was over a limit",
        |p| Seconds(p.throttled_ns),
    ),
    ("lowtide_pager_failed_pages", GAUGE, "Pages whose last write failed", |p| {
        Size(p.failed_pages)
    }),
    (
        "lowtide_pager_tenants_left_out",
        GAUGE,
        "Tenants for which the status page has no room",
        |p| Size(p.tenants_left_out),
    ),
];

const TENANT: &[Row<TenantStatus>] = &[
    ("lowtide_tenant_usage_bytes", GAUGE, "Bytes charged to the tenant and those below it", |t| {
        Size(t.usage_bytes)
    }),
    ("lowtide_tenant_peak_bytes", GAUGE, "The most bytes that were ever charged", |t| {
        Size(t.peak_bytes)
    }),
    ("lowtide_tenant_max_bytes", GAUGE, "The budget, where there is one", |t| limit(t.max_bytes)),
    (
        "lowtide_tenant_high_bytes",
        GAUGE,
        "Above it threads that charge evict first, where it is \
        set",
        |t| limit(t.high_bytes),
    ),
    ("lowtide_tenant_low_bytes", GAUGE, "Best-effort protection", |t| Size(t.low_bytes)),
    ("lowtide_tenant_min_bytes", GAUGE, "Hard protection", |t| Size(t.min_bytes)),
    ("lowtide_tenant_swap_bytes", GAUGE, "Bytes of pages in swap, before compression", |t| {
        Size(t.swap_bytes)
    }),
    ("lowtide_tenant_file_bytes", GAUGE, "Bytes of pages of files", |t| Size(t.file_bytes)),
    ("lowtide_tenant_anon_bytes", GAUGE, "Bytes of pages without a file", |t| Size(t.anon_bytes)),
    ("lowtide_tenant_dirty_bytes", GAUGE, "Bytes that wait to be written", |t| Size(t.dirty_bytes)),
    ("lowtide_tenant_writeback_bytes", GAUGE, "Bytes that are being written", |t| {
        Size(t.writeback_bytes)
    }),
    ("lowtide_tenant_faults", COUNTER, "Pages that came in", |t| Count(t.faults)),
    (
        "lowtide_tenant_refaults",
        COUNTER,
        "Pages that came in again after they had been evicted",
        |t| Count(t.refaults),
    ),
    ("lowtide_tenant_scanned_pages", COUNTER, "Pages scanned for reclaim", |t| Count(t.scanned)),
    ("lowtide_tenant_evicted_pages", COUNTER, "Pages that were evicted", |t| Count(t.evicted)),
    (
        "lowtide_tenant_stall_some_seconds",
        COUNTER,
        "Seconds in which some thread waited for \
        memory",
        |t| Seconds(t.stall_some_ns),
    ),
    (
        "lowtide_tenant_stall_full_seconds",
        COUNTER,
        "Seconds in which all threads waited for \
        memory",
        |t| Seconds(t.stall_full_ns),
    ),
    ("lowtide_tenant_high_events", COUNTER, "Charges that met high", |t| Count(t.high_events)),
    ("lowtide_tenant_max_events", COUNTER, "Charges that met the budget", |t| Count(t.max_events)),
    ("lowtide_tenant_oom_events", COUNTER, "Charges that failed for want of room", |t| {
        Count(t.oom_events)
    }),
];

const fn limit(bytes: Option<u64>) -> Value {
    match bytes {
        Some(bytes) => Size(bytes),
        None => Value::None,
    }
}

fn age(status: &Status) -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    now.saturating_sub(u128::from(status.written_ns)) as f64 / 1e9
}

/// The names of all metrics, as they are in a scrape: counters end with `_total`.
pub fn names() -> impl Iterator<Item = String> {
    let all = (PROCESS.iter().map(|row| (row.0, row.1)))
        .chain(PAGER.iter().map(|row| (row.0, row.1)))
        .chain(TENANT.iter().map(|row| (row.0, row.1)));
    all.map(|(name, kind)| match kind {
        MetricType::Counter => format!("{name}_total"),
        _ => name.to_owned(),
    })
}

/// Gives the pages of some processes to a registry, at each scrape.
pub struct Collector(Box<dyn Fn() -> Vec<Status> + Send + Sync>);

impl Collector {
    /// `pages` is called at each scrape.
    pub fn new(pages: impl Fn() -> Vec<Status> + Send + Sync + 'static) -> Self {
        Self(Box::new(pages))
    }
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Collector")
    }
}

impl prometheus_client::collector::Collector for Collector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let pages = (self.0)();
        let (mut processes, mut pagers, mut tenants) = (Vec::new(), Vec::new(), Vec::new());
        for page in &pages {
            let process = vec![("pid", page.pid.to_string()), ("program", page.program.clone())];
            for (number, pager) in page.pagers.iter().enumerate() {
                let mut labels = process.clone();
                labels.push(("pager", number.to_string()));
                for tenant in &pager.tenants {
                    let mut labels = labels.clone();
                    labels.push(("tenant", tenant.path.clone()));
                    tenants.push((labels, tenant));
                }
                pagers.push((labels, pager));
            }
            processes.push((process, page));
        }
        write(&mut encoder, PROCESS, &processes)?;
        write(&mut encoder, PAGER, &pagers)?;
        write(&mut encoder, TENANT, &tenants)
    }
}

type Labels = Vec<(&'static str, String)>;

fn write<T>(
    encoder: &mut DescriptorEncoder<'_>,
    rows: &[Row<T>],
    objects: &[(Labels, &T)],
) -> fmt::Result {
    for (name, kind, help, value) in rows {
        let mut family = encoder.encode_descriptor(name, help, None, *kind)?;
        for (labels, object) in objects {
            let metric = family.encode_family(labels)?;
            match value(object) {
                Count(count) => ConstCounter::new(count).encode(metric)?,
                Seconds(ns) => ConstCounter::new(ns as f64 / 1e9).encode(metric)?,
                Size(size) => ConstGauge::new(size).encode(metric)?,
                Share(share) => ConstGauge::new(share).encode(metric)?,
                Value::None => {}
            }
        }
    }
    Ok(())
}

/// Some pages in the format OpenMetrics.
///
/// # Examples
/// ```
/// use lowtide_status::{Status, metrics};
///
/// let page = Status { pid: 7, program: "a".into(), major_faults: 3, ..Status::default() };
/// let text = metrics::openmetrics(vec![page]);
/// let line = "lowtide_process_major_faults_total{pid=\"7\",program=\"a\"} 3";
/// assert!(text.lines().any(|found| found == line));
/// ```
#[must_use]
pub fn openmetrics(pages: Vec<Status>) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Collector::new(move || pages.clone())));
    let mut text = String::new();
    // A string takes everything.
    let _ = encode(&mut text, &registry);
    text
}

/// The same in the older text format of Prometheus, which its `textfile` collector needs: a counter
/// has the same name in its description and its samples.
#[must_use]
pub fn plain(pages: Vec<Status>) -> String {
    let text = openmetrics(pages);
    let is_counter = |name: &str| names().any(|full| full.strip_suffix("_total") == Some(name));
    let mut plain = String::with_capacity(text.len());
    for line in text.lines() {
        let Some(described) = line.strip_prefix("# ") else {
            plain += &format!("{line}\n");
            continue;
        };
        let mut words = described.splitn(3, ' ');
        let (Some(what), Some(name), Some(rest)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let end = if is_counter(name) { "_total" } else { "" };
        plain += &format!("# {what} {name}{end} {rest}\n");
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> Status {
        let tenant = TenantStatus {
            path: "/a\"b\n".into(),
            usage_bytes: 7,
            stall_some_ns: 1_500_000_000,
            ..TenantStatus::default()
        };
        let limited =
            TenantStatus { path: "/c".into(), max_bytes: Some(9), ..TenantStatus::default() };
        let pager = PagerStatus { reads: 5, tenants: vec![tenant, limited], ..Default::default() };
        Status { pid: 3, program: "p".into(), pagers: vec![pager], ..Status::default() }
    }

    #[test]
    fn each_figure_has_its_name_and_labels_and_a_limit_that_is_not_there_is_left_out() {
        let text = openmetrics(vec![page()]);
        let has = |line: &str| assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        has(r#"lowtide_pager_reads_total{pid="3",program="p",pager="0"} 5"#);
        has(r#"lowtide_tenant_usage_bytes{pid="3",program="p",pager="0",tenant="/a\"b\n"} 7"#);
        has(r#"lowtide_tenant_max_bytes{pid="3",program="p",pager="0",tenant="/c"} 9"#);
        let stall = "lowtide_tenant_stall_some_seconds_total{pid=\"3\",program=\"p\",pager=\"0\",\
                     tenant=\"/a\\\"b\\n\"} 1.5";
        has(stall);
        assert_eq!(text.matches("\nlowtide_tenant_max_bytes{").count(), 1);
        assert!(text.ends_with("# EOF\n"));
        for name in names() {
            let family = name.strip_suffix("_total").unwrap_or(&name);
            assert!(text.contains(&format!("# TYPE {family} ")), "{name}");
        }
    }

    #[test]
    fn in_the_older_format_a_description_has_the_name_of_its_samples() {
        let text = plain(vec![page()]);
        assert!(text.contains("# TYPE lowtide_tenant_faults_total counter\n"), "{text}");
        assert!(text.contains("# HELP lowtide_tenant_faults_total Pages that came in\n"));
        assert!(text.contains("# TYPE lowtide_tenant_usage_bytes gauge\n"));
        assert!(!text.contains("EOF"));
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        for sample in samples {
            let name = sample.split(['{', ' ']).next().unwrap();
            assert!(names().any(|known| known == name), "{sample}");
        }
    }
}
