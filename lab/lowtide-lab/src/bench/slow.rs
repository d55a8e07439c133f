//! An artificially slow device: delays and a bandwidth for the runtime's requests, in addition to
//! the real device.
//!
//! A *delay* applies to each request: requests wait in parallel, as in the kernel's delay mapper,
//! so a device with a delay of one second still serves any number of requests at once. A
//! *bandwidth* applies to the device: requests of one kind queue, each for the time that its bytes
//! take. Both apply only to lowtide's own requests (`lowtide::instruments::Inject`), so peers
//! cannot be compared.

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::builder::ArgPredicate;
use clap::{Arg, Args};
use lowtide::instruments::{Inject, InjectOp, Request, Verdict};
use lowtide::{PagerBuilder, Size};
use lowtide_bench::compare::plan::Device;
use lowtide_report::span::Span;
use thiserror::Error;

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
    Sync,
}

impl Kind {
    const NAMES: [(&str, Self); 3] =
        [("read", Self::Read), ("write", Self::Write), ("sync", Self::Sync)];

    const fn name(self) -> &'static str {
        Self::NAMES[self as usize].0
    }

    /// The kind of a request, if it reaches the device.
    const fn of(op: InjectOp) -> Option<Self> {
        match op {
            InjectOp::Read => Some(Self::Read),
            InjectOp::Write => Some(Self::Write),
            InjectOp::Sync => Some(Self::Sync),
            _ => None,
        }
    }
}

/// `read=2ms`, or `write=50M`: a value for one kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct For<T> {
    kind: Kind,
    value: T,
}

/// An invalid value for a kind of request.
#[derive(Debug, Error)]
pub(crate) enum BadFor {
    #[error("`{0}` does not name a kind of request; write read=, write= or sync= before the value")]
    Kind(String),
    #[error("{0}")]
    Value(String),
}

impl<T: FromStr<Err: fmt::Display>> FromStr for For<T> {
    type Err = BadFor;

    fn from_str(text: &str) -> Result<Self, BadFor> {
        let known = |name: &str| Kind::NAMES.into_iter().find(|(known, _)| *known == name);
        let (kind, value) = text
            .split_once('=')
            .and_then(|(name, value)| Some((known(name)?.1, value)))
            .ok_or_else(|| BadFor::Kind(text.to_owned()))?;
        let value = value.parse().map_err(|error: T::Err| BadFor::Value(error.to_string()))?;
        Ok(Self { kind, value })
    }
}

impl<T: fmt::Display> fmt::Display for For<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.kind.name(), self.value)
    }
}

/// A bandwidth. Syncs have none, as they transfer no bytes.
pub(crate) fn bandwidth(text: &str) -> Result<For<Size>, String> {
    let bandwidth: For<Size> = text.parse().map_err(|error: BadFor| error.to_string())?;
    let value = bandwidth.value;
    if bandwidth.kind == Kind::Sync || value.is_max() || value.bytes() == 0 {
        return Err("give bytes a second for reads or writes, such as write=50M".into());
    }
    Ok(bandwidth)
}

/// Delays and bandwidths of a device; none by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slowness {
    delays: Vec<For<Span>>,
    bandwidths: Vec<For<Size>>,
}

impl Slowness {
    /// Delays and bandwidths together.
    pub(crate) const fn new(delays: Vec<For<Span>>, bandwidths: Vec<For<Size>>) -> Self {
        Self { delays, bandwidths }
    }

    /// A delay of writes.
    pub(crate) fn of_writes(delay: Span) -> Self {
        Self::new(vec![For { kind: Kind::Write, value: delay }], Vec::new())
    }

    /// A pager on a device with these delays.
    pub(crate) fn on(&self, builder: PagerBuilder) -> PagerBuilder {
        if self.is_none() { builder } else { builder.inject(Arc::new(self.device())) }
    }

    /// A device with them, if there are any.
    pub(crate) fn of_comparison(&self) -> Option<Device> {
        let slowness = self.clone();
        let on = Box::new(move |builder| slowness.on(builder));
        self.text().map(|text| Device { text, on })
    }

    /// As text, if there are any.
    pub(crate) fn text(&self) -> Option<String> {
        (!self.is_none()).then(|| self.to_string())
    }

    /// Whether there are none.
    pub(crate) const fn is_none(&self) -> bool {
        self.delays.is_empty() && self.bandwidths.is_empty()
    }

    /// A device with these delays.
    fn device(&self) -> SlowDevice {
        let now = Instant::now();
        let mut device = SlowDevice {
            delay: [Duration::ZERO; 3],
            bytes_per_s: [None; 3],
            idle_at: Mutex::new([now; 3]),
        };
        for delay in &self.delays {
            device.delay[delay.kind as usize] = delay.value.0;
        }
        for bandwidth in &self.bandwidths {
            device.bytes_per_s[bandwidth.kind as usize] = Some(bandwidth.value.bytes());
        }
        device
    }
}

impl fmt::Display for Slowness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let delays = self.delays.iter().map(|delay| format!("delay {delay}"));
        let bandwidths = self.bandwidths.iter().map(|bandwidth| format!("bandwidth {bandwidth}/s"));
        f.write_str(&delays.chain(bandwidths).collect::<Vec<_>>().join(", "))
    }
}

/// A device that takes longer than the real one.
#[derive(Debug)]
struct SlowDevice {
    /// By kind.
    delay: [Duration; 3],
    /// By kind.
    bytes_per_s: [Option<u64>; 3],
    /// By kind: the time at which all requests so far are done.
    idle_at: Mutex<[Instant; 3]>,
}

impl SlowDevice {
    /// The delay of a request of `len` bytes that arrives `now`.
    fn wait(&self, kind: Kind, len: u64, now: Instant) -> Duration {
        let kind = kind as usize;
        let queued = self.bytes_per_s[kind].map_or(Duration::ZERO, |rate| {
            let mut idle_at = self.idle_at.lock().unwrap_or_else(PoisonError::into_inner);
            let end = idle_at[kind].max(now) + Duration::from_secs_f64(len as f64 / rate as f64);
            idle_at[kind] = end;
            end - now
        });
        queued + self.delay[kind]
    }
}

impl Inject for SlowDevice {
    fn before(&self, request: &Request<'_>) -> Verdict {
        let wait = Kind::of(request.op)
            .map_or(Duration::ZERO, |kind| self.wait(kind, request.len, Instant::now()));
        if wait.is_zero() { Verdict::Pass } else { Verdict::Later(wait) }
    }
}

/// Artificial delays of lowtide's requests.
#[derive(Clone, Debug, Args)]
pub(crate) struct Slowdown {
    /// Delay each of lowtide's requests, in parallel, as in read=2ms,write=10ms; excludes peers
    #[arg(long, value_name = "K=TIME", value_delimiter = ',')]
    device_delay: Vec<For<Span>>,
    /// Limit lowtide's reads or writes to bytes per second, as in write=50M; excludes peers
    #[arg(long, value_name = "K=SIZE", value_delimiter = ',', value_parser = bandwidth)]
    device_bandwidth: Vec<For<Size>>,
}

impl Slowdown {
    /// A command whose peers are named with `--against`, without peers where lowtide has delays.
    pub(crate) fn without_peers(against: Arg) -> Arg {
        let none = |delayed| (delayed, ArgPredicate::IsPresent, Some("none"));
        against.default_value_ifs([none("device_delay"), none("device_bandwidth")])
    }

    /// Delays and bandwidths together.
    pub(crate) fn slowness(&self) -> Slowness {
        Slowness::new(self.device_delay.clone(), self.device_bandwidth.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_belongs_to_a_kind() {
        let delay: For<Span> = "write=10ms".parse().unwrap();
        assert_eq!((delay.kind, delay.to_string().as_str()), (Kind::Write, "write=10ms"));
        for (text, word) in [("10ms", "read="), ("trim=10ms", "trim"), ("read=fast", "fast")] {
            let error = text.parse::<For<Span>>().unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
        assert!("write=50M".parse::<For<Size>>().is_ok());
    }

    #[test]
    fn delays_run_side_by_side_and_bandwidth_one_after_the_other() {
        let slowness = Slowness {
            delays: vec!["read=2ms".parse().unwrap()],
            bandwidths: vec!["write=1M".parse().unwrap()],
        };
        let (device, now) = (slowness.device(), Instant::now());
        let ms = |kind, len| device.wait(kind, len, now).as_millis();
        assert_eq!([ms(Kind::Read, 4096), ms(Kind::Read, 1 << 20)], [2, 2]);
        assert_eq!([ms(Kind::Write, 1 << 19), ms(Kind::Write, 1 << 19)], [500, 1000]);
        assert_eq!(ms(Kind::Sync, 0), 0);
        assert_eq!(slowness.to_string(), "delay read=2ms, bandwidth write=1M/s");
    }
}
