//! Promise: every kind of measurement runs, verifies what it reads, and writes the JSON that tools
//! depend on.

use std::collections::BTreeSet;

use crate::common::{files, maps_or_skip, memcg_or_skip, results, rows, run, text};
use serde_json::Value;

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

#[test]
fn hits_through_views_and_maps_are_measured_against_a_pointer() {
    let dir = tempfile::tempdir().unwrap();
    let results =
        results(dir.path(), &["bench", "hit", "--size", "4M", "--ops", "2000", "--rounds", "2"]);
    let found: Vec<(&str, &str)> = rows(&results)
        .iter()
        .map(|row| (row["system"].as_str().unwrap(), row["pattern"].as_str().unwrap()))
        .collect();
    let systems = [vec!["view", "reader", "pointer"], maps_or_skip("the hits of maps")].concat();
    let of = |pattern| systems.iter().map(move |system| (*system, pattern));
    let want: Vec<(&str, &str)> = of("dependent").chain(of("independent")).collect();
    assert_eq!(found, want);
    for row in rows(&results) {
        assert!(row["ns_per_access"].as_f64().unwrap() > 0.0);
        assert_eq!((&row["verified"], &row["errors"]), (&4000.into(), &0.into()));
    }
}

#[test]
fn the_steps_of_a_mapped_page_are_measured_and_what_is_touched_is_verified() {
    const PAGES: u64 = 512;
    let dir = tempfile::tempdir().unwrap();
    let maps = maps_or_skip("the steps of maps");
    let results = results(dir.path(), &["bench", "map-fault", "--size", "2M", "--rounds", "2"]);
    for system in maps.iter().chain(&["mmap-random"]) {
        let of = |step: &str| {
            let row = rows(&results).iter().find(|r| r["system"] == *system && r["step"] == step);
            row.unwrap_or_else(|| panic!("{system} has no row for {step}"))
        };
        for step in ["fault", "touch"] {
            assert_eq!(of(step)["pages"], 2 * PAGES, "{}", of(step));
        }
        // Looks of the live sample take pages from the tables too: on a busy machine some are gone.
        for step in ["scan", "zap"] {
            let pages = of(step)["pages"].as_u64().unwrap();
            assert!((1..=2 * PAGES).contains(&pages), "{}", of(step));
        }
        for step in ["fault", "touch"] {
            assert_eq!((&of(step)["verified"], &of(step)["errors"]), (&1024.into(), &0.into()));
        }
        if system.starts_with("map-") {
            assert_eq!(of("evict")["pages"], 2 * PAGES, "all can be evicted");
            let turnover = of("turnover");
            assert!(turnover["pages"].as_u64().unwrap() > 0, "{turnover}");
            assert_eq!(turnover["max_bytes"], 512 << 10);
        }
    }
    for row in rows(&results) {
        for name in ["policy", "data_bytes", "page_bytes", "rounds", "seed"] {
            assert!(row.get(name).is_some(), "{name} is missing in {row}");
        }
        assert_eq!(keys(&row["ns_per_page_spread"]), BTreeSet::from(["median", "min", "max"]));
        assert!(row["per_s"].is_f64() && row["ms_per_gib"].is_f64(), "{row}");
    }
}

#[test]
fn reads_at_a_depth_are_measured_beside_fio() {
    let dir = tempfile::tempdir().unwrap();
    let args =
        ["bench", "depth", "--depth", "1,4", "--max", "1M", "--seconds", "0.2", "--rounds", "2"];
    let fio = std::process::Command::new("fio").arg("--version").output().is_ok();
    let args = if fio { [args.as_slice(), &["--against", "fio"]].concat() } else { args.to_vec() };
    if !fio {
        eprintln!("SKIPPED in part: fio is not installed");
    }
    let results = results(dir.path(), &args);
    let found: Vec<(u64, &str)> = rows(&results)
        .iter()
        .map(|row| (row["depth"].as_u64().unwrap(), row["system"].as_str().unwrap()))
        .collect();
    let want = [(1, "lowtide"), (1, "fio"), (4, "lowtide"), (4, "fio")];
    let want: Vec<_> = want.into_iter().filter(|row| fio || row.1 != "fio").collect();
    assert_eq!(found, want);
    for row in rows(&results) {
        assert!(row["iops"].as_f64().unwrap() > 0.0);
        assert_eq!(row["errors"], 0);
    }
}

/// Each page of each round is known by its mark, or is a hole.
#[test]
fn threads_that_map_read_and_unmap_files_find_the_right_pages_in_every_system() {
    const TEST: &str = "threads_that_map_read_and_unmap_files";
    let maps = maps_or_skip(TEST);
    if maps.len() < 2 {
        return;
    }
    let peers = if memcg_or_skip(TEST) { "map-pagecache,mmap-random" } else { "map-pagecache" };
    let dir = tempfile::tempdir().unwrap();
    let results = results(
        dir.path(),
        &[
            &["bench", "mmap-thrash", "--scale", "0.01", "--seconds", "0.5", "--rounds", "1"],
            ["--against", peers].as_slice(),
        ]
        .concat(),
    );
    let systems: Vec<_> =
        rows(&results).iter().map(|row| row["system"].as_str().unwrap()).collect();
    assert_eq!(systems[..2], maps);
    assert_eq!(systems.len(), 1 + peers.split(',').count());
    for row in rows(&results) {
        let (verified, rounds) = (row["verified"].as_u64().unwrap(), row["ops"].as_u64().unwrap());
        assert_eq!((verified, row["errors"].as_u64()), (rounds * 4096, Some(0)), "{row}");
        assert_eq!((row["threads"].as_u64(), row["max_bytes"].as_u64()), (Some(5), Some(12 << 20)));
        assert!(rounds >= 5, "each thread has made a round: {row}");
    }
    assert_eq!(rows(&results)[0]["fault_path"], "hold");
    assert!(files(dir.path()).is_empty(), "{:?}", files(dir.path()));
}

/// Each block is known by its words.
#[test]
fn threads_that_copy_blocks_out_of_mapped_files_get_the_right_ones_in_every_system() {
    const TEST: &str = "threads_that_copy_blocks_out_of_mapped_files";
    let maps = maps_or_skip(TEST);
    if maps.len() < 2 {
        return;
    }
    let peers =
        if memcg_or_skip(TEST) { "map-pagecache,mmap,mmap-random" } else { "map-pagecache" };
    for (distribution, max) in [("zipf", 12 << 20), ("uniform", 10 << 20)] {
        let dir = tempfile::tempdir().unwrap();
        let results = results(
            dir.path(),
            &[
                &["bench", "fio-mmap", "--scale", "0.001", "--seconds", "0.5", "--rounds", "1"],
                ["--policy", "mglru", "--against", peers].as_slice(),
                &["--distribution", distribution],
            ]
            .concat(),
        );
        let systems: Vec<_> =
            rows(&results).iter().map(|row| row["system"].as_str().unwrap()).collect();
        assert_eq!(systems[..2], maps);
        assert_eq!(systems.len(), 1 + peers.split(',').count());
        for row in rows(&results) {
            assert_eq!((&row["verified"], row["errors"].as_u64()), (&row["ops"], Some(0)), "{row}");
            let sizes = [&row["threads"], &row["max_bytes"], &row["data_bytes"]];
            assert_eq!(sizes.map(|size| size.as_u64().unwrap()), [16, max, 48 << 20], "{row}");
            assert!(row["ops"].as_u64().unwrap() > 100, "{row}");
        }
        assert!(files(dir.path()).is_empty(), "{:?}", files(dir.path()));
    }
}

#[test]
fn a_file_is_read_in_order_by_each_api() {
    let dir = tempfile::tempdir().unwrap();
    let short = ["--max", "1M", "--seconds", "0.2", "--rounds", "2"];
    let sizes = ["bench", "in-order", "--op", "read,read_at,get_many", "--io-size", "64K"];
    let results = results(dir.path(), &[&sizes[..], &short].concat());
    let systems: Vec<_> =
        rows(&results).iter().map(|row| row["system"].as_str().unwrap()).collect();
    assert_eq!(systems[..4], ["lowtide read", "lowtide read_at", "lowtide get_many", "pread"]);
    for row in rows(&results) {
        assert_eq!((&row["workload"], &row["errors"]), (&"in-order".into(), &0.into()), "{row}");
        assert!(row["ops"].as_u64().unwrap() > 0, "{row}");
    }
}

/// Exit code 2, a message with these words, and no file.
fn refused(args: &[&str], words: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let output = run(&[args, &["--dir", dir.path().to_str().unwrap()]].concat());
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {message}");
    assert!(words.iter().all(|word| message.contains(word)), "{args:?}: {message}");
    assert!(files(dir.path()).is_empty());
}

#[test]
fn what_cannot_be_meant_is_refused() {
    refused(&["bench", "hit", "--size", "0"], &["'0' for '--size"]);
    refused(&["bench", "hit", "--record", "t.csv"], &["--record", "hit"]);
    refused(&["bench", "depth", "--depth", "8", "--against", "mmap"], &["mmap", "fio"]);
    refused(&["bench", "depth", "--threads", "2"], &["--threads", "depth"]);
    refused(&["bench", "in-order", "--io-size", "5K", "--max", "1M"], &["--io-size", "64K"]);
}
