//! Counters as dictionaries.

use lowtide::budget::{AutoStat, Curve};
use lowtide::{Pressure, PressureLine, Stat};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The lines `name value` of a text such as `memory.stat`.
fn add_lines(into: &Bound<'_, PyDict>, text: &str) -> PyResult<()> {
    for line in text.lines() {
        if let Some((name, value)) = line.split_once(' ')
            && let Ok(value) = value.trim().parse::<u64>()
        {
            into.set_item(name, value)?;
        }
    }
    Ok(())
}

/// A snapshot of a pager: the names of the kernel's `memory.stat`, and those of
/// [`lowtide::Stat`].
pub(crate) fn of_pager<'py>(py: Python<'py>, stat: &Stat) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    add_lines(&all, &stat.to_string())?;
    let (io, dirty) = (&stat.io, &stat.dirty);
    for (name, value) in [
        ("budget_bytes", stat.budget_bytes),
        ("resident_bytes", stat.resident_bytes),
        ("metadata_bytes", stat.frame_metadata_bytes + stat.translation_bytes),
        ("unwritten_bytes", stat.unwritten_bytes),
        ("failed_pages", stat.failed_pages),
        ("hits", stat.hits),
        ("misses", stat.misses),
        ("reads", io.reads),
        ("read_bytes", io.read_bytes),
        ("writes", io.writes),
        ("write_bytes", io.write_bytes),
        ("ahead_pages", io.ahead_pages),
        ("ahead_used", io.ahead_used),
        ("ahead_wasted", io.ahead_wasted),
        ("throttled_ns", io.throttled_ns),
        ("dirty_bytes", dirty.dirty_bytes),
        ("writeback_bytes", dirty.writeback_bytes),
    ] {
        all.set_item(name, value)?;
    }
    Ok(all)
}

/// A curve. `points` has pairs of bytes and misses.
pub(crate) fn of_curve<'py>(py: Python<'py>, curve: &Curve) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    for (name, value) in [
        ("accesses", curve.accesses()),
        ("first_accesses", curve.first_accesses()),
        ("missed", curve.missed()),
        ("error", curve.error()),
        ("seconds", curve.seconds()),
    ] {
        all.set_item(name, value)?;
    }
    all.set_item("footprint_bytes", curve.footprint())?;
    let points: Vec<(u64, f64)> = curve.points().map(|at| (at.bytes, at.misses)).collect();
    all.set_item("points", points)?;
    Ok(all)
}

/// A text of a tenant.
pub(crate) fn of_text<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    add_lines(&all, text)?;
    Ok(all)
}

/// How much time is lost waiting for memory: shares of the time, and seconds.
pub(crate) fn of_pressure<'py>(
    py: Python<'py>,
    pressure: &Pressure,
) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    for (name, line) in
        [("some", pressure.some), ("full", pressure.full), ("throttle", pressure.throttle)]
    {
        all.set_item(name, of_line(py, line)?)?;
    }
    Ok(all)
}

fn of_line(py: Python<'_>, line: PressureLine) -> PyResult<Bound<'_, PyDict>> {
    let all = PyDict::new(py);
    for (name, average) in ["avg10", "avg60", "avg300"].into_iter().zip(line.averages) {
        // Hundredths of a percent.
        all.set_item(name, f64::from(average) / 10_000.0)?;
    }
    all.set_item("total", line.total_ns as f64 / 1e9)?;
    Ok(all)
}

/// What became of a limit that sets itself: sizes in bytes, and seconds.
pub(crate) fn of_auto<'py>(py: Python<'py>, stat: &AutoStat) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    for (name, value) in [
        ("limit", stat.limit_bytes),
        ("least", stat.least_bytes),
        ("most", stat.most_bytes),
        ("mean", stat.mean_bytes),
        ("mean_usage", stat.mean_usage_bytes),
        ("grown", stat.grown),
        ("shrunk", stat.shrunk),
        ("refaults", stat.refaults),
    ] {
        all.set_item(name, value)?;
    }
    all.set_item("waited", stat.waited.as_secs_f64())?;
    all.set_item("stall_share", stat.stall_share)?;
    Ok(all)
}
