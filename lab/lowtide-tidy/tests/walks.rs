//! The walks through the sources stay walks: five sentences each, and no file is visited twice.

use lowtide_tidy::{parts, root};
use std::collections::BTreeSet;
use std::fs;

/// The files that a sentence names, each with its folder.
fn files(sentence: &str) -> Vec<String> {
    let mut folder = String::new();
    let mut found = Vec::new();
    for path in parts(sentence, true).filter(|part| part.ends_with(".rs")) {
        let whole = match path.rsplit_once('/') {
            Some((inside, _)) => {
                folder = inside.to_owned();
                path.to_owned()
            }
            None => format!("{folder}/{path}"),
        };
        found.push(whole);
    }
    found
}

#[test]
fn a_walk_is_five_sentences_and_visits_no_file_twice() {
    let page = fs::read_to_string(root().join("docs/design/walks.md")).expect("the walks");
    let walks: Vec<&str> = page.split("\n## ").skip(1).collect();
    assert_eq!(walks.len(), 5, "a read, a store, a reclaim, a fault in `run` and an experiment");
    for walk in walks {
        let (title, steps) = walk.split_once('\n').expect("a walk after its title");
        let sentences: Vec<&str> = (1..=9)
            .flat_map(|n| steps.split_once(&format!("\n{n}. ")))
            .map(|(_, rest)| rest)
            .collect();
        assert_eq!(sentences.len(), 5, "sentences of {title}");
        let visited = files(steps);
        assert!(visited.len() >= 5, "{title} visits files");
        let different: BTreeSet<&String> = visited.iter().collect();
        assert_eq!(different.len(), visited.len(), "{title} visits a file twice: {visited:?}");
    }
}

#[test]
fn files_are_found_with_their_folders() {
    assert_eq!(files("as `A::b` (`a/b.rs`, `c.rs`) and `d/e.rs`"), ["a/b.rs", "a/c.rs", "d/e.rs"]);
}
