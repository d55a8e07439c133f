//! The dashboard and the alerts name metrics that exist.

use lowtide_status::metrics;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Words that look like names of metrics.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let kinds = ["lowtide_process_", "lowtide_pager_", "lowtide_tenant_"];
    let is_name = |word: &&str| kinds.iter().any(|kind| word.starts_with(kind));
    words.filter(is_name).map(str::to_owned).collect()
}

fn check(text: &str, least: usize) {
    let known: BTreeSet<String> = metrics::names().collect();
    let named = named(text);
    let unknown: Vec<_> = named.difference(&known).collect();
    assert!(unknown.is_empty(), "there are no such metrics: {unknown:?}");
    assert!(named.len() >= least, "only {named:?}");
}

#[test]
fn the_dashboard_is_valid_and_shows_metrics_that_exist() {
    let text = read("packages/grafana/lowtide.json");
    let board: Value = serde_json::from_str(&text).expect("JSON");
    let panels = board["panels"].as_array().expect("panels");
    let mut queries = 0;
    let mut numbers = BTreeSet::new();
    for panel in panels {
        assert!(numbers.insert(panel["id"].as_u64()), "two panels have one number");
        assert!(panel["title"].is_string() && panel["gridPos"]["w"].is_u64());
        for target in panel["targets"].as_array().into_iter().flatten() {
            queries += 1;
            let query = target["expr"].as_str().expect("a query");
            assert!(!named(query).is_empty(), "{query}");
            let pairs = [('(', ')'), ('{', '}'), ('[', ']')];
            assert!(
                pairs.iter().all(|(a, b)| query.matches(*a).count() == query.matches(*b).count())
            );
        }
    }
    assert!(queries > 20, "{queries} queries");
    check(&text, 20);
}

#[test]
fn the_alerts_and_the_list_of_metrics_name_metrics_that_exist() {
    check(&read("docs/watching.md"), 12);
}
