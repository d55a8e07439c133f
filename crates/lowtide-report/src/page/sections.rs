//! The section of one result: where it is from, its pictures with their figures as tables, and all
//! of its rows.

use std::collections::BTreeMap;

use maud::{Markup, html};
use serde_json::Value;

use super::bars::{self, Bar, Kind};
use super::document::Document;
use super::lines::{self, Axis, LINES, Line};
use super::measure::{self, Fields, Measure};
use super::{number, tables};

/// Bars of a picture: more are a table.
const BARS: usize = 40;
/// Rows whose every figure is shown side by side.
const COLUMNS: usize = 24;

/// The section, with an anchor for links.
pub(super) fn of(document: &Document, anchor: &str) -> Markup {
    let rows: Vec<&Fields> = document.rows().collect();
    let names = measure::names(&rows);
    let curves = curves(&rows);
    html! {
        section id=(anchor) {
            h2 { (document.title()) }
            (about(document))
            @if let Some(lines) = &curves {
                (curve_figure(lines))
            } @else {
                @for measure in measure::telling(&rows) { (bar_figure(&measure, &rows, &names)) }
                (latency_figure(&rows, &names))
                @for (name, row) in names.iter().zip(&rows) {
                    @if !measure::is_published(row) { (device_figure(name, row)) }
                }
            }
            @if let Some(figures) = tables::figures(document) {
                details { summary { "Published figures beside ours" } (figures) }
            }
            @if curves.is_none() && rows.len() <= COLUMNS {
                details { summary { "All figures" } (tables::all(&names, &rows)) }
            }
        }
    }
}

/// What the result is of, and how to repeat it.
fn about(document: &Document) -> Markup {
    let text = |path| document.text(path);
    let version = text("/lowtide").map(|version| match text("/commit") {
        Some(commit) => format!("lowtide {version} ({commit})"),
        None => format!("lowtide {version}"),
    });
    let seed =
        document.value.get("seed").and_then(Value::as_u64).map(|seed| format!("seed {seed}"));
    let facts: Vec<String> =
        [version, document.machine(), text("/machine/date"), seed].into_iter().flatten().collect();
    let cut = document.value.get("interrupted").and_then(Value::as_bool) == Some(true);
    html! {
        p.soft { (facts.join("; ")) " · " (document.source) }
        @if cut { p { strong { "The run was interrupted: rows are missing, or shorter." } } }
        @if let Some(note) = text("/eval/note") { p.soft { (note) } }
        @if let Some(command) = text("/command") { pre { code { (command) } } }
    }
}

fn kind(row: &Fields) -> Kind {
    match row {
        row if measure::is_published(row) => Kind::Published,
        row if measure::is_ours(row) => Kind::Ours,
        _ => Kind::Other,
    }
}

fn bar_figure(measure: &Measure, rows: &[&Fields], names: &[String]) -> Markup {
    let bars: Vec<Bar> = rows
        .iter()
        .zip(names)
        .filter_map(|(row, name)| {
            let value = measure.of(row)?;
            Some(Bar { name: name.clone(), kind: kind(row), value })
        })
        .collect();
    let spread = bars.iter().any(|bar| bar.value.max > bar.value.min);
    let table: Vec<Vec<String>> = bars
        .iter()
        .map(|bar| {
            let Bar { name, kind, value } = bar;
            let mut cells = vec![name.clone(), kind.text().into(), measure.text(value.median)];
            if spread {
                cells.extend([measure.text(value.min), measure.text(value.max)]);
            }
            cells
        })
        .collect();
    let head = ["row", "from", "median", "least", "most"];
    let head = if spread { &head[..] } else { &["row", "from", "value"] };
    html! {
        figure {
            h3 { (measure.what) }
            figcaption {
                (measure.better)
                @if spread { "; the line is from the smallest to the largest round" }
            }
            (bars::legend(&bars))
            @if bars.len() <= BARS { (bars::chart(measure.what, &bars, |v| measure.text(v))) }
            details open[bars.len() > BARS] {
                summary { "As a table" }
                (tables::plain(measure.what, head, 2, &table))
            }
        }
    }
}

fn latency_figure(rows: &[&Fields], names: &[String]) -> Markup {
    let found: Vec<(String, Vec<(&str, f64)>)> = names
        .iter()
        .zip(rows)
        .map(|(name, row)| (name.clone(), measure::latencies(row)))
        .filter(|(_, percentiles)| percentiles.len() > 1)
        .collect();
    let table: Vec<Vec<String>> = found
        .iter()
        .map(|(name, percentiles)| {
            let value = |wanted: &str| {
                let found = percentiles.iter().find(|(name, _)| *name == wanted);
                found.map_or_else(String::new, |(_, us)| number::microseconds(*us))
            };
            vec![name.clone(), value("p50"), value("p99"), value("p99.9")]
        })
        .collect();
    html! {
        @if !found.is_empty() && found.len() <= BARS {
            figure {
                h3 { "Latency of an operation" }
                figcaption { "less is better; the axis is logarithmic" }
                (lines::percentile_legend(&found))
                (lines::percentiles(&found))
                details {
                    summary { "As a table" }
                    (tables::plain("Latency", &["row", "p50", "p99", "p99.9"], 1, &table))
                }
            }
        }
    }
}

/// Miss ratios by budget, if the rows are points of curves.
fn curves(rows: &[&Fields]) -> Option<Vec<Line>> {
    let mut lines: Vec<Line> = Vec::new();
    let mut budgets: BTreeMap<String, u32> = BTreeMap::new();
    for row in rows {
        let point = (row.get("max_bytes")?.as_f64()?, 100.0 * row.get("miss_ratio")?.as_f64()?);
        let name = measure::text_of(row, "policy")?.to_owned();
        *budgets.entry(name.clone()).or_default() += 1;
        match lines.iter_mut().find(|line| line.name == name) {
            Some(line) => line.points.push(point),
            None => lines.push(Line { bound: name == "opt", name, points: vec![point] }),
        }
    }
    lines.iter_mut().for_each(|line| line.points.sort_by(|a, b| a.0.total_cmp(&b.0)));
    (budgets.values().any(|&points| points > 2)).then_some(lines)
}

fn curve_figure(all: &[Line]) -> Markup {
    // A bound is shown whatever else is.
    let bounds = all.iter().filter(|line| line.bound);
    let shown: Vec<Line> =
        all.iter().filter(|line| !line.bound).take(LINES).chain(bounds).cloned().collect();
    let sizes = || all.iter().flat_map(|line| &line.points).map(|point| point.0);
    let (least, most) = (sizes().fold(f64::INFINITY, f64::min), sizes().fold(0.0, f64::max));
    let log = (least > 0.0 && most / least > 30.0).then_some(2.0);
    let across =
        Axis { what: "memory budget", text: number::bytes, log, ticks: number::byte_ticks };
    let upwards = Axis::linear("miss ratio, %");
    let mut budgets: Vec<f64> = sizes().collect();
    budgets.sort_by(f64::total_cmp);
    budgets.dedup();
    let mut head = vec!["budget"];
    head.extend(all.iter().map(|line| line.name.as_str()));
    let table: Vec<Vec<String>> = budgets
        .into_iter()
        .map(|budget| {
            let at = |line: &Line| {
                let point = line.points.iter().find(|point| point.0 == budget);
                point.map_or_else(String::new, |point| format!("{:.2}", point.1))
            };
            std::iter::once(number::bytes(budget)).chain(all.iter().map(at)).collect()
        })
        .collect();
    html! {
        figure {
            h3 { "Miss ratio by memory budget" }
            figcaption {
                "less is better; opt knows the future and is a bound"
                @if shown.len() < all.len() { "; " (all.len() - shown.len()) " more in the table" }
            }
            (lines::legend(&shown))
            (lines::chart(&shown, &across, &upwards))
            details {
                summary { "As a table" }
                (tables::plain("Miss ratio, %", &head, 1, &table))
            }
        }
    }
}

/// The device of a row, second by second.
fn device_figure(name: &str, row: &Fields) -> Markup {
    let samples = row.get("samples").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let line = |field: &str, what: &str| {
        let points: Vec<(f64, f64)> = samples
            .iter()
            .zip(1_u32..)
            .filter_map(|(sample, second)| Some((f64::from(second), sample.get(field)?.as_f64()?)))
            .collect();
        (points.len() > 1).then(|| Line { name: what.into(), points, bound: false })
    };
    let across = Axis::linear("second");
    let found: Vec<(Line, &str)> =
        [(line("read_kib", "read"), "KiB a second"), (line("util_pct", "busy"), "%")]
            .into_iter()
            .filter_map(|(line, unit)| Some((line?, unit)))
            .collect();
    let table: Vec<Vec<String>> = samples
        .iter()
        .zip(1_u32..)
        .map(|(sample, second)| {
            let cell = |field: &str| {
                let value = sample.get(field).and_then(Value::as_f64);
                value.map_or_else(String::new, number::text)
            };
            vec![second.to_string(), cell("tps"), cell("read_kib"), cell("util_pct")]
        })
        .collect();
    html! {
        @if !found.is_empty() {
            details {
                summary { "The device, second by second: " (name) }
                @for (line, unit) in &found {
                    figure {
                        h3 { "Device " (line.name) ", " (unit) }
                        (lines::chart(std::slice::from_ref(line), &across,
                            &Axis::linear(unit)))
                    }
                }
                (tables::plain("The device", &["second", "requests", "KiB read", "busy %"], 1,
                    &table))
            }
        }
    }
}
