//! Promise: `lowtide report` makes one page of any results of lowtide's commands, and refuses what
//! is none with its reason, without touching what is there.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::common::{results, run, text};

fn report(args: &[&str]) -> (Option<i32>, String) {
    let output = run(&[&["report"], args].concat());
    (output.status.code(), text(&output.stderr))
}

/// Results of a simulation, of curves and of a measurement, in a folder of their own.
fn make(dir: &Path) {
    let file = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    let sim = ["sim", "zipf", "--ops", "10k", "--size", "4M", "--max", "1M", "--json"];
    assert!(run(&[&sim[..], &[&file("zipf.json")]].concat()).status.success());
    let trace = file("t<1>&.csv");
    fs::write(&trace, "op,space,page,pages\nload,file:a,0,300\nload,file:a,0,200\n").unwrap();
    let curves = ["sim", "trace", &trace, "--mrc", "--json", &file("curves.json")];
    assert!(run(&curves).status.success());
    let scratch = dir.join("scratch");
    fs::create_dir(&scratch).unwrap();
    let bench = [
        "bench",
        "random-read",
        "--max",
        "1M",
        "--rounds",
        "3",
        "--ops",
        "600",
        "--policy",
        "mglru,lru",
        "--against",
        "none",
    ];
    let measured = results(&scratch, &bench);
    fs::write(dir.join("bench.json"), measured.to_string()).unwrap();
}

#[test]
fn results_of_every_kind_are_one_page() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path());
    let page = dir.path().join("page.html");
    let (code, message) = report(&[dir.path().to_str().unwrap(), "-o", page.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{message}");
    let html = fs::read_to_string(&page).unwrap();
    for text in [
        "mglru-7.1",
        "lowtide sim zipf --ops 10k --size 4M --max 1M",
        "lowtide bench random-read --max 1M",
        "t&lt;1&gt;&amp;.csv",
        "Miss ratio by memory budget",
        "strict-lru",
        "Operations a second",
        "the line is from the smallest to the largest round",
        "Latency of an operation",
        "3 results",
    ] {
        assert!(html.contains(text), "{text}");
    }
    assert!(!html.contains("<1>") && !html.contains("src=") && !html.contains("<link"));
    assert_eq!(fs::metadata(&page).unwrap().permissions().mode() & 0o777, 0o644);
    // A page is not replaced unless that is said.
    let again = [dir.path().to_str().unwrap(), "-o", page.to_str().unwrap()];
    let (code, message) = report(&again);
    assert_eq!(code, Some(2));
    assert!(message.contains("exists; give --force"), "{message}");
    let (code, _) = report(&[&again[..], &["--force", "--title", "A <b>"]].concat());
    assert_eq!(code, Some(0));
    assert!(fs::read_to_string(&page).unwrap().contains("<h1>A &lt;b&gt;</h1>"));
}

#[test]
fn what_is_no_result_is_refused_and_nothing_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let good = file("good.json", r#"{"lowtide": "0.1.0", "rows": [{"ops_per_s": 1.0}]}"#);
    let page = dir.path().join("page.html").to_str().unwrap().to_owned();
    let empty = dir.path().join("folder");
    fs::create_dir(&empty).unwrap();
    for (given, code, why) in [
        (file("empty", ""), 2, "it is empty"),
        (file("cut", "{\"lowtide\": \"0.1.0\",\n \"rows\": [{"), 2, "ends in the middle (line 2)"),
        (file("csv", "a,b\n1,2\n"), 2, "it is not JSON"),
        (file("other", "{\"fio version\": \"3\"}"), 2, "not a result of lowtide"),
        (file("rowless", "{\"lowtide\": \"0.1.0\", \"rows\": []}"), 2, "it has no rows"),
        (empty.to_str().unwrap().to_owned(), 2, "there is no file *.json"),
        (dir.path().join("none").to_str().unwrap().to_owned(), 1, "check the path"),
    ] {
        // Also behind a good one: all are read before anything is written.
        let (found, message) = report(&[&good, &given, "-o", &page]);
        assert_eq!(found, Some(code), "{given}: {message}");
        assert!(message.contains(why) && message.contains(&given), "{given}: {message}");
        assert!(!Path::new(&page).exists(), "{given}");
    }
    for (place, why) in [
        (dir.path().join("none/page.html"), "is not a directory"),
        (Path::new("/proc/page.html").to_owned(), "cannot write the page"),
    ] {
        let (code, message) = report(&[&good, "-o", place.to_str().unwrap()]);
        assert!(code == Some(2) || code == Some(1), "{message}");
        assert!(message.contains(why) && message.contains("-o"), "{message}");
    }
    let (code, message) = report(&[&good, "-o", dir.path().to_str().unwrap(), "--force"]);
    assert_eq!(code, Some(2));
    assert!(message.contains("it is a directory"), "{message}");
    let (code, message) = report(&["-o", &page]);
    assert_eq!(code, Some(2));
    assert!(message.contains("RESULTS"), "{message}");
}

#[test]
fn a_page_can_go_to_a_pipe() {
    let dir = tempfile::tempdir().unwrap();
    let good = dir.path().join("good.json");
    fs::write(&good, r#"{"lowtide": "0.1.0", "rows": [{"ops_per_s": 1.0}]}"#).unwrap();
    let output = run(&["report", good.to_str().unwrap(), "-o", "/dev/stdout", "--force"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).starts_with("<!DOCTYPE html>"));
}
