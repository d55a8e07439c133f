//! Tables of a page: the verdict, published figures beside ours, and the figures of each picture.

use maud::{Markup, html};
use serde_json::Value;

use super::document::Document;
use super::measure::{Fields, at};
use super::number;
use crate::verdict::{CriterionRow, REPRODUCED};

/// A table with a caption; the first `names` columns are text and the others numbers.
pub(super) fn plain(caption: &str, head: &[&str], names: usize, rows: &[Vec<String>]) -> Markup {
    let class = |column: usize| (column >= names).then_some("n");
    html! {
        div.wide {
            table {
                caption { (caption) }
                thead { tr { @for (column, name) in head.iter().enumerate() {
                    th scope="col" class=[class(column)] { (name) }
                } } }
                tbody { @for row in rows { tr {
                    @for (column, cell) in row.iter().enumerate() {
                        td class=[class(column)] { (cell) }
                    }
                } } }
            }
        }
    }
}

/// How many conditions came out in which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) met: usize,
    pub(super) missed: usize,
    pub(super) none: usize,
}

impl Counts {
    pub(super) fn of(documents: &[Document]) -> Self {
        let mut counts = Self::default();
        for criterion in documents.iter().flat_map(|document| &document.verdict) {
            match class(criterion) {
                "met" => counts.met += 1,
                "none" => counts.none += 1,
                _ => counts.missed += 1,
            }
        }
        counts
    }

    pub(super) const fn all(self) -> usize {
        self.met + self.missed + self.none
    }
}

/// The outcome as a class; its mark and its words say the same without colour.
fn class(criterion: &CriterionRow) -> &'static str {
    match criterion.outcome.as_str() {
        REPRODUCED => "met",
        "not measured" | "not published" => "none",
        _ => "missed",
    }
}

fn mark(criterion: &CriterionRow) -> &'static str {
    match class(criterion) {
        "met" => "✓",
        "none" => "–",
        _ if criterion.outcome == "suspicious" => "!",
        _ => "✗",
    }
}

/// The conditions of all results, a group for each.
pub(super) fn verdict(documents: &[Document]) -> Markup {
    html! {
        table.stack {
            thead { tr {
                th scope="col" { "What is compared" } th scope="col" { "Published" }
                th scope="col" { "Counts as reproduced" } th.n scope="col" { "Here" }
                th scope="col" { "Verdict" }
            } }
            @for document in documents {
                @for group in document.verdict.chunk_by(|a, b| a.policy == b.policy) {
                    tbody {
                        tr.group { th colspan="5" scope="rowgroup" {
                            (document.title())
                            @if let Some(policy) = &group[0].policy { ", " (policy) }
                        } }
                        @for criterion in group { (condition(criterion)) }
                    }
                }
            }
        }
    }
}

fn condition(criterion: &CriterionRow) -> Markup {
    html! {
        tr {
            td.name { (criterion.what) }
            td data-is="published" { (criterion.published) }
            td data-is="counts" { (criterion.range_text()) }
            td.n data-is="here" { (criterion.value_text()) }
            td class=(class(criterion)) data-is="verdict" {
                span { span aria-hidden="true" { (mark(criterion)) " " } (criterion.outcome) }
            }
        }
    }
}

/// Published figures beside ours, if the result has them (`figures`, of `lowtide-lab eval`).
pub(super) fn figures(document: &Document) -> Option<Markup> {
    let figures = document.value.get("figures")?.as_array().filter(|lines| !lines.is_empty())?;
    let text = |line: &Value, name: &str| match line.get(name) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(value)) => value.as_f64().map_or_else(String::new, number::text),
        _ => String::new(),
    };
    let head = ["variant", "posting", "figure", "arm", "published", "here", "here / published"];
    let rows: Vec<Vec<String>> = figures
        .iter()
        .map(|line| {
            let ratio = line["ours"].as_f64().zip(line["published"].as_f64());
            let ratio = ratio.filter(|(_, published)| *published != 0.0);
            let unit = text(line, "unit");
            vec![
                text(line, "variant"),
                text(line, "source"),
                format!("{}, {unit}", text(line, "metric")),
                text(line, "arm"),
                text(line, "published"),
                text(line, "ours"),
                ratio.map_or_else(String::new, |(ours, published)| {
                    format!("{:.2}", ours / published)
                }),
            ]
        })
        .collect();
    Some(plain("Every published figure beside ours", &head, 4, &rows))
}

/// Scalar figures of all rows: what pictures leave out.
pub(super) fn all(names: &[String], rows: &[&Fields]) -> Markup {
    let mut columns: Vec<String> = Vec::new();
    let mut add = |path: String, value: &Value| {
        let shown = value.is_number() || value.is_boolean();
        if shown && !columns.contains(&path) {
            columns.push(path);
        }
    };
    for row in rows {
        for (name, value) in *row {
            match value.as_object() {
                Some(inner) => inner.iter().for_each(|(n, v)| add(format!("{name}/{n}"), v)),
                None => add(name.clone(), value),
            }
        }
    }
    html! {
        div.wide {
            table {
                caption { "Every figure of every row, by its name in the JSON" }
                thead { tr {
                    th scope="col" { "figure" }
                    @for name in names { th.n scope="col" { (name) } }
                } }
                tbody { @for column in &columns { tr {
                    td { code { (column) } }
                    @for row in rows { td.n { (cell(at(row, column))) } }
                } } }
            }
        }
    }
}

fn cell(value: Option<&Value>) -> String {
    match value {
        Some(Value::Number(value)) => value.as_f64().map_or_else(String::new, number::text),
        Some(Value::Bool(value)) => value.to_string(),
        _ => String::new(),
    }
}
