//! Rows of systems that took turns on a real machine: the figures of all their slices together.

use lowtide_report::measured::bytes_per_write;
use lowtide_report::rounds;
use lowtide_report::row::Row;
use lowtide_report::table::thousands;

/// What was checked in all rows together: a line's beginning.
pub(crate) fn checked(rows: &[Row], what: &str) -> String {
    let count = |count: fn(&Row) -> Option<u64>| rows.iter().filter_map(count).sum::<u64>();
    let [verified, errors] =
        [count(|row| row.verified), count(|row| row.errors)].map(|count| thousands(count as f64));
    format!("{verified} {what} verified, {errors} errors")
}

/// The figures that every such row has.
pub(crate) fn row(result: &rounds::Row) -> Row {
    let sum = result.sum();
    let back = sum.write_back;
    let ms = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1e6);
    let row = Row {
        world: "real",
        system: result.system,
        policy: result.policy.clone().unwrap_or_default(),
        seconds: Some(sum.seconds),
        rounds: u32::try_from(result.slices.len()).ok(),
        errors: Some(sum.errors),
        verified: Some(sum.verified),
        oom: back.oom,
        throttled_ms: ms(back.throttled_ns),
        dirty_throttled_ms: ms(back.dirty_throttled_ns),
        dirty_pauses: back.dirty_pauses,
        flusher_wakes: back.flusher_wakes,
        longest_pause_ms: ms(back.longest_pause_ns),
        flush_seconds: Some(sum.flush_seconds),
        cpu_seconds: Some(sum.cpu_seconds),
        dirty_bytes: back.dirty_bytes,
        dirty_max_bytes: back.dirty_max_bytes,
        device_write_bytes: Some(sum.write_bytes),
        device_writes: back.requests,
        bytes_per_write: bytes_per_write(&sum),
        stat: sum.stat.iter().map(|(name, &count)| (name.clone().into(), count)).collect(),
        ..Row::default()
    };
    row.with_ops(sum.ops)
}
