//! Three tenants of one pager, and what each gets of it: one protected, one limited, one with
//! memory of its own.
//!
//! `cargo run --release -p lowtide --example tenants`

use lowtide::{OpenOptions, Pager, Size, Tenant, View};
use std::error::Error;
use std::path::Path;

const MIB: u64 = 1 << 20;

/// Opens a file of `bytes` for a tenant.
fn open(tenant: &Tenant, dir: &Path, bytes: u64) -> Result<View, Box<dyn Error>> {
    let path = dir.join(&*tenant.name()?);
    Ok(OpenOptions::new().create_with_len(bytes).tenant(tenant).open(tenant.pager(), path)?)
}

#[expect(clippy::print_stdout, reason = "the table is what the example is for")]
fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let pager = Pager::builder().max(Size::mib(32)).build()?;
    let index = pager.tenant("index").min(Size::mib(12)).create()?;
    let scans = pager.tenant("scans").max(Size::mib(8)).create()?;
    let query = pager.tenant("query").high(Size::mib(10)).create()?;

    let hot = open(&index, dir.path(), 10 * MIB)?;
    let cold = open(&scans, dir.path(), 64 * MIB)?;
    let table = open(&query, dir.path(), 64 * MIB)?;
    let sort_buffer = query.reserve(Size::mib(6))?;
    for page in 0..hot.page_count() {
        drop(hot.page(page)?);
    }
    for page in 0..cold.page_count() {
        drop(cold.page(page)?);
        drop(table.page(page)?);
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
    println!("the index has lost {} of its pages", hot.page_count() - index.stat()?.file);
    drop(sort_buffer);
    Ok(())
}
