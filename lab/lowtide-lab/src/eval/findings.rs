//! What an evaluation found: the conditions of every rule, as a table, as CSV, and counted.

use lowtide_report::table;
use lowtide_report::verdict::{CriterionRow, REPRODUCED};
use serde_json::Value;

/// The outcome of what has no result.
const NOT_MEASURED: &str = "not measured";

/// A condition of an experiment's rule.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    pub(super) experiment: &'static str,
    pub(super) criterion: CriterionRow,
}

/// The conditions in a result.
pub(super) fn of(experiment: &'static str, result: &Value) -> Vec<Finding> {
    let verdict = result.get("verdict").cloned().unwrap_or_default();
    let criteria: Vec<CriterionRow> = serde_json::from_value(verdict).unwrap_or_default();
    criteria.into_iter().map(|criterion| Finding { experiment, criterion }).collect()
}

/// What stands for an experiment without a result.
pub(super) fn failed(experiment: &'static str) -> Finding {
    let criterion = CriterionRow {
        policy: None,
        what: "the experiment".into(),
        kind: String::new(),
        value: None,
        least: 0.0,
        most: None,
        published: "-".into(),
        outcome: NOT_MEASURED.into(),
    };
    Finding { experiment, criterion }
}

/// Takes a condition for one that was not measured.
pub(super) fn leave_open(criterion: &mut CriterionRow) {
    criterion.value = None;
    criterion.outcome = NOT_MEASURED.into();
}

/// The verdict over several seeds: of each condition, that of the seed with the median value. Of an
/// even number, that of the lower one of the two in the middle.
pub(super) fn over_seeds(results: &[Value]) -> Vec<CriterionRow> {
    let all: Vec<Vec<CriterionRow>> = results
        .iter()
        .map(|result| serde_json::from_value(result["verdict"].clone()).unwrap_or_default())
        .collect();
    let Some((first, _)) = all.split_first() else { return Vec::new() };
    let median = |of: &CriterionRow| {
        let same = |other: &&CriterionRow| (&other.policy, &other.what) == (&of.policy, &of.what);
        let mut found: Vec<&CriterionRow> = all.iter().flatten().filter(same).collect();
        let value = |row: &CriterionRow| row.value.unwrap_or(f64::NAN);
        found.sort_by(|a, b| value(a).total_cmp(&value(b)));
        found[(found.len() - 1) / 2].clone()
    };
    first.iter().map(median).collect()
}

/// The table for the terminal: a line with the name of each experiment, and its conditions below.
pub(super) fn lines(findings: &[Finding]) -> String {
    let mut table = table::new(&["compared", "published", "here", "verdict"], 1);
    let same = |a: &Finding, b: &Finding| {
        (a.experiment, &a.criterion.policy) == (b.experiment, &b.criterion.policy)
    };
    for group in findings.chunk_by(same) {
        let name = match &group[0].criterion.policy {
            Some(policy) => format!("{}, {policy}:", group[0].experiment),
            None => format!("{}:", group[0].experiment),
        };
        table.add_row([name, String::new(), String::new(), String::new()]);
        for Finding { criterion, .. } in group {
            table.add_row([
                criterion.what.clone(),
                criterion.published.clone(),
                criterion.value_text(),
                criterion.outcome.clone(),
            ]);
        }
    }
    table.to_string()
}

/// How many of each kind came out in which way. What was not published counts for nothing.
pub(super) fn counts(findings: &[Finding]) -> String {
    let of = |kind: &str, outcome: &str| {
        let is = |one: &&Finding| one.criterion.kind == kind && one.criterion.outcome == outcome;
        findings.iter().filter(is).count()
    };
    let measured = |kind| {
        let is =
            |one: &&Finding| one.criterion.kind == kind && one.criterion.outcome != NOT_MEASURED;
        format!("{} of {} {kind}s", of(kind, REPRODUCED), findings.iter().filter(is).count())
    };
    let none = findings.iter().filter(|one| one.criterion.outcome == NOT_MEASURED).count();
    format!(
        "reproduced: {}, {}; {none} not measured, {} without a published figure",
        measured("effect"),
        measured("agreement"),
        of("unpublished", "not published")
    )
}

/// The conditions as CSV, as tables of documents are written from it: an `id` for each, and the
/// words of the table. `run` is `quick` or `full`.
pub(super) fn csv(findings: &[Finding], run: &str) -> Vec<u8> {
    let mut text = String::from("id,run,kind,what,published,range,here:,verdict\n");
    let mut number = 0;
    for (index, Finding { experiment, criterion }) in findings.iter().enumerate() {
        let begins = index == 0 || findings[index - 1].experiment != *experiment;
        number = if begins { 1 } else { number + 1 };
        let what = match &criterion.policy {
            Some(policy) => format!("{policy}: {}", criterion.what),
            None => criterion.what.clone(),
        };
        let cells = [
            format!("{experiment}/{number}"),
            run.to_owned(),
            criterion.kind.clone(),
            what,
            criterion.published.clone(),
            criterion.range_text(),
            criterion.value_text(),
            match criterion.outcome.as_str() {
                REPRODUCED | NOT_MEASURED | "not published" => criterion.outcome.clone(),
                other => format!("**{other}**"),
            },
        ];
        line(&mut text, &cells);
    }
    text.into_bytes()
}

/// Published figures beside ours as CSV.
pub(super) fn figures_csv(figures: &[(&str, Value)]) -> Vec<u8> {
    const COLUMNS: [&str; 8] =
        ["workload", "variant", "source", "metric", "unit", "arm", "published", "ours"];
    let mut text = format!("experiment,{}\n", COLUMNS.join(","));
    for (experiment, figure) in figures {
        let cells = COLUMNS.map(|name| match &figure[name] {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        });
        let cells: Vec<String> = std::iter::once((*experiment).to_owned()).chain(cells).collect();
        line(&mut text, &cells);
    }
    text.into_bytes()
}

/// Adds a line, with cells in quotes where they need them.
fn line(text: &mut String, cells: &[String]) {
    let quoted = |cell: &String| match cell.contains([',', '"', '\n']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell.clone(),
    };
    *text += &cells.iter().map(quoted).collect::<Vec<_>>().join(",");
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn result(value: f64, outcome: &str) -> Value {
        json!({"verdict": [{"what": "gain, after / before", "kind": "effect", "value": value,
            "least": 1.1, "published": "1.2", "outcome": outcome}]})
    }

    #[test]
    fn the_median_seed_decides() {
        let seeds = [
            result(1.3, "reproduced"),
            result(1.0, "not reproduced"),
            result(1.05, "not reproduced"),
        ];
        let found = over_seeds(&seeds);
        assert_eq!((found[0].value, found[0].is_met()), (Some(1.05), false));
        assert_eq!(over_seeds(&seeds[..2])[0].value, Some(1.0), "the lower one of two");
        assert!(over_seeds(&[]).is_empty());
    }

    #[test]
    fn findings_are_counted_and_named_in_csv() {
        let mut open = of("x", &result(1.3, "reproduced"));
        leave_open(&mut open[0].criterion);
        assert_eq!(counts(&open), counts(&[failed("x")]));
        let mut all = of("a", &result(1.3, "reproduced"));
        all.extend(of("b", &result(1.0, "not reproduced")));
        all.extend(of("b", &result(1.3, "reproduced")));
        all.push(failed("c"));
        let table = lines(&all);
        assert!(table.contains("\nb:\n") && table.lines().all(|line| line.len() <= 100), "{table}");
        assert_eq!(
            counts(&all),
            "reproduced: 2 of 3 effects, 0 of 0 agreements; 1 not measured, 0 without a published \
             figure"
        );
        let text = String::from_utf8(csv(&all, "quick")).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[1],
            "a/1,quick,effect,\"gain, after / before\",1.2,at least 1.1,1.300,reproduced"
        );
        assert!(lines[2].starts_with("b/1,") && lines[2].ends_with(",1.000,**not reproduced**"));
        assert!(lines[3].starts_with("b/2,") && lines[4].starts_with("c/1,"));
        assert!(of("a", &json!({"verdict": 7})).is_empty());
    }
}
