//! A figure that several pages show stands in one file, `results/*.csv`, and the tables of the
//! pages are written from it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use lowtide_tidy::{root, texts, with_tables};

/// Tables that are written so, now. There may only be more.
const TABLES_MIN: usize = 3;

#[test]
fn tables_of_results_are_what_their_files_have() {
    let write = std::env::var_os("LOWTIDE_WRITE_TABLES").is_some();
    let (mut stale, mut tables) = (Vec::new(), 0);
    for text in texts().into_iter().filter(|text| text.kind() == "md") {
        let read = |path: &str| fs::read_to_string(root().join(path)).map_err(|e| e.to_string());
        let made = with_tables(&text.content, read);
        let (made, count) = made.unwrap_or_else(|why| panic!("{}: {why}", text.path));
        tables += count;
        if made == text.content {
            continue;
        }
        if write {
            fs::write(root().join(&text.path), made).expect("a page can be written");
        } else {
            stale.push(text.path);
        }
    }
    assert!(stale.is_empty(), "LOWTIDE_WRITE_TABLES=1 writes them again: {}", stale.join(" "));
    assert!(tables >= TABLES_MIN, "{tables} tables");
}

#[test]
fn every_file_of_results_is_shown_on_a_page() {
    let files = fs::read_dir(root().join("results")).expect("the results");
    let files = files.map(|file| file.expect("a file").file_name().into_string().expect("a name"));
    let files: BTreeSet<String> = files.filter(|name| name.ends_with(".csv")).collect();
    let texts = texts();
    let is_shown = |name: &&String| {
        let marker = format!("<!-- table results/{name} ");
        texts.iter().any(|text| text.kind() == "md" && text.content.contains(&marker))
    };
    let unused: Vec<_> = files.iter().filter(|name| !is_shown(name)).collect();
    assert!(unused.is_empty() && !files.is_empty(), "no page shows {unused:?}");
}

/// A condition of the evaluation, by the columns of its file.
fn conditions() -> Vec<BTreeMap<String, String>> {
    let path = root().join("results/eval.csv");
    let mut file = csv::Reader::from_path(path).expect("the evaluation");
    let head = file.headers().expect("its columns").clone();
    let cells = |row: csv::StringRecord| head.iter().zip(&row).map(owned).collect();
    file.records().map(|row| cells(row.expect("a condition"))).collect()
}

fn owned((name, cell): (&str, &str)) -> (String, String) {
    (name.trim_end_matches(':').to_owned(), cell.to_owned())
}

/// A rule that is met where one arm stands for all of them says nothing: then each ratio of two
/// arms is 1, and each difference 0.
#[test]
fn no_effect_of_the_evaluation_is_met_by_one_arm_in_place_of_all() {
    let all = conditions();
    let effects: Vec<_> = all.iter().filter(|row| row["kind"] == "effect").collect();
    assert!(effects.len() >= 15, "{} effects", effects.len());
    for row in effects {
        let alike = if row["what"].contains(" less ") { 0.0 } else { 1.0 };
        let number = |text: &str| text.parse::<f64>().expect("a bound");
        let (least, most) = match row["range"].split_once(" to ") {
            Some((least, most)) => (number(least), number(most)),
            None => (number(&row["range"]), number(&row["range"])),
        };
        assert!(!(least..=most).contains(&alike), "{row:?}");
        assert!(!row["verdict"].contains("too wide"), "{row:?}");
    }
}

#[test]
fn the_page_counts_the_conditions_of_each_kind() {
    let page = fs::read_to_string(root().join("docs/published.md")).expect("the page");
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    let all = conditions();
    for kind in ["effect", "agreement"] {
        let is_judged = |row: &&BTreeMap<String, String>| row["verdict"] != "not measured";
        let of_kind = all.iter().filter(|row| row["kind"] == kind).filter(is_judged);
        let met = of_kind.clone().filter(|row| row["verdict"] == "reproduced").count();
        let said = format!("{met} of {} {kind}s", of_kind.count());
        assert!(page.contains(&said), "docs/published.md does not say {said}");
    }
}
