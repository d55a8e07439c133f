//! The sources can be read: lines fit a terminal, files have one concept each, words are plain.

use lowtide_tidy::{Text, banned, texts, too_wide};
use std::collections::BTreeMap;

/// Lines of a file.
const LINES_MAX: usize = 700;
/// Files that are longer, with their lines now. They may only become fewer.
const LONG: [(&str, usize); 0] = [];

/// Lines with a banned word, by crate, where there still are some. They may only become fewer; a
/// crate that takes files over from another takes their number, too.
const BANNED_LINES: [(&str, usize); 2] = [("lowtide-experiments", 7), ("lowtide-sim", 7)];
/// The crate that has the list of the words.
const OWN_WORDS: &str = "lab/lowtide-tidy/";

fn sources() -> Vec<Text> {
    let all: Vec<Text> = texts().into_iter().filter(|text| text.kind() == "rs").collect();
    assert!(all.len() > 400, "the repository has hundreds of sources, found {}", all.len());
    all
}

/// The crate of a source: its folder below `crates` or `lab`, or the first folder.
fn home(text: &Text) -> String {
    let mut steps = text.path.split('/');
    match (steps.next(), steps.next()) {
        (Some("crates" | "lab"), Some(name)) => name.to_owned(),
        (first, _) => first.unwrap_or_default().to_owned(),
    }
}

fn allowed(table: &[(&str, usize)], name: &str) -> Option<usize> {
    table.iter().find(|(known, _)| *known == name).map(|(_, most)| *most)
}

#[test]
fn lines_are_no_wider_than_a_terminal() {
    let mut wide = Vec::new();
    for text in sources() {
        for (n, line) in text.content.lines().enumerate() {
            if let Some(width) = too_wide(line) {
                wide.push(format!("{}:{}: {width} columns", text.path, n + 1));
            }
        }
    }
    assert!(wide.is_empty(), "too many columns:\n{}", wide.join("\n"));
}

#[test]
fn a_file_is_read_in_one_sitting() {
    let mut long = Vec::new();
    for text in sources() {
        let lines = text.content.lines().count();
        let most = allowed(&LONG, &text.path).unwrap_or(LINES_MAX);
        if lines > most {
            long.push(format!("{}: {lines} lines, at most {most}", text.path));
        }
    }
    assert!(long.is_empty(), "split them:\n{}", long.join("\n"));
}

#[test]
fn words_are_plain() {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for text in sources().iter().filter(|text| !text.path.starts_with(OWN_WORDS)) {
        let lines: Vec<(usize, &str)> = (1..).zip(text.content.lines()).collect();
        for (n, word, instead) in banned(&lines) {
            let line = format!("{}:{n}: `{word}`: {instead}", text.path);
            found.entry(home(text)).or_default().push(line);
        }
    }
    let more = |(name, lines): &(String, Vec<String>)| {
        lines.len() > allowed(&BANNED_LINES, name).unwrap_or_default()
    };
    let worse: Vec<String> = found
        .into_iter()
        .filter(more)
        .map(|(name, lines)| format!("{name}: {} lines:\n{}", lines.len(), lines.join("\n")))
        .collect();
    assert!(worse.is_empty(), "words that stop a reader, more than before:\n{}", worse.join("\n"));
}
