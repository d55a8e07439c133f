//! Three tenants of one pager, and what each gets of it: one protected, one limited, one with
//! memory of its own.
//!
//! `cargo run --release -p lowtide --example tenants`

use lowtide::{OpenOptions, Pager, Tenant, View};
use std::error::Error;
use std::path::Path;

const MIB: u64 = 1 << 20;

/// Opens a file of `bytes` for a tenant.
fn open(tenant: &Tenant, dir: &Path, bytes: u64) -> Result<View, Box<dyn Error>> {
    let path = dir.join(&*tenant.name()?);
    Ok(OpenOptions::new().create(bytes).tenant(tenant).open(tenant.pager(), path)?)
}

#[expect(clippy::print_stdout, reason = "the table is what the example is for")]
fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let pager = Pager::builder().max("32M".parse()?).build()?;
    let index = pager.tenant("index").min("12M".parse()?).create()?;
    let scans = pager.tenant("scans").max("8M".parse()?).create()?;
    let query = pager.tenant("query").high("10M".parse()?).create()?;

    let hot = open(&index, dir.path(), 10 * MIB)?;
    let cold = open(&scans, dir.path(), 64 * MIB)?;
    let table = open(&query, dir.path(), 64 * MIB)?;
    let sort_buffer = query.reserve("6M".parse()?)?;
    for page in 0..hot.pages() {
        drop(hot.read(page)?);
    }
    for page in 0..cold.pages() {
        drop(cold.read(page)?);
        drop(table.read(page)?);
    }

    println!(
        "{:<8} {:>9} {:>9} {:>9} {:>9} {:>9} {:>6}",
        "tenant", "usage", "peak", "file", "reserved", "refaults", "high"
    );
    for tenant in pager.root().children()? {
        let (stat, events) = (tenant.stat()?, tenant.events()?);
        let kib = |bytes: u64| format!("{}K", bytes >> 10);
        println!(
            "{:<8} {:>9} {:>9} {:>9} {:>9} {:>9} {:>6}",
            tenant.name()?,
            kib(tenant.usage()?),
            kib(tenant.peak()?),
            kib(stat.file * stat.page_bytes),
            kib(stat.reserved * stat.page_bytes),
            stat.events.workingset_refault_file,
            events.high
        );
    }
    println!("the index has lost {} of its pages", hot.pages() - index.stat()?.file);
    drop(sort_buffer);
    Ok(())
}
