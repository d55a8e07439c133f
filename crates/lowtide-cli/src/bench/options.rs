//! Single options: what each may be, and where it means something.
//!
//! The argument parser refuses what is no number, size or name. What is one and still cannot be
//! meant (a budget of zero, a page of three kilobytes, a depth for a scan) is refused here, with
//! the option's name and something to write instead.

use std::time::Duration;

use lowtide::{Policy, Size};
use lowtide_workload::Workload;

use super::args::{Against, BenchArgs, Target};
use super::error::BenchError;
use super::proof::Proof;
use super::tenancy::Tenancy;
use super::write::Writing;

/// Data sizes are multiples of this, so that every possible page divides them.
pub(crate) const GRAIN_BYTES: u64 = 64 << 10;

/// The policies of lowtide's rows; the first is the one that ratios are against.
pub(crate) fn policies(args: &BenchArgs) -> Vec<Policy> {
    let given = args
        .policy
        .clone()
        .unwrap_or_else(|| Policy::builtin().map(|(policy, _)| policy).collect());
    let mut policies = Vec::with_capacity(given.len());
    for policy in given {
        if !policies.contains(&policy) {
            policies.push(policy);
        }
    }
    policies
}

/// The budget, if one was given.
///
/// # Errors
/// [`BenchError::Usage`] for none and for no limit.
pub(crate) fn max_option(args: &BenchArgs) -> Result<Option<u64>, BenchError> {
    match args.max {
        Some(max) if max.is_max() || max.bytes() == 0 => Err(BenchError::usage(
            format!("--max {max} is not a budget"),
            "give each system a size that the machine has, such as --max 256M",
        )),
        max => Ok(max.map(Size::bytes)),
    }
}

/// The data as a multiple of the budget.
///
/// # Errors
/// [`BenchError::Usage`] unless it is a positive number that leads to a possible file.
pub(crate) fn scale(args: &BenchArgs, default: f64) -> Result<f64, BenchError> {
    match args.scale {
        Some(scale) if !(scale.is_finite() && (0.01..=1e6).contains(&scale)) => {
            Err(BenchError::usage(
                format!("--scale {scale} is not possible"),
                "give a number from 0.01 to 1000000, such as --scale 4",
            ))
        }
        scale => Ok(scale.unwrap_or(default)),
    }
}

/// A time, if one was given.
///
/// # Errors
/// [`BenchError::Usage`] unless it is positive and less than a month.
pub(crate) fn seconds_option(seconds: Option<f64>) -> Result<Option<f64>, BenchError> {
    match seconds {
        Some(seconds) if !(seconds.is_finite() && seconds > 0.0 && seconds < 2.6e6) => {
            Err(BenchError::usage(
                format!("--seconds {seconds} is not possible"),
                "give a time such as --seconds 5",
            ))
        }
        seconds => Ok(seconds),
    }
}

/// The time from checkpoint to checkpoint, if one was given.
///
/// # Errors
/// [`BenchError::Usage`] for less than a millisecond.
pub(crate) fn checkpoint_option(args: &BenchArgs) -> Result<Option<Duration>, BenchError> {
    match args.checkpoint {
        Some(every) if every.0 < Duration::from_millis(1) => Err(BenchError::usage(
            format!("--checkpoint {every} is not possible"),
            "give a time such as --checkpoint 10s",
        )),
        every => Ok(every.map(|every| every.0)),
    }
}

/// The page, if one was given.
///
/// # Errors
/// [`BenchError::Usage`] unless it is a power of two from 512 bytes to 64 KiB.
pub(crate) fn page_option(args: &BenchArgs) -> Result<Option<u64>, BenchError> {
    match args.page {
        Some(page)
            if !page.bytes().is_power_of_two() || !(512..=GRAIN_BYTES).contains(&page.bytes()) =>
        {
            Err(BenchError::usage(
                format!("--page {page} is not possible"),
                "give a power of two from 512 bytes to 64K, such as --page 4K",
            ))
        }
        page => Ok(page.map(Size::bytes)),
    }
}

/// Refuses `--against none` together with peers.
///
/// # Errors
/// [`BenchError::Usage`].
pub(crate) fn refuse_none_beside_peers(args: &BenchArgs) -> Result<(), BenchError> {
    let peers = args.against.as_deref().unwrap_or_default();
    if peers.contains(&Against::None) && peers.iter().any(|&peer| peer != Against::None) {
        return Err(BenchError::usage(
            "--against cannot be none and something",
            "name peers, or write --against none",
        ));
    }
    Ok(())
}

/// A whole number of grains, at least one.
pub(crate) fn grain(bytes: u64) -> u64 {
    bytes
        .checked_next_multiple_of(GRAIN_BYTES)
        .unwrap_or(u64::MAX - GRAIN_BYTES + 1)
        .max(GRAIN_BYTES)
}

/// Refuses options that mean nothing for what is run, so that nobody believes they had an effect.
///
/// # Errors
/// [`BenchError::Usage`].
pub(crate) fn refuse_misplaced(args: &BenchArgs, target: Target) -> Result<(), BenchError> {
    let is = |workload| target == Target::Workload(workload);
    let hit = target == Target::Hit;
    let ycsb = matches!(target, Target::Workload(workload) if workload.ycsb_letter().is_some());
    let depth = args.depth.is_some();
    let replay = is(Workload::Replay);
    let mixed = is(Workload::Mixed);
    let writing = matches!(target, Target::Writing(_));
    let oom = target == Target::Writing(Writing::DdOom);
    let slowed = !(args.device_delay.is_empty() && args.device_bandwidth.is_empty());
    let tenancy = matches!(target, Target::Tenancy(_));
    let thrash = target == Target::Tenancy(Tenancy::HighThrash);
    let equals = target == Target::Tenancy(Tenancy::Tenants);
    let cost = target == Target::Tenancy(Tenancy::ProgramCost);
    let mix = target == Target::Tenancy(Tenancy::FileAnonMix);
    let proof = matches!(target, Target::Proof(_));
    let crash = target == Target::Proof(Proof::Crash);
    let cut = target == Target::Proof(Proof::PowerCut);
    let elsewhere = "workloads that are measured";
    let rules = [
        (args.cycles.is_some() && !crash, "--cycles", "crash"),
        (args.cuts.is_some() && !cut, "--cuts", "power-cut"),
        (args.sabotage.is_some() && !cut, "--sabotage", "power-cut"),
        (proof && (args.seconds.is_some() || args.ops.is_some()), "--seconds", elsewhere),
        (proof && args.rounds.is_some(), "--rounds", elsewhere),
        (proof && args.against.is_some(), "--against", elsewhere),
        (proof && args.page.is_some(), "--page", elsewhere),
        (proof && args.batch.is_some(), "--batch", elsewhere),
        (proof && args.file.is_some(), "--file", elsewhere),
        (proof && args.record.is_some(), "--record", elsewhere),
        (proof && args.young_faults, "--young-faults", elsewhere),
        (proof && slowed, "--device-delay and --device-bandwidth", elsewhere),
        (depth && !is(Workload::RandomRead), "--depth", "random-read"),
        (args.op.is_some() && !is(Workload::Scan), "--op", "scan"),
        (args.io_size.is_some() && args.op.is_none(), "--io-size", "scan with --op"),
        (args.op.is_some() && args.against.is_some(), "--against", "scan without --op"),
        (args.op.is_some() && args.batch.is_some(), "--batch", "scan without --op; use --io-size"),
        (args.op.is_some() && args.record.is_some(), "--record", "scan without --op"),
        (args.op.is_some() && args.ops.is_some(), "--ops", "scan without --op; use --seconds"),
        (args.op.is_some() && args.threads() != 1, "--threads", "scan without --op"),
        (args.size.is_some() && !hit, "--size", "hit"),
        (args.trace.is_some() && !replay, "--trace", "replay"),
        (args.format.is_some() && !replay, "--format", "replay"),
        (
            args.record.is_some() && (replay || hit || depth),
            "--record",
            "ycsb, and random-read and scan without --depth",
        ),
        (
            args.distribution.is_some() && !ycsb,
            "--distribution",
            "ycsb-a, ycsb-b, ycsb-c and mixed",
        ),
        (args.checkpoint.is_some() && !mixed, "--checkpoint", "mixed"),
        (
            args.record.is_some() && mixed,
            "--record",
            "ycsb, and random-read and scan without --depth",
        ),
        (
            slowed && (hit || tenancy || replay || depth),
            "--device-delay and --device-bandwidth",
            "ycsb, mixed, fill, dd-oom, and random-read and scan without --depth",
        ),
        (writing && args.threads() != 1, "--threads", "workloads that read"),
        (
            writing && args.seconds.is_some(),
            "--seconds",
            "workloads that read; use --max, --scale and --rounds",
        ),
        (
            writing && args.ops.is_some(),
            "--ops",
            "workloads that read; use --max, --scale and --rounds",
        ),
        (writing && args.batch.is_some(), "--batch", "workloads that read"),
        (
            writing && args.record.is_some(),
            "--record",
            "ycsb, and random-read and scan without --depth",
        ),
        (writing && args.file.is_some(), "--file", "ycsb-c, random-read and scan"),
        (oom && args.against.is_some(), "--against", "fill and workloads that read"),
        (
            args.threads() != 1 && (replay || hit || depth || (tenancy && !thrash)),
            "--threads",
            "ycsb, and random-read and scan without --depth",
        ),
        (
            args.batch.is_some() && (replay || hit || depth),
            "--batch",
            "ycsb, and random-read and scan without --depth",
        ),
        (
            args.seconds.is_some() && (replay || hit),
            "--seconds",
            "ycsb, random-read and scan; use --ops",
        ),
        (args.ops.is_some() && depth, "--ops", "anything but --depth; use --seconds"),
        (args.file.is_some() && (replay || hit), "--file", "ycsb-c, random-read and scan"),
        (args.scale.is_some() && hit, "--scale", "workloads; use --size"),
        (args.max.is_some() && hit, "--max", "workloads; use --size"),
        (args.against.is_some() && (hit || tenancy), "--against", "workloads without tenants"),
        (args.threads.len() > 1 && !thrash, "a list of --threads", "high-thrash"),
        (args.high_policy.is_some() && !thrash, "--high-policy", "high-thrash"),
        (!(args.bpf.is_empty() || thrash || cost), "--bpf", "high-thrash and program-cost"),
        (args.no_readahead && !thrash, "--no-readahead", "high-thrash"),
        (args.ops.is_some() && tenancy, "--ops", "workloads without tenants; use --seconds"),
        (args.batch.is_some() && tenancy, "--batch", "workloads without tenants"),
        (args.record.is_some() && tenancy, "--record", "ycsb, random-read and scan"),
        (args.file.is_some() && tenancy, "--file", "ycsb-c, random-read and scan"),
        (args.young_faults && tenancy, "--young-faults", "workloads without tenants"),
        (
            args.scale.is_some() && tenancy && !equals,
            "--scale",
            "tenants and workloads without tenants; use --max",
        ),
        (
            args.rounds.is_some() && tenancy && !(mix || cost),
            "--rounds",
            "other workloads; use --seconds",
        ),
    ];
    for (misplaced, option, place) in rules {
        if misplaced {
            return Err(BenchError::usage(
                format!("{option} does not apply here"),
                format!("it is for {place}"),
            ));
        }
    }
    if replay && args.trace.is_none() {
        return Err(BenchError::usage("replay needs a trace", "name one with --trace FILE"));
    }
    Ok(())
}
