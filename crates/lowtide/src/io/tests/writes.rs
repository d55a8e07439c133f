//! Scenarios of writes, and of requests that are made to fail.
//!
//! # Safety
//!
//! Opts in to unsafe code for requests (see `tests.rs`).
#![allow(unsafe_code)]

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::super::{Inject, InjectOp, IoEngine, Options, Slice, Write};
use super::world::{Disk, Memory, PAGE, content, drain, errno, open, open_with};

pub(super) fn a_run_is_written_from_scattered_memory(engine: IoEngine) {
    let Some(backend) = open(engine) else { return };
    let (memory, disk) = (Memory::new(8 * PAGE), Disk::new(16 * PAGE));
    for (kind, file, fd) in disk.each() {
        for page in 0..8 {
            memory.bytes_mut(page * PAGE, PAGE).fill(page as u8 + 100);
        }
        let order = [5, 2, 7, 0];
        let slices: Vec<Slice> = order.iter().map(|page| Slice::new(memory.at(page * PAGE), PAGE)).collect();
        // SAFETY: `memory` outlives the call.
        backend.write_run(unsafe { Write::new(fd, 3 * PAGE as u64, &slices) }).unwrap();
        // SAFETY: as above.
        backend.write_run(unsafe { Write::new(fd, 0, &[]) }).unwrap();
        backend.sync(fd).unwrap();
        let found = memory.bytes_mut(0, 8 * PAGE);
        file.read_exact_at(&mut found[..6 * PAGE], 2 * PAGE as u64).unwrap();
        assert!(found[..PAGE] == content(2 * PAGE as u64, PAGE), "{kind}: the page before is untouched");
        for (index, page) in order.iter().enumerate() {
            let at = (index + 1) * PAGE;
            assert!(found[at..at + PAGE].iter().all(|&byte| byte == *page as u8 + 100), "{kind}: {index}");
        }
        assert!(found[5 * PAGE..6 * PAGE] == content(7 * PAGE as u64, PAGE), "{kind}: nor the one behind");
    }
}

pub(super) fn more_slices_than_one_call_takes(engine: IoEngine) {
    const SLICES: usize = 2500;
    const LEN: usize = 512;
    let Some(backend) = open(engine) else { return };
    let (memory, disk) = (Memory::new(SLICES * LEN), Disk::new(2 * SLICES * LEN));
    for (kind, file, fd) in disk.each() {
        for index in 0..SLICES {
            memory.bytes_mut(index * LEN, LEN).fill((index % 251) as u8);
        }
        let slices: Vec<Slice> =
            (0..SLICES).rev().map(|index| Slice::new(memory.at(index * LEN), LEN)).collect();
        let half = (SLICES * LEN) as u64;
        // SAFETY: `memory` outlives the calls.
        let runs = [0, half].map(|offset| unsafe { Write::new(fd, offset, &slices) });
        backend.write_run(runs[0]).unwrap();
        for result in backend.write_runs(&runs) {
            result.unwrap();
        }
        for offset in [0, half] {
            file.read_exact_at(memory.bytes_mut(0, SLICES * LEN), offset).unwrap();
            for place in 0..SLICES {
                let expected = ((SLICES - 1 - place) % 251) as u8;
                let found = memory.bytes(place * LEN, LEN);
                assert!(found.iter().all(|&byte| byte == expected), "{kind}: slice {place} at {offset}");
            }
            // The memory now holds the run backwards: restore it for the next look.
            for index in 0..SLICES {
                memory.bytes_mut(index * LEN, LEN).fill((index % 251) as u8);
            }
        }
    }
}

pub(super) fn runs_are_written_side_by_side(engine: IoEngine) {
    const RUNS: usize = 20;
    let Some(backend) = open_with(engine, Options { depth: 8, ..Options::default() }) else { return };
    let (memory, disk) = (Memory::new(2 * RUNS * PAGE), Disk::new(3 * RUNS * PAGE));
    for (kind, file, fd) in disk.each() {
        for page in 0..2 * RUNS {
            memory.bytes_mut(page * PAGE, PAGE).fill(page as u8 + 1);
        }
        // Run i is the pages i and i + RUNS of the memory; every fifth goes nowhere.
        let slices: Vec<[Slice; 2]> = (0..RUNS)
            .map(|run| [run, run + RUNS].map(|page| Slice::new(memory.at(page * PAGE), PAGE)))
            .collect();
        let runs: Vec<Write<'_>> = slices
            .iter()
            .enumerate()
            .map(|(run, slices)| {
                let fd = if run % 5 == 4 { -1 } else { fd };
                // SAFETY: `memory` outlives the call.
                unsafe { Write::new(fd, (3 * run * PAGE) as u64, slices) }
            })
            .collect();
        let results = backend.write_runs(&runs);
        assert_eq!(results.len(), RUNS);
        for (run, result) in results.into_iter().enumerate() {
            let offset = (3 * run * PAGE) as u64;
            let found = memory.bytes_mut(0, 2 * PAGE);
            file.read_exact_at(found, offset).unwrap();
            if run % 5 == 4 {
                assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EBADF), "{kind}");
                assert!(found == content(offset, 2 * PAGE), "{kind}: run {run} failed and changed the file");
            } else {
                result.unwrap();
                assert!(found[..PAGE].iter().all(|&byte| byte == run as u8 + 1), "{kind}: run {run}");
                assert!(
                    found[PAGE..].iter().all(|&byte| byte == (run + RUNS) as u8 + 1),
                    "{kind}: run {run}"
                );
            }
        }
        assert!(backend.write_runs(&[]).is_empty());
        // For the next descriptor, the file as it was.
        let fresh = content(0, 3 * RUNS * PAGE);
        disk.opened[0].1.write_all_at(&fresh, 0).unwrap();
        disk.opened[0].1.sync_all().unwrap();
    }
}

/// Fails what touches one offset, and every sync; counts everything.
#[derive(Default)]
struct BadBlock {
    asked: AtomicU64,
}

impl Inject for BadBlock {
    fn before(&self, op: InjectOp, offset: u64, _len: u64) -> Option<io::Error> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        (op == InjectOp::Sync || offset == PAGE as u64).then(|| io::Error::from_raw_os_error(libc::EIO))
    }
}

pub(super) fn an_injected_error_replaces_the_transfer(engine: IoEngine) {
    let bad = Arc::new(BadBlock::default());
    let options = Options { inject: Some(bad.clone()), ..Options::default() };
    let Some(backend) = open_with(engine, options) else { return };
    let (memory, disk) = (Memory::new(3 * PAGE), Disk::new(3 * PAGE));
    for (kind, file, fd) in disk.each() {
        let before = bad.asked.load(Ordering::Relaxed);
        memory.bytes_mut(0, 3 * PAGE).fill(0xEE);
        assert_eq!(backend.read_one(memory.read(fd, 0, 0, PAGE, 0)).unwrap() as usize, PAGE, "{kind}");
        let failed = backend.read_one(memory.read(fd, PAGE as u64, PAGE, PAGE, 0));
        assert_eq!(errno(failed), Some(libc::EIO), "{kind}");

        let mut batch = backend.batch();
        for page in 0..3 {
            batch.push(memory.read(fd, (page * PAGE) as u64, page * PAGE, PAGE, page as u64));
        }
        assert_eq!(batch.in_flight(), 3, "{kind}: a failed read is in flight until it is returned");
        let mut failed: Vec<u64> = drain(&mut batch)
            .into_iter()
            .filter(|completion| completion.result.is_err())
            .map(|completion| completion.user)
            .collect();
        assert_eq!(failed.pop(), Some(1), "{kind}");
        assert!(failed.is_empty(), "{kind}");
        assert!(memory.bytes(PAGE, PAGE).iter().all(|&byte| byte == 0xEE), "{kind}: memory was touched");

        let slices = [Slice::new(memory.at(PAGE), PAGE)];
        // SAFETY: `memory` outlives the calls.
        let run = unsafe { Write::new(fd, PAGE as u64, &slices) };
        assert_eq!(backend.write_run(run).unwrap_err().raw_os_error(), Some(libc::EIO), "{kind}");
        assert!(backend.write_runs(&[run]).remove(0).is_err(), "{kind}");
        assert_eq!(backend.sync(fd).unwrap_err().raw_os_error(), Some(libc::EIO), "{kind}");
        file.read_exact_at(memory.bytes_mut(0, PAGE), PAGE as u64).unwrap();
        assert!(memory.bytes(0, PAGE) == content(PAGE as u64, PAGE), "{kind}: the file was touched");
        assert_eq!(bad.asked.load(Ordering::Relaxed) - before, 2 + 3 + 2 + 1, "{kind}: once a request");
    }
}
