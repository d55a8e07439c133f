//! What a flush has called durable is there after a cut of the power, and a disk that lies is found out.

mod common;

use common::Dir;
use lowtide::faults::{Fault, FaultyDisk, Plan};
use lowtide::{Inject, InjectOp, OpenOptions, Pager};
use std::path::Path;
use std::sync::Arc;

const PAGE: u64 = 4096;
const PAGES: u64 = 96;

fn pager(disk: &Arc<FaultyDisk>) -> Pager {
    let inject: Arc<dyn Inject> = disk.clone();
    Pager::builder().max("128K".parse().unwrap()).background(false).inject(inject).build().unwrap()
}

/// Fills a file with a letter and flushes, writes another letter over it without, cuts, and returns what is left: one byte for each sector.
fn left_behind(dir: &Path, plan: Plan, seed: u64) -> Vec<u8> {
    let (path, image) = (dir.join("data"), dir.join("image"));
    let _ = std::fs::remove_file(&path);
    let disk = Arc::new(FaultyDisk::new(plan));
    let pager = pager(&disk);
    let view = OpenOptions::new().create(PAGES * PAGE).open(&pager, &path).unwrap();
    for page in 0..PAGES {
        view.write_at(page * PAGE, &[b'a'; PAGE as usize]).unwrap();
    }
    if view.flush().is_err() {
        // Told once; with a good disk everything that failed is written again.
        disk.set_plan(Plan::new());
        view.flush().unwrap();
    }
    for page in (0..PAGES).rev() {
        view.write_at(page * PAGE, &[b'b'; PAGE as usize]).unwrap();
    }
    disk.cut();
    drop(view);
    drop(pager);
    disk.image(&path, seed, &image).unwrap();
    let left = std::fs::read(&image).unwrap();
    assert_eq!(left.len() as u64, PAGES * PAGE);
    left.chunks(512)
        .map(|sector| {
            assert!(sector.iter().all(|byte| *byte == sector[0]), "a sector is whole");
            sector[0]
        })
        .collect()
}

#[test]
fn what_was_flushed_survives_and_what_was_not_may_be_lost_torn_and_out_of_order() {
    let dir = Dir::new();
    let (mut lost, mut torn) = (0, 0);
    for seed in 0..10 {
        let sectors = left_behind(dir.path(), Plan::new(), seed);
        assert!(sectors.iter().all(|byte| [b'a', b'b'].contains(byte)), "seed {seed}: neither was written");
        lost += sectors.iter().filter(|byte| **byte == b'a').count();
        torn += sectors.chunks(8).filter(|page| page.contains(&b'a') && page.contains(&b'b')).count();
    }
    assert!(lost > 0 && torn > 0, "{lost} sectors lost, {torn} pages torn: the disk is too kind");
}

#[test]
fn failing_and_short_writes_lose_nothing_that_was_flushed() {
    let dir = Dir::new();
    for fault in Fault::of(InjectOp::Write).iter().filter(|fault| **fault != Fault::Hang) {
        let sectors = left_behind(dir.path(), Plan::new().every(InjectOp::Write, 2, *fault), 3);
        assert!(sectors.iter().all(|byte| [b'a', b'b'].contains(byte)), "{fault}");
    }
}

#[test]
fn a_lost_sync_and_a_lost_write_are_found() {
    let dir = Dir::new();
    for op in [InjectOp::Sync, InjectOp::Write] {
        let found = (0..10).any(|seed| {
            let sectors = left_behind(dir.path(), Plan::new().every(op, 1, Fault::Lie), seed);
            sectors.iter().any(|byte| ![b'a', b'b'].contains(byte))
        });
        assert!(found, "{op:?}: a disk that lies went unnoticed");
    }
}
