//! Status pages as metrics, in the conventions of Prometheus. Feature `metrics`.
//!
//! They are those of the table of counters (`lowtide_core::counters`), and a few that are none;
//! [`names`] has all as a scrape does. Labels are
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
use lowtide_core::counters::{Counter, Rendering, Unit, Value, list};
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
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

/// What a kind of object has beside its counters: the name, what it means, and how it is read.
type Gauge<T> = (&'static str, &'static str, fn(&T) -> Value);

/// A kind of object: its prefix, its counters, and the rest.
struct Kind<T: 'static> {
    prefix: &'static str,
    counters: fn(&T) -> Shown,
    gauges: &'static [Gauge<T>],
}

type Shown = Vec<(&'static Counter, Value)>;

const PROCESS: Kind<Status> = Kind {
    prefix: "lowtide_process_",
    counters: |status| list(&status.stat, Rendering::Metric),
    gauges: &[
        ("start_ticks", "Clock ticks from the start of the machine to that of the process", |s| {
            Value::Whole(s.start_ticks)
        }),
        (
            "page_age_seconds",
            "Seconds since the process wrote its status page, which it does every second",
            |s| Value::Real(age(s)),
        ),
    ],
};

const PAGER: Kind<PagerStatus> = Kind {
    prefix: "lowtide_pager_",
    counters: |pager| list(&pager.stat, Rendering::Metric),
    gauges: &[("tenants_left_out", "Tenants for which the status page has no room", |p| {
        Value::Whole(p.tenants_left_out)
    })],
};

const TENANT: Kind<TenantStatus> = Kind {
    prefix: "lowtide_tenant_",
    counters: |tenant| list(&tenant.stat, Rendering::Metric),
    gauges: &[],
};

fn age(status: &Status) -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    now.saturating_sub(u128::from(status.written_ns)) as f64 / 1e9
}

impl<T: Default> Kind<T> {
    /// The names as they are in a scrape.
    fn names(&self) -> Vec<String> {
        let counted = (self.counters)(&T::default()).into_iter().map(|(counter, _)| {
            let end = if counter.grows { "_total" } else { "" };
            format!("{}{}{end}", self.prefix, counter.metric())
        });
        let gauges = self.gauges.iter().map(|(name, ..)| format!("{}{name}", self.prefix));
        gauges.chain(counted).collect()
    }
}

/// The names of all metrics, as they are in a scrape: counters end with `_total`.
pub fn names() -> impl Iterator<Item = String> {
    [PROCESS.names(), PAGER.names(), TENANT.names()].into_iter().flatten()
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
        PROCESS.write(&mut encoder, &processes)?;
        PAGER.write(&mut encoder, &pagers)?;
        TENANT.write(&mut encoder, &tenants)
    }
}

type Labels = Vec<(&'static str, String)>;

impl<T: Default> Kind<T> {
    /// Each metric with all objects.
    fn write(&self, encoder: &mut DescriptorEncoder<'_>, objects: &[(Labels, &T)]) -> fmt::Result {
        for (name, help, value) in self.gauges {
            let name = format!("{}{name}", self.prefix);
            let mut family = encoder.encode_descriptor(&name, help, None, MetricType::Gauge)?;
            for (labels, object) in objects {
                gauge(value(object), family.encode_family(labels)?)?;
            }
        }
        let shown: Vec<Shown> = objects.iter().map(|(_, object)| (self.counters)(object)).collect();
        for (at, (counter, _)) in (self.counters)(&T::default()).into_iter().enumerate() {
            let name = format!("{}{}", self.prefix, counter.metric());
            let kind = if counter.grows { MetricType::Counter } else { MetricType::Gauge };
            let mut family = encoder.encode_descriptor(&name, counter.help, None, kind)?;
            for ((labels, _), shown) in objects.iter().zip(&shown) {
                let (metric, value) = (family.encode_family(labels)?, shown[at].1);
                match (counter.grows, counter.unit) {
                    (true, Unit::Time) => {
                        ConstCounter::new(value.whole() as f64 / 1e9).encode(metric)?;
                    }
                    (true, _) => ConstCounter::new(value.whole()).encode(metric)?,
                    (false, _) => gauge(value, metric)?,
                }
            }
        }
        Ok(())
    }
}

fn gauge(value: Value, metric: MetricEncoder<'_>) -> fmt::Result {
    match value {
        Value::Whole(size) => ConstGauge::new(size).encode(metric),
        Value::Real(share) => ConstGauge::new(share).encode(metric),
        Value::Absent => Ok(()),
    }
}

/// Some pages in the format OpenMetrics.
///
/// # Examples
/// ```
/// use lowtide_status::{Status, metrics};
///
/// let mut page = Status { pid: 7, program: "a".into(), ..Status::default() };
/// page.stat.major_faults = 3;
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
    use crate::TenantStat;

    fn page() -> Status {
        let tenant = TenantStatus {
            path: "/a\"b\n".into(),
            stat: TenantStat {
                usage_bytes: 7,
                stall_some_ns: 1_500_000_000,
                ..TenantStat::default()
            },
            ..TenantStatus::default()
        };
        let mut limited = TenantStatus { path: "/c".into(), ..TenantStatus::default() };
        limited.stat.max_bytes = Some(9);
        let mut pager = PagerStatus { tenants: vec![tenant, limited], ..Default::default() };
        pager.stat.io.reads = 5;
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
