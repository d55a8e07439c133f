//! Promise: a trace's page is that of its comment or head; where it has none, `--page` says it, and
//! what differs is noted.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::common::{rows, run, text};
use lowtide_workload::trace::{Columns, Head, Names, create};
use lowtide_workload::{OpKind, PageOp, Space, SpaceId};
use serde_json::Value;

/// What `lowtide sim trace` says of a trace, and its standard error.
fn simulated(trace: &Path, more: &[&str]) -> (Value, String) {
    let output =
        run(&[&["sim", "trace", trace.to_str().unwrap(), "--policy", "mglru", "--json"], more]
            .concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    (serde_json::from_slice(&output.stdout).unwrap(), text(&output.stderr))
}

/// Writes loads of these pages of 1 KiB.
fn write(path: &Path, pages: &[u64]) {
    let columns = Columns { time_ns: false, thread: false, tenant: false };
    let mut trace = create(path, Head { columns, page_bytes: Some(1024) }).unwrap();
    let names = Names::with_spaces([Space::file("data")]);
    for &page in pages {
        let op = PageOp { kind: OpKind::Load, space: SpaceId(0), page, pages: 1 };
        trace.write(&op.into(), &names).unwrap();
    }
    trace.finish().unwrap();
}

#[test]
fn a_trace_keeps_its_page_in_the_simulator() {
    let dir = tempfile::tempdir().unwrap();
    let pages: Vec<u64> = (0..8000).map(|n| n * 7919 % 5003).collect();
    let touched = pages.iter().collect::<BTreeSet<_>>().len() as u64;
    for name in ["kept.csv", "kept.lt"] {
        let trace = dir.path().join(name);
        write(&trace, &pages);

        let (results, notes) = simulated(&trace, &[]);
        assert_eq!((&results["machine"]["page"], notes.as_str()), (&1024.into(), ""));
        let row = &rows(&results)[0];
        assert_eq!((&row["page_bytes"], &row["footprint_pages"]), (&1024.into(), &touched.into()));
        assert_eq!(
            (&row["data_bytes"], &row["max_bytes"]),
            (&(touched * 1024).into(), &(touched / 4 * 1024).into())
        );
        // A machine has pages of its own: four of the trace's share one.
        let (results, _) = simulated(&trace, &["--machine", "laptop"]);
        let row = &rows(&results)[0];
        let shared: BTreeSet<u64> = pages.iter().map(|page| page / 4).collect();
        assert_eq!(
            (&row["page_bytes"], &row["footprint_pages"]),
            (&4096.into(), &shared.len().into())
        );
        let (results, _) = simulated(&trace, &["--mrc", "--baseline", "none", "--points", "3"]);
        assert_eq!(results["machine"]["footprint_bytes"], touched * 1024);
    }
}

#[test]
fn a_page_is_said_for_a_trace_that_does_not_and_what_differs_is_noted() {
    let dir = tempfile::tempdir().unwrap();
    let silent = dir.path().join("silent.csv");
    let lines: String = (0..400).map(|page| format!("load,file:a,{page},1\n")).collect();
    fs::write(&silent, format!("op,space,page,pages\n{lines}")).unwrap();
    for (more, page) in [(&[][..], 4096), (&["--page", "512"][..], 512)] {
        let (results, notes) = simulated(&silent, more);
        let row = &rows(&results)[0];
        assert_eq!((&row["page_bytes"], &row["data_bytes"]), (&page.into(), &(400 * page).into()));
        assert_eq!(notes, "");
    }
    let said = dir.path().join("said.csv");
    fs::write(&said, format!("# page_bytes: 1024\nop,space,page,pages\n{lines}")).unwrap();
    let (results, notes) = simulated(&said, &["--page", "8K"]);
    assert_eq!(rows(&results)[0]["data_bytes"], 400 * 8192);
    assert!(notes.contains("the trace has pages of 1K") && notes.contains("as 8K"), "{notes}");

    let table = |more: &[&str]| {
        let output =
            run(&[&["sim", "trace", silent.to_str().unwrap(), "--policy", "lru"], more].concat());
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };
    assert!(table(&[]).1.contains("pages of 4K (the trace does not say; --page may)"));
    assert!(table(&[]).1.contains("400 pages of 4K touched (1.6M)"), "{}", table(&[]).1);
    for page in ["3K", "256", "128K"] {
        let (code, message) = table(&["--page", page]);
        assert!(code == Some(2) && message.contains("power of two"), "{message}");
    }
    let output = run(&["sim", "zipf", "--page", "1K"]);
    assert!(output.status.code() == Some(2) && text(&output.stderr).contains("--page"));
}
