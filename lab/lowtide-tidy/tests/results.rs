//! A figure that several pages show stands in one file, `results/*.csv`, and the tables of the
//! pages are written from it.

use std::collections::BTreeSet;
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
