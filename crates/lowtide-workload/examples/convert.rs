//! Reads a trace of any format, says what it holds and how fast it was read, and with a second
//! argument writes it in one of ours.
//!
//! ```text
//! cargo run --release -p lowtide-workload --example convert -- sort.lackey
//! cargo run --release -p lowtide-workload --example convert -- sort.lackey sort.lt.zst
//! ```

#![allow(clippy::print_stdout, reason = "an example prints")]

use lowtide_workload::trace::{Columns, Head, Survey, create, open};
use std::error::Error;
use std::path::PathBuf;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let Some(from) = arguments.next() else {
        return Err(
            "name a trace to read, and perhaps one to write (.csv, .lt, with .gz or .zst)".into()
        );
    };
    let begin = Instant::now();
    let mut trace = open(&from, None)?;
    let format = trace.format();
    let survey = Survey::of(&mut trace)?;
    let seconds = begin.elapsed().as_secs_f64();
    println!("{} is {format}: {}", from.display(), format.description());
    println!(
        "{} operations, {} of them write; {} threads",
        survey.ops,
        survey.writes,
        survey.threads.len()
    );
    for space in survey.spaces.iter().take(20) {
        println!(
            "{}: {} pages, {} operations, {} write",
            space.space,
            space.pages(),
            space.ops,
            space.writes
        );
    }
    if let Some((first, last)) = survey.time_ns {
        println!("{:.3} s of recorded time", (last - first) as f64 / 1e9);
    }
    println!(
        "read in {seconds:.2} s: {:.1} million operations a second",
        survey.ops as f64 / seconds / 1e6
    );

    if let Some(to) = arguments.next() {
        let begin = Instant::now();
        let columns = Columns {
            time_ns: survey.time_ns.is_some(),
            thread: !survey.threads.is_empty(),
            tenant: !survey.tenants.is_empty(),
        };
        let mut trace = open(&from, None)?;
        let mut writer = create(&to, Head { columns, page_bytes: trace.page_bytes() })?;
        while let Some(record) = trace.next().transpose()? {
            writer.write(&record, trace.names())?;
        }
        writer.finish()?;
        println!("converted in {:.2} s: {}", begin.elapsed().as_secs_f64(), to.display());
    }
    Ok(())
}
