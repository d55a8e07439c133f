//! Everything at a small size: contents are verified, all systems keep to the same bytes, and bad
//! use of the command ends with a message. Nothing here looks at a time.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use lowtide_caches::layout::RecordLayout;
use lowtide_caches::run::{Plan, Table, run};
use lowtide_caches::system::Kind;
use lowtide_caches::work::Work;
use lowtide_workload::record::Payload;

const MAX: u64 = 4 << 20;

fn plan(dir: &Path) -> Plan {
    Plan {
        dir: dir.to_owned(),
        contents: Payload::Json,
        data: 16 << 20,
        max: MAX,
        pages: vec![RecordLayout::new(4096).unwrap()],
        threads: vec![1, 4],
        works: vec![Work::Uniform, Work::Update(20), Work::ScanZipf],
        systems: Kind::ALL.to_vec(),
        rounds: 2,
        slice: Duration::from_millis(50),
        durable: false,
    }
}

/// The run itself verifies each record that it reads, and counts the updates on the device.
#[test]
fn all_systems_verify_their_contents_within_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let mut tables: Vec<Table> = Vec::new();
    run(&plan(dir.path()), |table| tables.push(table.clone())).unwrap();
    assert_eq!(tables.len(), 6);
    for table in &tables {
        for row in &table.rows {
            let name = format!("{} {} x{}", row.system, table.work, table.threads);
            assert!(row.slices.iter().all(|slice| slice.ops > 0), "{name}");
            assert!((MAX * 93 / 100..=MAX).contains(&row.bytes), "{name}: {} bytes", row.bytes);
            let missed = row.per_op(|slice| slice.misses as f64);
            assert!(missed > 0.0 && missed < 1.0, "{name}: {missed} misses an operation");
            if table.work == Work::Uniform {
                // No policy can do better than the share of the file that is in memory.
                let share = (row.fit.pages * 4096) as f64 / f64::from(16 << 20);
                assert!((1.0 - missed - share).abs() < 0.05, "{name}: {missed} against {share}");
            }
        }
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "the data files are removed");
}

fn command(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lowtide-caches")).args(args).output().unwrap()
}

#[test]
fn wrong_arguments_are_refused_with_a_hint() {
    for (args, hint) in [
        (&["--page", "3000"][..], "power of two"),
        (&["--page", "512"], "from 1K"),
        (&["--work", "zip"], "update-5"),
        (&["--system", "redis"], "quick_cache"),
        (&["--system", "lowtide:best"], "policy"),
        (&["--threads", "0"], "1..=1024"),
        (&["--seconds", "nan"], "0.01"),
        (&["--full", "--data", "1G"], "cannot be used with"),
        (&["--data", "1M", "--max", "2M"], "larger than the budget"),
    ] {
        let output = command(args);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {error}");
        assert!(error.contains(hint), "{args:?}: {error}");
    }
}

#[test]
fn a_full_folder_and_a_missing_one_are_failures_that_leave_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let output = command(&["--dir", path, "--data", "1P"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("MiB free"));
    assert_eq!(std::fs::read_dir(path).unwrap().count(), 0);
    let output = command(&["--dir", "/nonexistent"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/nonexistent"));
}

#[test]
fn results_that_cannot_be_written_are_a_failure() {
    let output = Command::new(env!("CARGO_BIN_EXE_lowtide-caches"))
        .args(["--data", "4M", "--max", "1M", "--work", "zipf", "--threads", "1"])
        .args(["--system", "quick_cache", "--rounds", "1", "--seconds", "0.01"])
        .stdout(std::fs::File::options().write(true).open("/dev/full").unwrap())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot write the results"));
}

#[test]
fn an_interrupted_run_removes_its_files() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_lowtide-caches"))
        .args(["--dir", dir.path().to_str().unwrap(), "--data", "64M", "--max", "16M"])
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    while std::fs::read_dir(dir.path()).unwrap().count() == 0 {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it made a file");
        std::thread::yield_now();
    }
    let pid = i32::try_from(child.id()).unwrap();
    // SAFETY: The process is a child that has not been waited for.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGINT) }, 0);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
