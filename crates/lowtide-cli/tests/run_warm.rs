//! Promise: `lowtide run --warm FILE` begins with the pages that the program had when it ended, and
//! a list that is of no use is named, and costs nothing else.

use std::fs;

use crate::common::programs::{Files, maps, maps_with, plain, same};
use crate::common::text;
use serde_json::Value;

#[test]
fn a_program_begins_with_the_pages_that_it_had() {
    let files = Files::new();
    let (data, list) = (files.data(), files.path("list"));
    let program = [maps().to_str().unwrap(), "read", &data, "4000"];
    let alone = maps_with(&program[1..]);
    for way in ["pagecache", "auto"] {
        let _ = fs::remove_file(&list);
        let run = || -> Value {
            let _ = fs::remove_file(files.path("summary"));
            let (with, summaries) = files.within(&["--mode", way, "--warm", &list], &program);
            same(&with, &alone);
            summaries.last().unwrap().clone()
        };
        // It reads at random, so nothing is read ahead of it.
        let first = run();
        assert_eq!((&first["read_ahead_pages"], &first["refusal"]), (&0.into(), &Value::Null));
        let saved = fs::metadata(&list).unwrap().len();
        assert!(saved > 1000, "{saved} bytes: {first}");
        // On a busy machine the program may be faster than what is read for it.
        let warm = (0..20).map(|_| run()).find(|last| last["read_ahead_pages"] != 0);
        assert!(warm.is_some(), "{way}: nothing was read for it");
    }
}

#[test]
fn a_list_that_cannot_be_used_or_saved_is_told() {
    let files = Files::new();
    let (data, list) = (files.data(), files.path("list"));
    fs::write(&list, "something else").unwrap();
    let program = [maps().to_str().unwrap(), "read", &data, "400"];
    let (with, summaries) = files.within(&["--warm", &list], &program);
    same(&with, &maps_with(&program[1..]));
    let refusal = summaries.last().unwrap()["refusal"].to_string();
    assert!(refusal.contains("is no list of warm pages"), "{refusal}");
    let nowhere = files.path("nowhere/list");
    let mut command = plain(env!("CARGO_BIN_EXE_lowtide"));
    let output = command.args(["run", "--warm", &nowhere, "--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("give --warm a file"), "{}", text(&output.stderr));
}
