//! Promise: `lowtide-lab eval` plays every published experiment once, keeps what is complete
//! whatever ends it, goes on where it stopped, and says which results are reproduced.

use std::fs;
use std::path::Path;

use crate::common::{Running, run, text};
use serde_json::Value;

/// Two experiments of a second each.
const TINY: [&str; 8] = [
    "--only",
    "dd-oom,kernel-build",
    "--with",
    "kernel-build=--scale 0.01",
    "--with",
    "dd-oom=--delay 100ms",
    "--quick",
    "-o",
];

fn eval(dir: &Path, more: &[&str]) -> (Option<i32>, String, String) {
    let dir = dir.to_str().unwrap();
    let output = run(&[&["eval"], &TINY[..], &[dir], more].concat());
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn result(dir: &Path, name: &str) -> Value {
    serde_json::from_slice(&fs::read(dir.join(name)).unwrap()).unwrap()
}

#[test]
fn what_is_complete_is_not_played_again_and_what_is_damaged_is() {
    let dir = tempfile::tempdir().unwrap();
    let (code, output, message) = eval(dir.path(), &[]);
    assert_eq!(code, Some(0), "{output}{message}");
    assert!(!message.contains("left"), "no progress where no terminal is: {message}");
    assert!(!output.contains("was complete") && !output.contains("machine "), "{output}");
    let first = fs::read_to_string(dir.path().join("kernel-build.json")).unwrap();
    let parsed = result(dir.path(), "kernel-build.json");
    let command = parsed["command"].as_str().unwrap();
    assert!(command.starts_with("lowtide-lab sim kernel-build --scale 1 --policy mglru-7.1,"));
    assert!(command.ends_with(" --scale 0.25 --scale 0.01"), "{command}");
    assert!(parsed["rows"].as_array().unwrap().iter().any(|row| row["system"] == "published"));
    assert_eq!(parsed["verdict"].as_array().unwrap().len(), 4);
    let figures = parsed["figures"].as_array().unwrap();
    let is = |figure: &&Value| figure["source"] == "v7" && figure["arm"] == "classical";
    let time = figures.iter().find(is).unwrap();
    assert_eq!(time["published"], 5023.5);
    assert!(time["ours"].is_null(), "of another size: {time}");

    let (code, output, _) = eval(dir.path(), &[]);
    assert_eq!((code, output.matches("was complete").count()), (Some(0), 2), "{output}");
    assert_eq!(fs::read_to_string(dir.path().join("kernel-build.json")).unwrap(), first);

    // As after a full disk, and as from another version.
    fs::write(dir.path().join("kernel-build.json"), &first[..first.len() / 2]).unwrap();
    let (_, output, _) = eval(dir.path(), &[]);
    assert_eq!(output.matches("was complete").count(), 1, "{output}");
    assert_eq!(result(dir.path(), "kernel-build.json")["rows"], parsed["rows"], "the same seed");
    let other = first.replace("\"lowtide\": \"", "\"lowtide\": \"0.");
    fs::write(dir.path().join("kernel-build.json"), other).unwrap();
    let (_, output, _) = eval(dir.path(), &["--list"]);
    assert_eq!(output.matches("complete").count(), 1, "{output}");
}

#[test]
fn the_table_and_the_files_have_every_condition_and_every_published_figure() {
    let dir = tempfile::tempdir().unwrap();
    let (code, output, message) = eval(dir.path(), &[]);
    assert_eq!(code, Some(0), "{message}");
    let conditions: usize = ["dd-oom.json", "kernel-build.json"]
        .map(|name| result(dir.path(), name)["verdict"].as_array().unwrap().len())
        .iter()
        .sum();
    assert_eq!(conditions, 4 + 4);
    let csv = fs::read_to_string(dir.path().join("eval.csv")).unwrap();
    assert_eq!(csv.lines().count(), 1 + conditions);
    assert!(
        csv.contains("\nkernel-build/1,quick,agreement,\"system time, after / before\","),
        "{csv}"
    );
    let counted = "reproduced: 3 of 4 effects, 3 of 3 agreements; 0 not measured, 1 without";
    assert!(output.contains(counted), "{output}");
    let figures = fs::read_to_string(dir.path().join("figures.csv")).unwrap();
    assert!(figures.contains("kernel-build,kernel_build,j96_3G,v7,system_time,s,before,2823.13,"));
    // Files that a command began are gone, and nothing else was left.
    let mut left: Vec<String> = fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, [".lock", "dd-oom.json", "eval.csv", "figures.csv", "kernel-build.json"]);
}

#[test]
fn a_failed_experiment_does_not_stop_the_others() {
    let dir = tempfile::tempdir().unwrap();
    for bad in ["dd-oom=--max 1K", "dd-oom=--no-such-option"] {
        let (code, output, message) = eval(dir.path(), &["--with", bad]);
        assert_eq!(code, Some(1), "{output}");
        assert!(message.contains("1 of 2 experiments failed: dd-oom ("), "{message}");
        assert!(message.contains("the same command tries them again"), "{message}");
        assert!(output.contains("not measured") && output.contains("system time"), "{output}");
        assert!(dir.path().join("kernel-build.json").exists());
        assert!(!dir.path().join("dd-oom.json").exists());
    }
}

#[test]
fn an_evaluation_that_is_killed_or_interrupted_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().to_str().unwrap();
    // The second experiment would take minutes, so it is what the signal meets.
    let long = ["--with", "kernel-build=--scale 1"];
    let args = [&["eval"], &TINY[..], &[place], &long].concat();
    for killed in [true, false] {
        let mut running = Running::start(&args);
        running.wait_until(|| dir.path().join("dd-oom.json").exists());
        if killed {
            running.kill();
            // That it is made again tells the test when the next one is under way.
            fs::remove_file(dir.path().join("dd-oom.json")).unwrap();
            continue;
        }
        running.interrupt();
        let (code, output, message) = running.end_with_output();
        assert_eq!(code, Some(130), "{output}{message}");
        // Before the first step of a simulation the process ends at once, and says so.
        let ordered = message.contains("interrupted after 1 of 2 experiments");
        assert!(ordered || message.contains("while setting up"), "{message}");
        assert!(!ordered || message.contains("the same command goes on from there"), "{message}");
        assert!(!dir.path().join("kernel-build.json").exists(), "it is not complete");
    }
    let (code, output, _) = eval(dir.path(), &[]);
    assert_eq!((code, output.matches("was complete").count()), (Some(0), 1), "{output}");
}

#[test]
fn several_seeds_have_rows_of_each_and_one_verdict() {
    let dir = tempfile::tempdir().unwrap();
    let (code, output, message) = eval(dir.path(), &["--seeds", "2"]);
    assert_eq!(code, Some(0), "{output}{message}");
    let found = result(dir.path(), "kernel-build.json");
    let rows = found["rows"].as_array().unwrap();
    let of = |seed: u64| rows.iter().filter(|row| row["seed"] == seed).count();
    assert!(of(1) > 0 && of(1) == of(2), "{} {}", of(1), of(2));
    assert_eq!(rows.iter().filter(|row| row["system"] == "published").count(), 7);
    let verdict = found["verdict"].as_array().unwrap();
    let one = |row: &Value| verdict.iter().filter(|other| other["what"] == row["what"]).count();
    assert!(verdict.iter().all(|row| one(row) == 1));
    assert_eq!(found["eval"]["of"]["commands"].as_array().unwrap().len(), 2);
}

#[test]
fn a_list_plays_nothing_and_wrong_names_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("none");
    let (code, output, _) = eval(&place, &["--list"]);
    assert_eq!(code, Some(0));
    assert!(output.contains("lowtide-lab sim dd-oom") && output.contains(" are left"), "{output}");
    assert!(!place.exists(), "nothing is made");
    for (more, why) in [
        (&["--only", "dd-oon"][..], "there is no experiment `dd-oon`; give one of dd-oom,"),
        (&["--with", "x=--policy lru"], "there is no experiment `x`"),
        (&["--with", "dd-oom"], "give a name, =, and options"),
        (&["--only", "dd-oom", "--world", "real"], "no experiment is left to play"),
        (&["--seeds", "0"], "0 is not in 1..=1000"),
    ] {
        let (code, _, message) = eval(&place, more);
        assert_eq!(code, Some(2), "{more:?}: {message}");
        assert!(message.contains(why), "{more:?}: {message}");
    }
    fs::write(dir.path().join("file"), "").unwrap();
    let (code, _, message) = eval(&dir.path().join("file"), &[]);
    assert_eq!(code, Some(1));
    assert!(message.contains("choose another one with -o"), "{message}");
}
