//! Promise: `lowtide list` prints every name that options accept, with its meaning; completions
//! and manual pages contain the same names.

use crate::common::{run, text};

/// The lines of a list.
fn list(what: &str) -> Vec<String> {
    let output = run(&["list", what]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).lines().map(str::to_owned).collect()
}

/// The columns of the row that begins with a name.
fn row(lines: &[String], name: &str) -> Vec<String> {
    let row = lines.iter().find(|line| line.split_whitespace().next() == Some(name));
    let row = row.unwrap_or_else(|| panic!("{name} is not listed in {lines:#?}"));
    row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect()
}

#[test]
fn machines_are_listed_with_their_size_and_device() {
    let lines = list("machines");
    assert_eq!(row(&lines, "machine"), ["machine", "cpus", "memory", "device", "swap", "about"]);
    assert_eq!(row(&lines, "xeon-96t")[..5], ["xeon-96t", "96", "128G", "nvme", "-"]);
    assert_eq!(row(&lines, "x86-256c")[1], "256");
    assert_eq!(row(&lines, "phone")[..5], ["phone", "8", "6G", "ufs", "zram 3G"]);
    assert_eq!(row(&lines, "hdd")[3], "hdd");
    for name in ["laptop", "ramdisk"] {
        assert!(row(&lines, name)[5].len() > 5);
    }
    let cpus = std::thread::available_parallelism().unwrap().to_string();
    assert_eq!(row(&lines, "this")[1], cpus);
    let devices = lines.last().unwrap();
    assert!(devices.contains("nvme-gen4") && devices.contains("sata-ssd"), "{devices}");
}

#[test]
fn workloads_and_policies_are_listed_with_a_line_about_each() {
    for (what, name) in [
        ("workloads", "ycsb-b"),
        ("workloads", "gather"),
        ("workloads", "zipf"),
        ("policies", "mglru-7.1"),
        ("policies", "mglru-7.1+series"),
        ("policies", "lru"),
        ("policies", "S10"),
        ("policies", "placement"),
    ] {
        let lines = list(what);
        let line =
            lines.iter().find(|line| line.split_whitespace().next() == Some(name)).expect(name);
        assert!(line.split_whitespace().count() > 3, "{line}");
    }
}

#[test]
fn completions_know_the_workloads_and_their_options() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let output = run(&["completions", shell]);
        assert!(output.status.success(), "{shell}: {}", text(&output.stderr));
        let script = text(&output.stdout);
        for name in ["random-read", "gather", "hot-start", "advise"] {
            assert!(script.contains(name), "{shell}: {name}");
        }
        assert!(!script.contains("peer-mmap"), "{shell}: what is hidden is not completed");
    }
    let unknown = run(&["completions", "tcsh"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(text(&unknown.stderr).contains("bash"), "{}", text(&unknown.stderr));
}

#[test]
fn there_is_a_manual_page_for_each_command() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(&["man", dir.path().to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let page = |name: &str| std::fs::read_to_string(dir.path().join(name));
    for (name, word) in [
        ("lowtide.1", "doctor"),
        ("lowtide-sim.1", "zipf"),
        ("lowtide-sim-trace.1", "curves"),
        ("lowtide-bench.1", "budget"),
        ("lowtide-bench-gather.1", "Bytes of a row"),
    ] {
        assert!(page(name).unwrap().contains(word), "{name}: {word}");
    }
    assert!(page("lowtide-peer-mmap.1").is_err(), "what is hidden has no page");
    let nowhere = run(&["man", "/nowhere/at/all"]);
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(text(&nowhere.stderr).contains("/nowhere/at/all"), "{}", text(&nowhere.stderr));
}
