//! A counter has one row (`crates/lowtide-core/src/counters/`): what shows it does not spell it.

use lowtide_tidy::texts;

/// Files that may spell a name: its row, where it is counted, C's header, and two for its users.
const FILES_MAX: usize = 5;
const ROWS: &str = "crates/lowtide-core/src/counters/pager.rs";

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

fn has(content: &str, name: &str) -> bool {
    content.match_indices(name).any(|(at, _)| {
        let (before, after) = (&content[..at], &content[at + name.len()..]);
        !before.ends_with(is_word) && !after.starts_with(is_word)
    })
}

/// Code, tests and examples apart, with the header of C.
fn is_code(path: &str) -> bool {
    let is_test = ["tests/", "tests.rs", "examples/"].iter().any(|part| path.contains(part));
    let is_ours = ["crates/", "bindings/", "lab/"].iter().any(|folder| path.starts_with(folder));
    is_ours && !is_test && (path.ends_with(".rs") || path.ends_with(".h") || path.ends_with(".py"))
}

#[test]
fn no_counter_of_a_pager_is_spelled_by_what_shows_it() {
    let texts = texts();
    let rows = texts.iter().find(|text| text.path == ROWS).expect("the rows");
    let io = rows.content.split_once("pub struct IoStat {").expect("the structure").1;
    let io = io.split_once("\n    }").expect("its end").0;
    let names: Vec<&str> = io
        .lines()
        .filter_map(|line| line.trim().split_once(": ").map(|(name, _)| name))
        // Others are also what devices and simulated machines count.
        .filter(|name| name.starts_with("ahead_"))
        .collect();
    assert!(names.contains(&"ahead_wasted"), "{names:?}");
    for name in names {
        let spelled = texts.iter().filter(|text| is_code(&text.path) && has(&text.content, name));
        let spelled: Vec<&str> = spelled.map(|text| text.path.as_str()).collect();
        assert!(spelled.len() <= FILES_MAX, "{name} is spelled in {spelled:#?}");
    }
}
