//! fio as a peer: direct reads at a given depth, by a program that does nothing else.
//!
//! Each slice is one run of fio (`ioengine=io_uring`, `direct=1`, `time_based`); its own clock
//! excludes process start. Results come from its JSON (`json+`, with the whole histogram).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use lowtide_bench::error::BenchError;
use lowtide_bench::system::System;
use lowtide_bench::thread_pool::Until;
use lowtide_report::tally::Slice;
use serde::Deserialize;

use super::program;

const NAME: &str = "fio";

/// An installed fio.
#[derive(Clone, Debug)]
pub(crate) struct Fio {
    version: String,
}

impl Fio {
    /// Looks for fio on the path.
    pub(crate) fn find() -> Option<Self> {
        program::version(NAME).map(|version| Self { version })
    }

    /// fio on the first `bytes` of a file, in blocks of `block_bytes`, with `depth` in flight.
    pub(crate) fn at(
        &self,
        path: &Path,
        bytes: u64,
        block_bytes: u64,
        depth: u32,
        seed: u64,
    ) -> Reads {
        let (version, path) = (self.version.clone(), path.to_owned());
        Reads { version, path, order: "--rw=randread", bytes, block_bytes, depth, seed }
    }

    /// fio on the first `bytes` of a file from beginning to end, in blocks of `block_bytes`, one at
    /// a time.
    pub(crate) fn in_order(&self, path: &Path, bytes: u64, block_bytes: u64) -> Reads {
        Reads { order: "--rw=read", ..self.at(path, bytes, block_bytes, 1, 0) }
    }
}

/// Reads by fio.
pub(crate) struct Reads {
    version: String,
    path: PathBuf,
    order: &'static str,
    bytes: u64,
    block_bytes: u64,
    depth: u32,
    /// Seed of the next slice: every slice reads different pages.
    seed: u64,
}

impl Reads {
    fn command(&self, seconds: f64) -> Command {
        let mut command = Command::new(NAME);
        command
            .arg("--name=lowtide")
            // A colon separates several files in this option.
            .arg(format!("--filename={}", self.path.display().to_string().replace(':', "\\:")))
            .args([self.order, "--readonly", "--norandommap", "--direct=1", "--ioengine=io_uring"])
            .args([
                "--time_based",
                "--output-format=json+",
                "--lat_percentiles=1",
                "--clat_percentiles=0",
            ])
            .arg(format!("--size={}", self.bytes))
            .arg(format!("--bs={}", self.block_bytes))
            .arg(format!("--iodepth={}", self.depth))
            .arg(format!("--randseed={}", self.seed))
            .arg(format!("--runtime={}ms", (seconds * 1000.0).ceil()));
        command
    }

    fn error(&self, what: impl std::fmt::Display) -> BenchError {
        BenchError::Peer { peer: NAME, what: format!("({}) {what}", self.version) }
    }
}

impl System for Reads {
    fn name(&self) -> &'static str {
        NAME
    }

    fn run(&mut self, until: Until) -> Result<Slice, BenchError> {
        let Until::Seconds(seconds) = until else {
            return Err(self.error("runs for a time, not for a number of operations"));
        };
        let said = program::run(&mut self.command(seconds), NAME, |what| self.error(what))?;
        self.seed += 1;
        parse(&said.out).map_err(|what| self.error(what))
    }
}

/// The part of fio's JSON that is used; times in nanoseconds and milliseconds, processor time in
/// percent of `runtime`.
#[derive(Deserialize)]
struct Output {
    jobs: Vec<Job>,
}

#[derive(Deserialize)]
struct Job {
    error: i64,
    usr_cpu: f64,
    sys_cpu: f64,
    read: Direction,
}

#[derive(Deserialize)]
struct Direction {
    io_bytes: u64,
    total_ios: u64,
    runtime: u64,
    lat_ns: LatencyNs,
}

#[derive(Deserialize)]
struct LatencyNs {
    #[serde(default)]
    bins: BTreeMap<u64, u64>,
}

fn parse(text: &str) -> Result<Slice, String> {
    // Text for people may precede the JSON.
    let json = text.find('{').map_or("", |start| &text[start..]);
    let output: Output = serde_json::from_str(json)
        .map_err(|error| format!("prints what cannot be read: {error}"))?;
    let job = output.jobs.first().ok_or("reports no job")?;
    if job.error != 0 {
        return Err(format!("reports error {}: {}", job.error, errno(job.error)));
    }
    let seconds = job.read.runtime as f64 / 1e3;
    Ok(Slice {
        seconds,
        ops: job.read.total_ios,
        asked_bytes: job.read.io_bytes,
        read_bytes: job.read.io_bytes,
        latency: job.read.lat_ns.bins.iter().map(|(&ns, &count)| (ns, count)).collect(),
        cpu_seconds: seconds * (job.usr_cpu + job.sys_cpu) / 100.0,
        ..Slice::default()
    })
}

fn errno(code: i64) -> String {
    i32::try_from(code).map_or_else(
        |_| "unknown".into(),
        |code| std::io::Error::from_raw_os_error(code).to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_json_becomes_a_slice() {
        let text = r#"note: both iodepth >= 1 and synchronous I/O engine
            {"fio version": "fio-3",
             "jobs": [{"jobname": "x", "error": 0, "usr_cpu": 10.0, "sys_cpu": 30.0,
             "read": {"io_bytes": 8192, "total_ios": 2, "runtime": 500, "iops": 4.0,
                      "lat_ns": {"min": 1, "bins": {"100": 1, "200": 1}}}}]}"#;
        let slice = parse(text).unwrap();
        assert_eq!(
            (slice.ops, slice.read_bytes, slice.latency),
            (2, 8192, vec![(100, 1), (200, 1)])
        );
        assert!((slice.cpu_seconds - 0.2).abs() < 1e-9 && (slice.seconds - 0.5).abs() < 1e-9);
    }

    #[test]
    fn what_is_no_result_is_an_error() {
        for text in ["", "fio: failed", r#"{"jobs": []}"#, r#"{"jobs": [{"error": 5}]}"#] {
            assert!(parse(text).is_err(), "{text}");
        }
        let failed = r#"{"jobs": [{"error": 5, "usr_cpu": 0, "sys_cpu": 0,
            "read": {"io_bytes": 0, "total_ios": 0, "runtime": 0, "lat_ns": {}}}]}"#;
        assert!(parse(failed).unwrap_err().contains("Input/output error"));
    }
}
