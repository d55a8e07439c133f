//! Limits of the repository's size, which only fall.
//!
//! `limits.csv` has a line for each: its name, the value, and the decision that raised it, if one
//! did. A test measures and asks [`check`]. After something became smaller,
//!
//! ```text
//! LOWTIDE_WRITE_LIMITS=1 cargo test -p lowtide-tidy
//! ```
//!
//! lowers each limit to what was measured, and adds those of new crates. To raise one, write a
//! record in `docs/decisions` that names it, and put the name of the record's file into its line.

use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;

/// A limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limit {
    /// What is limited.
    pub name: String,
    /// The most that there may be.
    pub value: usize,
    /// The file of the decision that raised it last, in `docs/decisions`; empty if none did.
    pub record: String,
}

/// Where the limits are, from the root.
pub const LIMITS: &str = "lab/lowtide-tidy/limits.csv";
/// Tests that run side by side write one file.
static WRITING: Mutex<()> = Mutex::new(());

fn path() -> PathBuf {
    crate::root().join(LIMITS)
}

/// The limits that a text has.
///
/// # Panics
/// If it is no list of limits.
#[must_use]
pub fn parse(text: &str) -> Vec<Limit> {
    let mut file = csv::Reader::from_reader(text.as_bytes());
    let limit = |row: Result<csv::StringRecord, csv::Error>| {
        let row = row.expect("a line of the limits");
        let value = row[1].parse().expect("a number");
        Limit { name: row[0].to_owned(), value, record: row[2].to_owned() }
    };
    file.records().map(limit).collect()
}

/// The limits now.
///
/// # Panics
/// If they cannot be read.
#[must_use]
pub fn limits() -> Vec<Limit> {
    parse(&fs::read_to_string(path()).expect("the limits"))
}

/// Whether limits are to be lowered to what is measured.
fn lowering() -> bool {
    std::env::var_os("LOWTIDE_WRITE_LIMITS").is_some()
}

/// The value of a limit.
///
/// # Panics
/// If there is no such limit.
#[must_use]
pub fn limit(name: &str) -> usize {
    let limit = limits().into_iter().find(|limit| limit.name == name);
    limit.unwrap_or_else(|| panic!("{LIMITS} has no `{name}`")).value
}

/// Compares a measured value with its limit.
///
/// # Panics
/// If there is more than the limit, or no such limit.
#[track_caller]
pub fn check(name: &str, measured: usize) {
    let guard = WRITING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut all = limits();
    if lowering() && all.iter().all(|limit| limit.name != name) {
        all.push(Limit { name: name.to_owned(), value: usize::MAX, record: String::new() });
    }
    let limit = all.iter_mut().find(|limit| limit.name == name);
    let limit = limit.unwrap_or_else(|| panic!("{LIMITS} has no `{name}`; it is {measured} now"));
    let value = limit.value;
    if lowering() && measured < value {
        limit.value = measured;
        let line = |limit: &Limit| format!("{},{},{}\n", limit.name, limit.value, limit.record);
        let text: String = all.iter().map(line).collect();
        fs::write(path(), format!("name,value,record\n{text}")).expect("the limits can be written");
    }
    drop(guard);
    assert!(
        measured <= value,
        "{name}: {measured}, and {LIMITS} permits {value}. Make it smaller; to raise the limit \
         takes a record in docs/decisions that names it (decision 30)"
    );
}
