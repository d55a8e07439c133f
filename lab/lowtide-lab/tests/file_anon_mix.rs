//! Promise: `lowtide sim file-anon-mix` takes the reproducer's arguments, and counts kills over
//! seeds, again from where an interrupted run stopped.

use std::collections::BTreeSet;
use std::fs;

use crate::common::rows;
use crate::common::sim::{args, count, has_no, json, keys, refused};
use serde_json::Value;

/// A kill, or none, is a result like any other.
#[test]
fn readers_beside_allocating_threads_have_rows_with_rounds_and_kills() {
    let mix = ["sim", "file-anon-mix", "--scale", "0.0078125", "--rounds", "3", "--seed", "12"];
    let results = json(&args(&mix, &["--policy", "mglru-7.1,mglru-7.1+series"]));
    let all = rows(&results);
    let kinds: Vec<_> =
        all.iter().map(|row| (row["system"].as_str(), row["policy"].as_str())).collect();
    let of = |policy| [(Some("lowtide"), Some(policy)), (Some("published"), Some(policy))];
    assert_eq!(kinds, [of("mglru-7.1"), of("mglru-7.1+series")].concat());
    let (before, after) = (&all[0], &all[2]);
    assert_eq!(before["oom"], 1, "{before}");
    assert!(before["rounds"].as_u64() < Some(3), "{before}");
    assert_eq!((&after["oom"], &after["rounds"]), (&0.into(), &3.into()), "{after}");
    assert!(after["kill"].is_null() && after["ops"].is_null(), "{after}");
    assert_eq!(
        keys(&before["kill"]),
        BTreeSet::from(["seconds", "faulted", "tried_ms", "clean_file_bytes"])
    );
    assert_eq!(count(before, "usage"), 128 << 20, "the budget was full");
    assert!(
        count(before, "anon") + count(before, "file") > 127 << 20,
        "and nothing else in it: {before}"
    );
    assert!(count(before, "failcnt") > 0 && count(after, "failcnt") > 0);
    assert_eq!((&all[1]["oom"], count(&all[1], "failcnt")), (&1.into(), 24_460));
    assert_eq!(all[3]["rounds_published"], "128");
    has_no(&mix, "--ops", "3");
    refused(&args(&mix, &["--max", "100M"]), 2, &["100M", "112M", "raise --max"]);
}

/// What was published stands beside what was published, and beside nothing else.
#[test]
fn the_reproducers_arguments_can_be_given() {
    let mix = ["sim", "file-anon-mix", "--scale", "0.0078125", "--rounds", "1", "--seed", "12"];
    let mix = args(&mix, &["--policy", "mglru-7.1"]);
    let own = |results: &Value| rows(results)[0].clone();
    let default = json(&mix);
    let written = json(&args(&mix, &["--args", "14g 8g 96 96 120000"]));
    assert_eq!((own(&written), rows(&written).len()), (own(&default), 2));
    let older = json(&args(&mix, &["--args", "v2"]));
    assert_eq!(own(&older)["max_bytes"], 384 << 20, "48 GiB / 128");
    assert_eq!(own(&older)["data_bytes"], (352 + 64) << 20);
    assert_eq!(
        (&rows(&older)[1]["source"], count(&rows(&older)[1], "failcnt")),
        (&"v2".into(), 354_207)
    );
    let pasted = ["--args", "44g 8g 96 96 120000 1", "--max", "384M"];
    assert_eq!(own(&json(&args(&mix, &pasted))), own(&older));
    for other in [
        ["--args", "14g 8g 96 95 120000"],
        ["--args", "14g 8g 96 96 120000 3"],
        ["--max", "129M"],
        ["--machine", "xeon-96t"],
    ] {
        assert_eq!(rows(&json(&args(&mix, &other))).len(), 1, "{other:?} was not published");
    }
    let fewer = own(&json(&args(&mix, &["--args", "14g 8g 2 3 120000"])));
    assert_eq!(fewer["threads"], 5);
    refused(
        &args(&mix, &["--args", "f 14g 8g 96 96 120000"]),
        2,
        &["--args", "name of the file is left out"],
    );
    refused(&args(&mix, &["--args", "14g"]), 2, &["1 arguments", "14g 8g 96 96 120000", "v2"]);
    refused(&args(&mix, &["--args", "128m 8g 4096 1 0"]), 2, &["threads", "raise the first size"]);
}

/// Every finished run is in the file, and is not repeated.
#[test]
fn kills_are_counted_over_seeds_and_continue_from_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kills.jsonl");
    let out = ["--out", path.to_str().unwrap()];
    let mix = ["sim", "file-anon-mix", "--scale", "0.0078125", "--rounds", "2", "--seed", "12"];
    let mix = args(&mix, &["--policy", "mglru-7.1,mglru"]);
    let two = json(&args(&args(&mix, &["--seeds", "2"]), &out));
    let (before, after) = (&rows(&two)[0]["seeds"], &rows(&two)[1]["seeds"]);
    assert_eq!(
        (&before["first"], &before["runs"], &before["rounds"]),
        (&12.into(), &2.into(), &2.into())
    );
    // Seed 12 alone says the same of itself.
    let alone = json(&args(&mix, &["--seeds", "1"]));
    assert_eq!(rows(&alone)[0]["seeds"]["kills"], 1);
    let round = rows(&alone)[0]["seeds"]["kill_rounds"]["median"].as_f64().expect("a number");
    assert!(round < 2.0, "{alone}");
    assert!(before["kills"].as_u64() >= Some(1), "{before}");
    assert!(before["kill_clean_file_bytes"]["min"].as_f64() >= Some(f64::from(32 << 20)));
    assert_eq!((&after["kills"], after["kill_rounds"].is_null()), (&0.into(), true));
    assert_eq!(after["kills_ci95_pct"][0], 0.0);
    assert!(after["kills_ci95_pct"][1].as_f64() > Some(60.0), "two runs say little");

    let lines = || fs::read_to_string(&path).unwrap().lines().count();
    assert_eq!(lines(), 4);
    assert_eq!(rows(&json(&args(&args(&mix, &["--seeds", "2"]), &out))), rows(&two));
    assert_eq!(lines(), 4, "nothing is run again");
    // A result is taken from the file, and not found again by chance.
    let text = fs::read_to_string(&path).unwrap();
    let killed = |round: f64| format!(r#""rounds":{round},"killed_with_clean_bytes":"#);
    assert!(text.contains(&killed(round)), "{text}");
    fs::write(&path, text.replace(&killed(round), &killed(round + 1.0))).unwrap();
    let changed = json(&args(&args(&mix, &["--seeds", "1"]), &out));
    assert_eq!(rows(&changed)[0]["seeds"]["kill_rounds"]["median"], round + 1.0);
    // Other rounds are another experiment, in the same file.
    let one = ["--rounds", "1", "--seeds", "1"];
    let mix = ["sim", "file-anon-mix", "--scale", "0.0078125", "--seed", "4", "--policy", "mglru"];
    json(&args(&args(&mix, &one), &out));
    assert_eq!(lines(), 5);

    refused(&args(&mix, &out), 2, &["--seeds"]);
    refused(&args(&mix, &["--seeds", "2", "--timing"]), 2, &["--timing"]);
    fs::write(&path, "mine\n").unwrap();
    refused(&args(&args(&mix, &one), &out), 2, &["line 1 of", "--out"]);
}
