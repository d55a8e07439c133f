//! Whether a published result is reproduced: the conditions of a written rule, each with what was
//! measured, as in the JSON (`verdict`) and as lines below a table.
//!
//! The rule itself is where the published figures are; here are only its answers, so that a command
//! that collects results, or draws them, reads the same words as the terminal shows.

use serde::{Deserialize, Serialize};

use crate::table;

/// The word for a condition that is met; others say why not.
pub const REPRODUCED: &str = "reproduced";

/// One condition of a verdict. The names are an interface.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CriterionRow {
    /// The policy that the condition is about, where each has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// What is compared, in words.
    pub what: String,
    /// `effect` (arms differ), `agreement` (they are alike, or one is as published) or
    /// `unpublished`.
    #[serde(default)]
    pub kind: String,
    /// What was measured; absent if that is infinite, or no number, as nothing divided by nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// The least that counts as reproduced.
    pub least: f64,
    /// The most that does; absent without a bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<f64>,
    /// The same in the postings, in words.
    pub published: String,
    /// `reproduced`, `not reproduced`, `suspicious` (more than was published, by too much), `too
    /// wide` (arms that do not differ would show the effect) or `not published`.
    pub outcome: String,
}

impl CriterionRow {
    /// Whether it is met.
    #[must_use]
    pub fn is_met(&self) -> bool {
        self.outcome == REPRODUCED
    }

    /// The measured value as text.
    #[must_use]
    pub fn value_text(&self) -> String {
        self.value.map_or_else(|| "none".into(), |value| format!("{value:.3}"))
    }

    /// The range that counts, as text.
    #[must_use]
    pub fn range_text(&self) -> String {
        match self.most {
            Some(most) if most > self.least => format!("{} to {}", bound(self.least), bound(most)),
            Some(only) => bound(only),
            None => format!("at least {}", bound(self.least)),
        }
    }
}

/// What follows from rows: lines for people, and a verdict.
#[derive(Clone, Debug, Default)]
pub struct Closing {
    /// Lines below the table.
    pub lines: Vec<String>,
    /// The conditions; empty if nothing was published, or what was does not compare.
    pub verdict: Vec<CriterionRow>,
}

impl Closing {
    /// The lines, and the conditions as tables: one for each policy that has its own.
    #[must_use]
    pub fn text(&self) -> Vec<String> {
        let mut lines = self.lines.clone();
        for criteria in self.verdict.chunk_by(|a, b| a.policy == b.policy) {
            let table = table_of(criteria);
            match &criteria[0].policy {
                Some(policy) => lines.extend([format!("\nwith {policy}:"), table]),
                None => lines.push(format!("\n{table}")),
            }
        }
        lines
    }
}

impl From<Vec<String>> for Closing {
    fn from(lines: Vec<String>) -> Self {
        Self { lines, verdict: Vec::new() }
    }
}

impl From<&[String]> for Closing {
    fn from(lines: &[String]) -> Self {
        lines.to_vec().into()
    }
}

impl<const N: usize> From<[String; N]> for Closing {
    fn from(lines: [String; N]) -> Self {
        Vec::from(lines).into()
    }
}

/// A bound with as many decimals as it needs, up to those of a value.
fn bound(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn table_of(criteria: &[CriterionRow]) -> String {
    let mut table = table::new(&["reproduced?", "here", "at least", "at most", "published", ""], 1);
    for criterion in criteria {
        table.add_row([
            criterion.what.clone(),
            criterion.value_text(),
            bound(criterion.least),
            criterion.most.map_or_else(|| "-".into(), bound),
            criterion.published.clone(),
            criterion.outcome.clone(),
        ]);
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn criterion(policy: Option<&str>, value: Option<f64>, most: Option<f64>) -> CriterionRow {
        CriterionRow {
            policy: policy.map(Into::into),
            what: "read, after / before".into(),
            kind: "effect".into(),
            value,
            least: 0.55,
            most,
            published: "0.64 to 0.70".into(),
            outcome: "not reproduced".into(),
        }
    }

    #[test]
    fn each_policy_has_a_table_and_lines_come_first() {
        let verdict = vec![
            criterion(Some("mglru"), Some(0.9), Some(0.8)),
            criterion(Some("mglru"), Some(0.9), None),
            criterion(Some("lru"), None, None),
        ];
        let text = Closing { lines: vec!["a line".into()], verdict }.text().join("\n");
        assert!(text.starts_with("a line\n\nwith mglru:\nreproduced?"), "{text}");
        assert_eq!(text.matches("reproduced?").count(), 2, "{text}");
        assert!(text.contains("\nwith lru:\n") && text.contains("none"), "{text}");
    }

    #[test]
    fn a_range_has_the_decimals_that_it_needs() {
        let range =
            |least, most| CriterionRow { least, ..criterion(None, None, most) }.range_text();
        assert_eq!(range(0.9652, Some(0.9747)), "0.965 to 0.975");
        assert_eq!(range(0.55, Some(0.8)), "0.55 to 0.8");
        assert_eq!(range(0.0, Some(0.0)), "0");
        assert_eq!(range(20.0, None), "at least 20");
    }

    #[test]
    fn the_names_in_the_json_are_an_interface() {
        let row = criterion(Some("lru"), Some(0.9), Some(0.8));
        let json = serde_json::to_string(&row).unwrap();
        assert_eq!(
            json,
            r#"{"policy":"lru","what":"read, after / before","kind":"effect","value":0.9,"least":"#
                .to_owned()
                + r#"0.55,"most":0.8,"published":"0.64 to 0.70","outcome":"not reproduced"}"#
        );
        assert_eq!(serde_json::from_str::<CriterionRow>(&json).unwrap(), row);
    }
}
