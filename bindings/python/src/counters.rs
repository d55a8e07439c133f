//! Counters as dictionaries.

use lowtide::budget::{AutoStat, Curve};
use lowtide::{MemoryStat, Pressure, PressureLine, Stat};
use lowtide_core::counters::{Rendering, list};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// A snapshot of a pager: the names of the kernel's `memory.stat`, and those of
/// [`lowtide::Stat`].
pub(crate) fn of_pager<'py>(py: Python<'py>, stat: &Stat) -> PyResult<Bound<'py, PyDict>> {
    let all = of_memory(py, &stat.memory)?;
    for (counter, value) in list(stat, Rendering::Python) {
        all.set_item(counter.name, value.whole())?;
    }
    Ok(all)
}

/// The lines of a `memory.stat`.
pub(crate) fn of_memory<'py>(py: Python<'py>, stat: &MemoryStat) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    let mut set = Ok(());
    stat.lines(|name, value| {
        if set.is_ok() {
            set = all.set_item(name, value);
        }
    });
    set.map(|()| all)
}

/// A curve. `points` has pairs of bytes and misses.
pub(crate) fn of_curve<'py>(py: Python<'py>, curve: &Curve) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    for (name, value) in [
        ("accesses", curve.accesses()),
        ("first_accesses", curve.first_accesses()),
        ("missed", curve.missed()),
        ("error", curve.error()),
        ("seconds", curve.span().as_secs_f64()),
    ] {
        all.set_item(name, value)?;
    }
    all.set_item("footprint_bytes", curve.footprint())?;
    let points: Vec<(u64, f64)> = curve.points().map(|at| (at.bytes, at.misses)).collect();
    all.set_item("points", points)?;
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
    all.set_item("total", line.total.as_secs_f64())?;
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
