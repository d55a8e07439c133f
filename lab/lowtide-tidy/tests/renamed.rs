//! Names that have changed are gone from what users read: each name on the left of CHANGELOG's
//! table, unless the library still has one of that name.

use lowtide_tidy::{Text, parts, root, texts};
use std::collections::BTreeSet;
use std::fs;

/// Where old names may stand: the table itself, records of what was decided when, and the kernel's
/// own words.
const HISTORY: [&str; 3] = ["CHANGELOG.md", "docs/decisions/", "docs/kernel/"];
/// Sources whose public names and comments are for users.
const PUBLIC: [&str; 3] = ["crates/lowtide/src/", "bindings/c/", "bindings/python/"];
/// A name of fewer letters, all of them small, is also a word.
const WORD_MAX: usize = 7;

/// The names in a span of code: `a::{b, c}` is two, arguments and fields do not count.
fn names(span: &str) -> Vec<String> {
    let (of, list) = match span.split_once("::{") {
        Some((of, list)) => (format!("{of}::"), list.trim_end_matches('}')),
        None => (String::new(), span),
    };
    let list: Vec<&str> = if of.is_empty() { vec![list] } else { list.split(", ").collect() };
    let bare = |name: &str| name.split(['(', '{', ' ']).next().unwrap_or_default().to_owned();
    list.into_iter().map(|name| of.clone() + &bare(name)).collect()
}

/// The names of the left column of the table, without those of the right.
fn old_names(changelog: &str) -> BTreeSet<String> {
    let table = changelog.split_once("### Names that have changed").expect("the table").1;
    let rows = table.lines().filter(|line| line.starts_with("| ")).skip(1);
    let (mut old, mut new) = (BTreeSet::new(), BTreeSet::new());
    for row in rows {
        let mut cells = row.split(" | ");
        let mut of = |into: &mut BTreeSet<String>| {
            let cell = cells.next().unwrap_or_default();
            into.extend(parts(cell, true).filter(|span| !span.contains("--")).flat_map(names));
        };
        of(&mut old);
        of(&mut new);
    }
    old.retain(|name| !new.contains(name) && !is_word(name));
    old
}

fn is_word(name: &str) -> bool {
    name.is_empty()
        || name.len() <= WORD_MAX && name.chars().all(|c| c.is_ascii_lowercase() || c == '.')
}

/// Whether sources define a name that stands on its own.
fn is_defined(name: &str, sources: &[Text]) -> bool {
    let joins = |c: char| c.is_alphanumeric() || c == '_';
    let keywords = ["fn ", "struct ", "enum ", "trait ", "type ", "const ", "mod ", "pub ", "def "];
    !name.contains("::")
        && sources.iter().any(|text| {
            let found = text.content.match_indices(name);
            found.into_iter().any(|(at, _)| {
                let (before, after) = (&text.content[..at], &text.content[at + name.len()..]);
                let is_item = keywords.iter().any(|word| before.ends_with(word));
                let is_variant = before.ends_with("\n    ") && after.starts_with(['(', ',', ' ']);
                !after.starts_with(joins) && (is_item || is_variant)
            })
        })
}

/// The lines of a text that users read.
fn read_by_users(text: &Text) -> Vec<(usize, &str)> {
    let lines = (1..).zip(text.content.lines());
    if text.kind() == "md" && !HISTORY.iter().any(|place| text.path.starts_with(place)) {
        return lines.collect();
    }
    let is_public = PUBLIC.iter().any(|place| text.path.starts_with(place));
    let comment = |line: &str| line.trim_start().starts_with("///");
    match text.kind() {
        "h" | "pyi" if is_public => lines.collect(),
        "rs" if is_public => lines.filter(|(_, line)| comment(line)).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn a_name_that_has_changed_is_not_taught() {
    let all = texts();
    let changelog = fs::read_to_string(root().join("CHANGELOG.md")).expect("the changelog");
    let mut sources = texts();
    sources.retain(|text| {
        matches!(text.kind(), "rs" | "py" | "pyi")
            && ["crates/", "bindings/"].iter().any(|place| text.path.starts_with(place))
    });
    let mut old = old_names(&changelog);
    assert!(old.len() > 30, "the table has dozens of names, found {old:?}");
    old.retain(|name| !is_defined(name, &sources));
    let mut found = Vec::new();
    for text in &all {
        for (n, line) in read_by_users(text) {
            for span in parts(line, true).flat_map(names) {
                if old.contains(span.trim_start_matches("crate::")) {
                    found.push(format!("{}:{n}: `{span}`", text.path));
                }
            }
        }
    }
    assert!(found.is_empty(), "old names (CHANGELOG.md has the new):\n{}", found.join("\n"));
}

#[test]
fn the_table_is_read_as_it_is_written() {
    let table = "### Names that have changed\n\n| before | now |\n|---|---|\n\
                 | `A`, `B::{c, d}` | `E` |\n| `f_g(h)`, `way` | `f_g(i)` |\n";
    let old = old_names(table);
    assert_eq!(old.into_iter().collect::<Vec<_>>(), ["A", "B::c", "B::d"]);
    let source = Text { path: "a.rs".into(), content: "pub struct Abc; fn de() {}".into() };
    assert!(is_defined("Abc", std::slice::from_ref(&source)) && is_defined("de", &[source]));
}
