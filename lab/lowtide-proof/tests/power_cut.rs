//! What a flush has called durable is there after a cut of the power, and a disk that lies is found
//! out.

use lowtide::instruments::{Inject, InjectOp};
use lowtide::{OpenOptions, Pager, Size, View};
use lowtide_proof::disk::{Fault, FaultyDisk, Plan};
use std::path::Path;
use std::sync::Arc;

const PAGE: u64 = 4096;
const PAGES: u64 = 96;

/// A folder on a file system that takes direct I/O, removed on drop.
fn dir() -> tempfile::TempDir {
    // The build folder is on a disk, the system's temporary folder may be in memory.
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary folder can be made")
}

fn pager(disk: &Arc<FaultyDisk>) -> Pager {
    let inject: Arc<dyn Inject> = disk.clone();
    Pager::builder().max(Size::kib(128)).background(false).inject(inject).build().unwrap()
}

/// Fills a file with a letter and flushes, writes another letter over it without, cuts, and returns
/// what is left: one byte for each sector.
fn left_behind(dir: &Path, plan: Plan, seed: u64) -> Vec<u8> {
    let (path, image) = (dir.join("data"), dir.join("image"));
    let _ = std::fs::remove_file(&path);
    let disk = Arc::new(FaultyDisk::new(plan));
    let pager = pager(&disk);
    let view = OpenOptions::new().create_with_len(PAGES * PAGE).open(&pager, &path).unwrap();
    for page in 0..PAGES {
        view.write_at(page * PAGE, &[b'a'; PAGE as usize]).unwrap();
    }
    if view.flush().is_err() {
        // Reported once; with a good disk everything that failed is written again.
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
    let mut left = std::fs::read(&image).unwrap();
    // A disk that lies may lose the length, too: what is not there is no letter.
    left.resize((PAGES * PAGE) as usize, 0);
    left.chunks(512)
        .map(|sector| {
            assert!(sector.iter().all(|byte| *byte == sector[0]), "a sector is whole");
            sector[0]
        })
        .collect()
}

#[test]
fn what_was_flushed_survives_and_what_was_not_may_be_lost_torn_and_out_of_order() {
    let dir = dir();
    let (mut lost, mut torn) = (0, 0);
    for seed in 0..10 {
        let sectors = left_behind(dir.path(), Plan::new(), seed);
        assert!(
            sectors.iter().all(|byte| [b'a', b'b'].contains(byte)),
            "seed {seed}: neither was written"
        );
        lost += sectors.iter().filter(|byte| **byte == b'a').count();
        torn +=
            sectors.chunks(8).filter(|page| page.contains(&b'a') && page.contains(&b'b')).count();
    }
    assert!(lost > 0 && torn > 0, "{lost} sectors lost, {torn} pages torn: the disk is too kind");
}

#[test]
fn failing_and_short_writes_lose_nothing_that_was_flushed() {
    let dir = dir();
    for fault in Fault::of(InjectOp::Write).iter().filter(|fault| **fault != Fault::Hang) {
        let sectors = left_behind(dir.path(), Plan::new().every(InjectOp::Write, 2, *fault), 3);
        assert!(sectors.iter().all(|byte| [b'a', b'b'].contains(byte)), "{fault}");
    }
}

#[test]
fn a_lost_sync_and_a_lost_write_are_found() {
    let dir = dir();
    for op in [InjectOp::Sync, InjectOp::Write] {
        let found = (0..10).any(|seed| {
            let sectors = left_behind(dir.path(), Plan::new().every(op, 1, Fault::Lie), seed);
            sectors.iter().any(|byte| ![b'a', b'b'].contains(byte))
        });
        assert!(found, "{op:?}: a disk that lies went unnoticed");
    }
}

/// What a cut leaves of a file of letters that a view has changed, by seed: a letter for each
/// sector.
fn changed(dir: &Path, plan: &Plan, change: impl Fn(&View), flushed: bool) -> Vec<String> {
    let (path, image) = (dir.join("data"), dir.join("image"));
    let letters = |bytes: &[u8]| bytes.chunks(512).map(|sector| char::from(sector[0])).collect();
    let mut seen: Vec<String> = (0..60)
        .map(|seed| {
            std::fs::write(&path, [b'a'; 4 * PAGE as usize]).unwrap();
            let disk = Arc::new(FaultyDisk::new(plan.clone()));
            let pager = pager(&disk);
            let view = OpenOptions::new().write(true).open(&pager, &path).unwrap();
            change(&view);
            if flushed {
                view.flush().unwrap();
            }
            disk.cut();
            drop((view, pager));
            disk.image(&path, seed, &image).unwrap();
            letters(&std::fs::read(&image).unwrap())
        })
        .collect();
    seen.sort();
    seen.dedup();
    seen
}

const LETTERS: usize = 4 * PAGE as usize / 512;

#[test]
fn what_was_cut_off_or_punched_is_gone_after_a_flush_and_may_come_back_before() {
    let dir = dir();
    let cut = |view: &View| view.set_len(PAGE).unwrap();
    let again = |view: &View| {
        view.set_len(PAGE).unwrap();
        view.set_len(2 * PAGE).unwrap();
    };
    let punch = |view: &View| view.punch(PAGE..2 * PAGE).unwrap();
    let (page, zeroes) = ("a".repeat(8), "\0".repeat(8));
    assert_eq!(changed(dir.path(), &Plan::new(), cut, true), std::slice::from_ref(&page));
    assert_eq!(changed(dir.path(), &Plan::new(), again, true), [format!("{page}{zeroes}")]);
    let holed = format!("{page}{zeroes}{page}{page}");
    assert_eq!(changed(dir.path(), &Plan::new(), punch, true), [holed]);
    for (what, seen) in [
        ("cut", changed(dir.path(), &Plan::new(), cut, false)),
        ("grown again", changed(dir.path(), &Plan::new(), again, false)),
        ("punched", changed(dir.path(), &Plan::new(), punch, false)),
    ] {
        assert!(seen.contains(&"a".repeat(LETTERS)), "{what}: it never came back");
        assert!(seen.len() > 3, "{what}: the disk is too kind");
    }
}

#[test]
fn a_lost_cut_a_lost_hole_a_tail_and_a_lost_name_are_found() {
    let dir = dir();
    let cut = |view: &View| view.set_len(PAGE).unwrap();
    let lied = |op| Plan::new().every(op, 1, Fault::Lie);
    assert_ne!(changed(dir.path(), &lied(InjectOp::Shrink), cut, true), ["a".repeat(8)]);
    let punch = |view: &View| view.punch(0..4 * PAGE).unwrap();
    assert_ne!(changed(dir.path(), &lied(InjectOp::Punch), punch, true), ["\0".repeat(LETTERS)]);
    let (path, image) = (dir.path().join("new"), dir.path().join("image"));
    std::fs::write(&path, [b'a'; 512]).unwrap();
    let disk = Arc::new(FaultyDisk::new(Plan::new().every(InjectOp::Shrink, 1, Fault::Tail)));
    let pager_of_tail = pager(&disk);
    let view = OpenOptions::new().write(true).open(&pager_of_tail, &path).unwrap();
    view.set_len(100).unwrap();
    view.set_len(PAGE).unwrap();
    view.flush().unwrap();
    disk.cut();
    drop((view, pager_of_tail));
    disk.image(&path, 1, &image).unwrap();
    let left = std::fs::read(&image).unwrap();
    assert!(left[100..512].contains(&b'a'), "the tail went unnoticed");

    let lost = |plan: Plan| {
        (0..20).any(|seed| {
            let _ = std::fs::remove_file(&path);
            let disk = Arc::new(FaultyDisk::new(plan.clone()));
            disk.expect_new(&path);
            let pager = pager(&disk);
            let view = OpenOptions::new().create_with_len(0).open(&pager, &path).unwrap();
            view.write_at(0, b"named").unwrap();
            view.flush().unwrap();
            disk.cut();
            drop((view, pager));
            let cut = disk.image(&path, seed, &image).unwrap();
            assert_eq!(cut.unnamed, std::fs::read(&image).unwrap().is_empty());
            cut.unnamed
        })
    };
    assert!(!lost(Plan::new()), "a flush makes the name durable");
    assert!(lost(lied(InjectOp::Name)), "a lost name went unnoticed");
}
