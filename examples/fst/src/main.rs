//! Builds an index of four budgets, and looks every key up through a map.
//!
//! `cargo run -- userfault` (or `pagecache`, `auto`); the second argument is the budget.

use fst::{IntoStreamer, Map, MapBuilder, Streamer};
use lowtide::map::{MapMode, MapOptions};
use lowtide::{Pager, Size};
use std::error::Error;
use std::fs::File;
use std::io::BufWriter;

/// Keys without much in common, in order, so that the index is not compressed to nothing.
fn key(n: u64) -> [u8; 16] {
    let mixed = (n ^ 0x5DEE_CE66).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut key = [0; 16];
    key[..8].copy_from_slice(&n.to_be_bytes());
    key[8..].copy_from_slice(&mixed.to_be_bytes());
    key
}

/// Writes an index of at least `bytes` bytes; returns how many keys it has.
fn build(file: &File, bytes: u64) -> Result<u64, Box<dyn Error>> {
    let mut builder = MapBuilder::new(BufWriter::new(file))?;
    let mut keys = 0;
    while builder.bytes_written() < bytes {
        builder.insert(key(keys), keys * 3)?;
        keys += 1;
    }
    builder.finish()?;
    file.sync_all()?;
    Ok(keys)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let way: MapMode = arguments.next().as_deref().unwrap_or("auto").parse()?;
    let budget: Size = arguments.next().as_deref().unwrap_or("512K").parse()?;
    let file = tempfile::tempfile()?;
    let keys = build(&file, 4 * budget.bytes())?;

    let pager = Pager::builder().max(budget).build()?;
    // SAFETY: the file has no name, so no other program changes it.
    let bytes = unsafe { MapOptions::new().mode(way).map(&pager, &file) }?;
    println!("{} keys in {} bytes; the budget is {budget}", keys, bytes.len());
    let index = Map::new(bytes)?;
    // Spread over the file: a step that has no divisor in common with any power of two.
    let mut at = 0;
    for _ in 0..keys {
        assert_eq!(index.get(key(at)), Some(at * 3), "key {at}");
        at = (at + 7_777_777_777) % keys;
    }
    let (mut stream, mut seen) = (index.range().ge(key(keys / 2)).into_stream(), keys / 2);
    while let Some((_, value)) = stream.next() {
        assert_eq!(value, seen * 3);
        seen += 1;
    }
    assert_eq!((seen, index.get("missing")), (keys, None));
    let map = index.as_fst().as_inner();
    println!("{}", map.report());
    println!("{}", pager.stat());
    if map.report().mode == MapMode::Userfault {
        assert!(map.report().resident_bytes <= budget.bytes());
    }
    Ok(())
}
