//! Promise: `lowtide bench gather` reads the same rows through every system, whatever their size
//! and wherever they lie, verifies every byte, and says which page it chose and why.

use std::fs;
use std::os::unix::fs::FileExt;

use crate::common::{files, memcg_or_skip, results, rows, run, text};
use serde_json::Value;

/// A small run.
const SMALL: [&str; 10] =
    ["bench", "gather", "--max", "2M", "--scale", "4", "--ops", "4000", "--rounds", "2"];

fn gather(more: &[&'static str]) -> Vec<&'static str> {
    [SMALL.as_slice(), more].concat()
}

/// The rows of a run whose operations all succeeded, and the alignment of its device.
fn verified(args: &[&'static str]) -> (Vec<Value>, Option<u64>) {
    let dir = tempfile::tempdir().unwrap();
    let results = results(dir.path(), args);
    for row in rows(&results) {
        assert_eq!((&row["verified"], &row["errors"]), (&row["ops"], &0.into()), "{row}");
        assert!(row["ops"].as_u64() > Some(0), "{row}");
    }
    (rows(&results).clone(), results["machine"]["direct_align_bytes"].as_u64())
}

fn system<'a>(rows: &'a [Value], name: &str) -> &'a Value {
    rows.iter().find(|row| row["system"] == name).unwrap_or_else(|| panic!("no row of {name}"))
}

#[test]
fn rows_are_read_by_every_system_and_each_cache_has_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let results = results(dir.path(), &gather(&["--threads", "8"]));
    let direct = results["machine"]["direct_align_bytes"].as_u64();
    let mut want = vec!["lowtide"];
    if memcg_or_skip("the kernel's rows of gather") {
        want.extend(["mmap-random", "pread"]);
        want.extend(direct.map(|_| "pread-direct"));
    }
    let found: Vec<&str> =
        rows(&results).iter().map(|row| row["system"].as_str().unwrap()).collect();
    assert_eq!(found, want);
    for row in rows(&results) {
        assert_eq!((&row["workload"], &row["world"]), (&"gather".into(), &"real".into()));
        assert_eq!((&row["row_bytes"], &row["skew"]), (&512.into(), &"uniform".into()));
        assert_eq!((&row["threads"], &row["batch"]), (&8.into(), &256.into()));
        assert_eq!((&row["ops"], &row["verified"]), (&4000.into(), &4000.into()), "{row}");
        let read = row["device_read_bytes"].as_f64().unwrap();
        assert_eq!(row["device_bytes_per_row"].as_f64(), Some(read / 4000.0), "{row}");
        assert!(
            row["ops_per_s"].as_f64() > Some(0.0) && row["speed_ratio"]["median"].is_f64(),
            "{row}"
        );
        assert!(read > 0.0, "data of four budgets is not read from memory: {row}");
    }
    // Direct reads have no cache, and share the file of the views.
    let caches = want.iter().filter(|name| ["mmap-random", "pread"].contains(name)).count();
    assert_eq!(files(dir.path()).len(), 1 + caches);
}

#[test]
fn a_row_costs_the_device_no_more_than_its_page() {
    let (rows, align) = verified(&gather(&[]));
    if align.is_none_or(|align| align > 512) {
        return eprintln!("SKIPPED: the device reads no rows of 512 bytes alone");
    }
    let cost = |name| system(&rows, name)["device_bytes_per_row"].as_f64().unwrap();
    assert_eq!(system(&rows, "lowtide")["page_bytes"], 512);
    assert!(cost("lowtide") <= 512.0, "{}", cost("lowtide"));
    if memcg_or_skip("the cost of the kernel's rows") {
        // The process may read a few pages of its own program, too.
        assert!((512.0..700.0).contains(&cost("pread-direct")), "{}", cost("pread-direct"));
        assert!(cost("mmap-random") > 2048.0 && cost("pread") > 2048.0, "whole pages: {rows:?}");
    }
}

#[test]
fn rows_of_every_size_are_right_also_where_they_cross_pages() {
    let sizes = [
        ["--row", "64", "--page", "4K"],
        ["--row", "72", "--page", "512"],
        ["--row", "776", "--page", "1K"],
        ["--row", "1000", "--page", "512"],
        ["--row", "4K", "--page", "512"],
    ];
    for size in sizes {
        for batch in ["1", "7", "1000"] {
            let peers = ["--against", "pread,pread-direct", "--ops", "1000"];
            let some = [["--batch", batch, "--skew", "hot"].as_slice(), &peers].concat();
            verified(&gather(&[size.as_slice(), &some].concat()));
        }
    }
    let (rows, _) = verified(&gather(&["--row", "3000", "--against", "mmap-random,map-userfault"]));
    assert_eq!(system(&rows, "lowtide")["row_bytes"], 3000);
}

#[test]
fn hot_rows_are_found_in_memory() {
    let cost = |skew| {
        let some = ["--against", "none", "--ops", "40000", "--skew", skew];
        let (rows, _) = verified(&gather(&some));
        assert_eq!(rows[0]["skew"], skew);
        rows[0]["device_bytes_per_row"].as_f64().unwrap()
    };
    let (uniform, hot, start) = (cost("uniform"), cost("hot"), cost("hot-start"));
    assert!(hot < uniform / 2.0 && start < uniform / 2.0, "{uniform}, {hot}, {start}");
}

#[test]
fn the_page_is_chosen_and_the_reason_is_printed() {
    let dir = tempfile::tempdir().unwrap();
    let at = ["--dir", dir.path().to_str().unwrap(), "--against", "none", "--io", "psync"];
    let said = |more: &[&'static str]| {
        let output = run(&[gather(more).as_slice(), &at].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let printed = text(&output.stdout);
        let line = printed.lines().find(|line| line.starts_with("page "));
        line.unwrap_or_else(|| panic!("no page in {printed}")).to_owned()
    };
    let buffered = ["--direct", "buffered", "--row"];
    for (row, page) in [("512", "512:"), ("2K", "2K:"), ("4K", "4K:")] {
        let line = said(&[buffered.as_slice(), &[row]].concat());
        assert!(line.contains(page) && line.contains("the page is as large as the row"), "{line}");
    }
    let line = said(&["--row", "512", "--page", "4K"]);
    assert!(line.contains("4K: as --page says; ") && line.contains("would be chosen"), "{line}");
}

#[test]
fn a_wrong_byte_in_a_row_ends_the_run_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let args =
        ["bench", "gather", "--max", "1M", "--scale", "1", "--ops", "20000", "--rounds", "1"];
    let at = ["--dir", dir.path().to_str().unwrap(), "--against", "none"];
    let args = [args.as_slice(), &at].concat();
    assert!(run(&args).status.success());
    let data = dir.path().join(&files(dir.path())[0]);
    // Not in a part that is checked before the file is used again.
    let file = fs::File::options().read(true).write(true).open(data).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 1500).unwrap();
    file.write_all_at(&[byte[0] ^ 1], 1500).unwrap();
    file.sync_all().unwrap();
    let output = run(&args);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("lowtide mglru") && message.contains("at byte 1496"), "{message}");
}

#[test]
fn a_file_of_the_users_is_gathered_from() {
    let dir = tempfile::tempdir().unwrap();
    let own = dir.path().join("own");
    fs::write(&own, vec![9; 4 << 20]).unwrap();
    let json = dir.path().join("own.json");
    let args = ["bench", "gather", "--max", "2M", "--ops", "4000", "--rounds", "2", "--row", "104"];
    let file = ["--file", own.to_str().unwrap(), "--json", json.to_str().unwrap()];
    let output = run(&[args.as_slice(), &file].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let results: Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    let left_out = "pread left out: two readers of one file share its page cache";
    let kernel = memcg_or_skip("the kernel's rows of a file of the user's");
    assert_eq!(text(&output.stderr).contains(left_out), kernel, "{}", text(&output.stderr));
    for row in rows(&results) {
        assert_eq!(
            (&row["ops"], &row["errors"], &row["verified"]),
            (&4000.into(), &0.into(), &0.into())
        );
    }
}
