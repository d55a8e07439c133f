//! Simulations, and what they print.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{run, text};

/// Arguments, and more of them.
pub(crate) fn args<'a>(start: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    [start, more].concat()
}

/// What it prints with `--json` alone.
pub(crate) fn json(arguments: &[&str]) -> Value {
    let output = run(&args(arguments, &["--json"]));
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("nothing but one JSON object on standard output")
}

/// The names of an object's fields.
pub(crate) fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

/// It ends with this code and says all of these words.
pub(crate) fn refused(arguments: &[&str], code: i32, words: &[&str]) {
    let output = run(arguments);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {message}");
    for word in words {
        assert!(message.contains(word), "{arguments:?}: `{word}` is not in: {message}");
    }
}

/// Checks that a workload has no such option.
pub(crate) fn has_no(arguments: &[&str], option: &str, value: &str) {
    let words = format!("unexpected argument '{option}'");
    refused(&args(arguments, &[option, value]), 2, &[&words]);
}

/// A counter of a row.
pub(crate) fn count(row: &Value, name: &str) -> u64 {
    row["stat"][name].as_u64().unwrap_or_else(|| panic!("stat.{name} is missing in {row}"))
}
