//! Writes a ground-truth sequence as a trace, for `lowtide-lab bench replay --trace` and for other
//! tools.
//!
//! ```text
//! cargo run --release -p lowtide-experiments --example trace -- mix > mix.csv
//! cargo run --release -p lowtide-experiments --example trace -- \
//!     "kind=zipf s=0.99 F=8192 N=100000 mem=2048 seed=1" > zipf.csv
//! ```

use lowtide_experiments::groundtruth::{Case, PUBLIC, PublicCase};
use lowtide_workload::trace::{Columns, Head, Names, PAGE_BYTES, TraceRecord, Writer};
use std::error::Error;
use std::io::{BufWriter, stdout};

fn main() -> Result<(), Box<dyn Error>> {
    let Some(what) = std::env::args().nth(1) else {
        let names: Vec<_> = PUBLIC.iter().map(|case| case.name).collect();
        return Err(format!("name a case ({}) or give its parameters", names.join(", ")).into());
    };
    let case: Case = match PublicCase::find(&what) {
        Some(public) => public.case()?,
        None => what.parse()?,
    };
    let names = Names::with_spaces(case.spaces());
    // Real kernels played the sequences, on pages of 4 KiB.
    let head = Head { columns: Columns::default(), page_bytes: Some(PAGE_BYTES) };
    let mut writer = Writer::new(BufWriter::new(stdout().lock()), head)?;
    for op in case.page_ops() {
        writer.write(&TraceRecord::from(op), &names)?;
    }
    writer.finish()?;
    Ok(())
}
