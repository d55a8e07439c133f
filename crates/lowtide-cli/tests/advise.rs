//! Promise: a program under `lowtide run` says how large its budget should be, and `lowtide advise`
//! says the same of its summary and its recording, or why it cannot.

use std::fs;

use crate::common::programs::{FILE, Files, maps, maps_with, run, same};
use crate::common::{lowtide, text};
use serde_json::Value;

/// Pages of the file.
const PAGES: f64 = (FILE / 4096) as f64;

/// What `lowtide advise` prints, and its exit code.
fn advise(args: &[&str]) -> (Option<i32>, String, String) {
    let output = lowtide(&[&["advise"], args].concat()).output().unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_summary_has_the_curve_and_the_advice_is_drawn_from_it() {
    let files = Files::new();
    let data = files.data();
    let program = [maps().to_str().unwrap(), "read", &data, "20000"];
    let (with, summaries) = files.within(&["--advise"], &program);
    same(&with, &maps_with(&["read", &data, "20000"]));
    let curve = &summaries.last().unwrap()["curves"][0];
    let points = curve["points"].as_array().unwrap();
    let of = |point: &Value, name: &str| point[name].as_f64().unwrap();
    let last = points.last().unwrap();
    // All of the file is read, at random: with room for it only first accesses miss.
    let cold = curve["cold"].as_f64().unwrap();
    assert!((0.8..1.25).contains(&(cold / PAGES)), "{cold} of {PAGES}");
    assert!(of(last, "bytes") > 0.75 * FILE as f64 && of(last, "misses") < 1.01 * cold, "{last}");
    assert!(points.windows(2).all(|two| of(&two[0], "misses") >= of(&two[1], "misses")));
    let (code, said, _) = advise(&[&files.path("summary")]);
    assert_eq!(code, Some(0));
    assert!(said.contains("% of accesses miss") && said.contains("with any budget"), "{said}");
    let (_, json, _) = advise(&[&files.path("summary"), "--json", "--target", "0.5"]);
    let rows: Value = serde_json::from_str(&json).unwrap();
    let half = rows[0]["bytes"].as_f64().unwrap();
    assert!(half < 0.75 * FILE as f64, "half may miss: {half}");
}

#[test]
fn the_summary_for_people_has_a_sentence_if_it_is_wanted() {
    let files = Files::new();
    let program = [maps().to_str().unwrap(), "read", &files.data(), "20000"];
    for (options, says) in [(&["--max", "8M"][..], false), (&["--max", "8M", "--advise"], true)] {
        let output = run(options, &program).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(said.contains("  advice: with "), says, "{said}");
    }
}

#[test]
fn a_recording_is_a_trace_that_any_policy_plays() {
    let files = Files::new();
    let recording = files.path("run.csv");
    let program = [maps().to_str().unwrap(), "read", &files.data(), "20000"];
    let (with, _) = files.within(&["--record", &recording], &program);
    assert!(with.status.success(), "{}", text(&with.stderr));
    let head = fs::read_to_string(&recording).unwrap();
    assert!(head.starts_with("# page_bytes: 4096\n# sampled: 1 in "), "{}", &head[..60]);
    let (code, said, error) = advise(&[&recording, "--policy", "tide,lru"]);
    assert_eq!(code, Some(0), "{error}");
    assert!(said.contains("tide") && said.contains("lru") && !said.contains("mglru"), "{said}");
    assert!(said.contains("which were not recorded"), "{said}");
    let output = lowtide(&["sim", "trace", &recording, "--mrc", "--json", "--baseline", "none"]);
    let results: Value = serde_json::from_slice(&{ output }.output().unwrap().stdout).unwrap();
    let footprint = results["machine"]["footprint_bytes"].as_f64().unwrap();
    assert!((0.6..1.5).contains(&(footprint / FILE as f64)), "{footprint} of {FILE}");
}

#[test]
fn what_cannot_be_advised_or_recorded_is_said() {
    let files = Files::new();
    let (garbage, other) = (files.path("garbage"), files.path("other"));
    fs::write(&garbage, "{\"pid\": ").unwrap();
    fs::write(&other, "{\"pid\": 1, \"program\": \"x\", \"curves\": []}\n").unwrap();
    let nowhere = files.path("no/such/file");
    for (args, code, says) in [
        (&["999999999"][..], 1, "no process"),
        (&[&nowhere], 1, "cannot read"),
        (&[&garbage], 1, "line 1"),
        (&[&other], 1, "no curves"),
        (&[&other, "--plot", "x.html"], 2, "--plot is for traces"),
        (&[&files.data()], 1, "error"),
        (&[&other, "--target", "2"], 2, "from 0 to 1"),
    ] {
        let (found, _, error) = advise(args);
        assert_eq!(found, Some(code), "{args:?}: {error}");
        assert!(error.contains(says), "{args:?}: {error}");
    }
    let output = run(&["--max", "8M", "--record", &nowhere], &["true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--record a file"), "{}", text(&output.stderr));
}
