//! Results as text and JSON.

use super::advise::{Advice, Verdict};
use super::curve::{Curve, Point};
use lowtide_core::Size;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// One measured size of one policy, as in the JSON. The names are an interface.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The policy's name.
    pub policy: String,
    /// The budget.
    pub max_bytes: u64,
    /// Number of accesses, of one page each.
    pub accesses: u64,
    /// Accesses whose page was not resident.
    pub misses: u64,
    /// `misses / accesses`, from 0 to 1.
    pub miss_ratio: f64,
}

/// One size that a policy rejected, as in the JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The policy's name.
    pub policy: String,
    /// The budget.
    pub max_bytes: u64,
    /// The reason.
    pub reason: String,
}

/// An [`Advice`] as in the JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AdviceRow {
    /// The policy's name.
    pub policy: String,
    /// The requested miss ratio.
    pub target: f64,
    /// The miss ratio of the cold misses alone.
    pub floor: f64,
    /// The smallest sufficient budget found; `None` if no budget is sufficient.
    pub max_bytes: Option<u64>,
    /// The miss ratio measured with it.
    pub miss_ratio: Option<f64>,
    /// Larger budgets that were measured and are not sufficient.
    pub relapses_bytes: Vec<u64>,
}

/// The curves' points, curve by curve.
#[must_use]
pub fn rows(curves: &[Curve], page_bytes: u64) -> Vec<Row> {
    let row = |curve: &Curve| {
        let policy = curve.policy.clone();
        curve.points.clone().into_iter().map(move |point| Row {
            policy: policy.clone(),
            max_bytes: point.pages.saturating_mul(page_bytes),
            accesses: point.accesses,
            misses: point.misses,
            miss_ratio: point.miss_ratio(),
        })
    };
    curves.iter().flat_map(row).collect()
}

/// The curves' gaps, curve by curve.
#[must_use]
pub fn refusals(curves: &[Curve], page_bytes: u64) -> Vec<Refusal> {
    let gaps =
        curves.iter().flat_map(|curve| curve.gaps.iter().map(move |gap| (&curve.policy, gap)));
    gaps.map(|(policy, gap)| Refusal {
        policy: policy.clone(),
        max_bytes: gap.pages.saturating_mul(page_bytes),
        reason: gap.reason.clone(),
    })
    .collect()
}

impl Advice {
    /// The advice for the JSON.
    #[must_use]
    pub fn row(&self, page_bytes: u64) -> AdviceRow {
        let (at, relapses) = match &self.verdict {
            Verdict::Enough { at, relapses, .. } => (Some(at), relapses.as_slice()),
            Verdict::BelowFloor | Verdict::NotReached { .. } => (None, [].as_slice()),
        };
        AdviceRow {
            policy: self.policy.clone(),
            target: self.target,
            floor: self.floor,
            max_bytes: at.map(|point| point.pages.saturating_mul(page_bytes)),
            miss_ratio: at.map(Point::miss_ratio),
            relapses_bytes: relapses
                .iter()
                .map(|point| point.pages.saturating_mul(page_bytes))
                .collect(),
        }
    }

    /// The advice in one to three sentences, for people.
    #[must_use]
    pub fn sentences(&self, page_bytes: u64) -> String {
        let bytes = |pages: u64| Size::new(pages.saturating_mul(page_bytes)).short();
        let percent = |ratio: f64| format!("{} %", trimmed(ratio * 100.0, 4));
        let (policy, target) = (&self.policy, percent(self.target));
        match &self.verdict {
            Verdict::Enough { at, below, relapses, .. } => {
                let mut text = format!(
                    "{policy}: {} ({} pages) is enough for at most {target} misses: it has {}.",
                    bytes(at.pages),
                    at.pages,
                    percent(at.miss_ratio())
                );
                if let Some(below) = below {
                    text += &format!(
                        " {} ({} pages) is not enough: {}.",
                        bytes(below.pages),
                        below.pages,
                        percent(below.miss_ratio())
                    );
                }
                if !relapses.is_empty() {
                    let named = |point: &Point| {
                        format!("{} ({})", bytes(point.pages), percent(point.miss_ratio()))
                    };
                    text += &format!(
                        " More memory is not always better here; not enough: {}.",
                        relapses.iter().map(named).collect::<Vec<_>>().join(", ")
                    );
                }
                text
            }
            Verdict::BelowFloor => format!(
                "{policy}: no budget has at most {target} misses; first accesses, and those after \
                 a free, are {}.",
                percent(self.floor)
            ),
            Verdict::NotReached { best: Some(best) } => format!(
                "{policy}: no budget that was tried has at most {target} misses; the best is {} \
                 with {}.",
                bytes(best.pages),
                percent(best.miss_ratio())
            ),
            Verdict::NotReached { best: None } => {
                let reason = self.refused.last().map_or("it has none", |gap| &gap.reason);
                format!("{policy}: no budget could be tried: {reason}.")
            }
        }
    }
}

/// A number with three significant digits, but at most four decimals.
fn significant(value: f64) -> String {
    let decimals = match value.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        v if v >= 0.1 => 3,
        _ => 4,
    };
    trimmed(value, decimals)
}

/// A number with at most `decimals` decimals.
fn trimmed(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// Miss ratios with a row for each size and a column for each policy; displays as plain text.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Bytes in a page.
    pub page_bytes: u64,
    /// The footprint in pages, 100 % of the second column.
    pub footprint: u64,
    /// The policies, a column each.
    pub policies: Vec<String>,
    /// The sizes in pages, and each policy's miss ratio there, if it has one.
    pub rows: Vec<(u64, Vec<Option<f64>>)>,
    /// Cold misses as a share of the accesses.
    pub floor: f64,
    /// The distinct reasons why sizes were rejected, with the policy.
    pub reasons: Vec<String>,
}

impl Table {
    /// The table of some curves made from one tape with `footprint` distinct pages.
    #[must_use]
    pub fn new(curves: &[Curve], footprint: u64, page_bytes: u64) -> Self {
        let mut ratios: BTreeMap<u64, Vec<Option<f64>>> = BTreeMap::new();
        let mut reasons = BTreeSet::new();
        for (column, curve) in curves.iter().enumerate() {
            for point in &curve.points {
                let row = ratios.entry(point.pages).or_insert_with(|| vec![None; curves.len()]);
                row[column] = Some(point.miss_ratio());
            }
            for gap in &curve.gaps {
                ratios.entry(gap.pages).or_insert_with(|| vec![None; curves.len()]);
                reasons.insert(format!("{}: {}", curve.policy, gap.reason));
            }
        }
        let any = curves
            .iter()
            .find_map(|curve| curve.points.first().map(|point| (curve.cold, point.accesses)));
        Self {
            page_bytes,
            footprint,
            policies: curves.iter().map(|curve| curve.policy.clone()).collect(),
            rows: ratios.into_iter().collect(),
            floor: any.map_or(0.0, |(cold, accesses)| cold as f64 / accesses.max(1) as f64),
            reasons: reasons.into_iter().collect(),
        }
    }

    /// The headings of the columns.
    #[must_use]
    pub fn head(&self) -> Vec<String> {
        let fixed = ["budget", "of footprint"].map(str::to_owned);
        fixed.into_iter().chain(self.policies.iter().cloned()).collect()
    }

    /// The cells of the rows, as text: ratios in percent, `-` where there is none.
    #[must_use]
    pub fn cells(&self) -> Vec<Vec<String>> {
        let share = |pages: u64| significant(pages as f64 / self.footprint.max(1) as f64 * 100.0);
        let percent = |ratio: &Option<f64>| {
            ratio.map_or("-".to_owned(), |ratio| format!("{:.2} %", ratio * 100.0))
        };
        let row = |(pages, ratios): &(u64, Vec<Option<f64>>)| {
            let size = Size::new(pages.saturating_mul(self.page_bytes)).short().to_string();
            [size, format!("{} %", share(*pages))]
                .into_iter()
                .chain(ratios.iter().map(percent))
                .collect()
        };
        self.rows.iter().map(row).collect()
    }

    /// The notes below the table, one line each.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let floor = format!(
            "{:.2} % of the accesses miss at any size: first accesses, and those after a free.",
            self.floor * 100.0
        );
        [floor].into_iter().chain(self.reasons.iter().map(|reason| format!("- {reason}"))).collect()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<Vec<String>> = [self.head()].into_iter().chain(self.cells()).collect();
        let width = |column: usize| {
            lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..lines[0].len()).map(width).collect();
        for line in &lines {
            let cells: Vec<String> =
                line.iter().zip(&widths).map(|(cell, &width)| format!("{cell:>width$}")).collect();
            writeln!(f, "{}", cells.join("  "))?;
        }
        self.notes().iter().try_for_each(|note| writeln!(f, "{note}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Gap;

    fn curves() -> Vec<Curve> {
        let point = |pages, misses| Point { pages, accesses: 1000, misses };
        let gaps = vec![Gap { pages: 16, reason: "at least 32 pages are needed".to_owned() }];
        vec![
            Curve {
                policy: "mglru".to_owned(),
                points: vec![point(256, 100), point(2560, 10)],
                gaps,
                cold: 10,
            },
            Curve {
                policy: "opt".to_owned(),
                points: vec![point(16, 500), point(256, 45)],
                gaps: vec![],
                cold: 10,
            },
        ]
    }

    #[test]
    fn the_table_has_a_row_a_size_and_a_column_a_policy() {
        let table = Table::new(&curves(), 2560, 4096).to_string();
        let expected = "budget  of footprint    mglru      opt\n\
                        \x20  64K       0.625 %        -  50.00 %\n\
                        \x20   1M          10 %  10.00 %   4.50 %\n\
                        \x20  10M         100 %   1.00 %        -\n\
                        1.00 % of the accesses miss at any size: first accesses, and those after \
                        a free.\n\
                        - mglru: at least 32 pages are needed\n";
        assert_eq!(table, expected);
    }

    #[test]
    fn the_names_in_the_json_are_an_interface() {
        let json = serde_json::to_string(&rows(&curves(), 4096)[0]).unwrap();
        assert_eq!(
            json,
            concat!(
                r#"{"policy":"mglru","max_bytes":1048576,"#,
                r#""accesses":1000,"misses":100,"miss_ratio":0.1}"#
            )
        );
        let json = serde_json::to_string(&refusals(&curves(), 4096)).unwrap();
        assert_eq!(
            json,
            r#"[{"policy":"mglru","max_bytes":65536,"reason":"at least 32 pages are needed"}]"#
        );
    }

    #[test]
    fn advice_is_said_in_plain_words() {
        let point = |pages, misses| Point { pages, accesses: 1000, misses };
        let verdict = Verdict::Enough {
            at: point(256, 9),
            below: Some(point(254, 11)),
            above: None,
            relapses: vec![point(300, 12)],
        };
        let mut advice = Advice {
            policy: "mglru".to_owned(),
            target: 0.01,
            floor: 0.005,
            verdict,
            tried: vec![],
            refused: vec![],
        };
        assert_eq!(
            advice.sentences(4096),
            "mglru: 1M (256 pages) is enough for at most 1 % misses: it has 0.9 %. 1016K \
             (254 pages) is not enough: \
             1.1 %. More memory is not always better here; not enough: 1.2M (1.2 %)."
        );
        assert_eq!(advice.row(4096).max_bytes, Some(1 << 20));
        advice.verdict = Verdict::BelowFloor;
        assert!(advice.sentences(4096).contains("are 0.5 %"));
        assert_eq!(advice.row(4096).max_bytes, None);
    }
}
