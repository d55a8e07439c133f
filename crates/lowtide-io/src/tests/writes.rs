//! Scenarios of writes: in one call, and overlapped by a writer whose waits end.

use std::os::unix::fs::FileExt;
use std::time::Duration;

use super::super::{Completion, IoEngine, Options};
use super::world::{Disk, Memory, PAGE, anon, content, open, open_with, sync, write_runs};

pub(super) fn a_run_is_written_from_scattered_memory(engine: IoEngine) {
    let Some(backend) = open(engine) else { return };
    let (memory, disk) = (Memory::new(8 * PAGE), Disk::new(16 * PAGE));
    for (kind, file, fd) in disk.each() {
        for page in 0..8 {
            memory.bytes_mut(page * PAGE, PAGE).fill(page as u8 + 100);
        }
        let order = [5, 2, 7, 0];
        let from = order.map(|page| page * PAGE);
        backend.write_run(memory.write(fd, 3 * PAGE as u64, &from, PAGE, 0)).unwrap();
        backend.write_run(memory.write(fd, 0, &[], PAGE, 0)).unwrap();
        sync(&backend, fd).unwrap();
        let found = memory.bytes_mut(0, 8 * PAGE);
        file.read_exact_at(&mut found[..6 * PAGE], 2 * PAGE as u64).unwrap();
        assert!(
            found[..PAGE] == content(2 * PAGE as u64, PAGE),
            "{kind}: the page before is untouched"
        );
        for (index, page) in order.iter().enumerate() {
            let at = (index + 1) * PAGE;
            assert!(
                found[at..at + PAGE].iter().all(|&byte| byte == *page as u8 + 100),
                "{kind}: {index}"
            );
        }
        assert!(
            found[5 * PAGE..6 * PAGE] == content(7 * PAGE as u64, PAGE),
            "{kind}: nor the one behind"
        );
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
        let from: Vec<usize> = (0..SLICES).rev().map(|index| index * LEN).collect();
        let half = (SLICES * LEN) as u64;
        let runs = [0, half].map(|offset| memory.write(fd, offset, &from, LEN, 0));
        backend.write_run(runs[0].clone()).unwrap();
        for result in write_runs(&backend, runs.to_vec()) {
            result.unwrap();
        }
        for offset in [0, half] {
            file.read_exact_at(memory.bytes_mut(0, SLICES * LEN), offset).unwrap();
            for place in 0..SLICES {
                let expected = ((SLICES - 1 - place) % 251) as u8;
                let found = memory.bytes(place * LEN, LEN);
                assert!(
                    found.iter().all(|&byte| byte == expected),
                    "{kind}: slice {place} at {offset}"
                );
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
    let Some(backend) = open_with(engine, Options { depth: 8, ..Options::default() }) else {
        return;
    };
    let (memory, disk) = (Memory::new(2 * RUNS * PAGE), Disk::new(3 * RUNS * PAGE));
    for (kind, file, fd) in disk.each() {
        for page in 0..2 * RUNS {
            memory.bytes_mut(page * PAGE, PAGE).fill(page as u8 + 1);
        }
        // Run i is the pages i and i + RUNS of the memory; every fifth goes nowhere.
        let runs = (0..RUNS).map(|run| {
            let fd = if run % 5 == 4 { -1 } else { fd };
            memory.write(fd, (3 * run * PAGE) as u64, &[run * PAGE, (run + RUNS) * PAGE], PAGE, 0)
        });
        let results = write_runs(&backend, runs.collect());
        assert_eq!(results.len(), RUNS);
        for (run, result) in results.into_iter().enumerate() {
            let offset = (3 * run * PAGE) as u64;
            let found = memory.bytes_mut(0, 2 * PAGE);
            file.read_exact_at(found, offset).unwrap();
            if run % 5 == 4 {
                assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EBADF), "{kind}");
                assert!(
                    found == content(offset, 2 * PAGE),
                    "{kind}: run {run} failed and changed the file"
                );
            } else {
                result.unwrap();
                assert!(
                    found[..PAGE].iter().all(|&byte| byte == run as u8 + 1),
                    "{kind}: run {run}"
                );
                assert!(
                    found[PAGE..].iter().all(|&byte| byte == (run + RUNS) as u8 + 1),
                    "{kind}: run {run}"
                );
            }
        }
        assert!(write_runs(&backend, Vec::new()).is_empty());
        // For the next descriptor, the file as it was.
        let fresh = content(0, 3 * RUNS * PAGE);
        disk.opened[0].1.write_all_at(&fresh, 0).unwrap();
        disk.opened[0].1.sync_all().unwrap();
    }
}

pub(super) fn a_writer_overlaps_writes_and_syncs(engine: IoEngine) {
    const RUNS: usize = 40;
    let Some(backend) = open_with(engine, Options { depth: 8, ..Options::default() }) else {
        return;
    };
    let (memory, disk) = (Memory::new(RUNS * PAGE), Disk::new(RUNS * PAGE));
    for (kind, _, fd) in disk.each() {
        for page in 0..RUNS {
            memory.bytes_mut(page * PAGE, PAGE).fill(page as u8 ^ 0x55);
        }
        let mut writer = backend.writer();
        for run in 0..RUNS {
            writer.push(memory.write(fd, (run * PAGE) as u64, &[run * PAGE], PAGE, run as u64));
            if run % 10 == 9 {
                writer.push_sync(&anon(), fd, 1000 + run as u64);
                writer.submit();
            }
        }
        writer.push(memory.write(-1, 0, &[0], PAGE, 2000));
        writer.push(memory.write(fd, 0, &[], PAGE, 2001));
        writer.push(memory.write(fd, u64::MAX, &[0], PAGE, 2002));
        writer.push_sync(&anon(), -1, 2003);
        assert_eq!(writer.in_flight(), RUNS + 4 + 4);
        let mut ended: Vec<Completion> = Vec::new();
        while writer.in_flight() > 0 {
            writer.wait(3, Some(Duration::from_secs(60)), &mut ended);
        }
        assert_eq!(writer.bytes_in_flight(), 0);
        let mut users: Vec<u64> = ended.iter().map(|completion| completion.user).collect();
        users.sort_unstable();
        let syncs = [1009, 1019, 1029, 1039, 2000, 2001, 2002, 2003];
        assert_eq!(
            users,
            (0..RUNS as u64).chain(syncs).collect::<Vec<_>>(),
            "{kind}: each ends once"
        );
        for completion in ended {
            let expected = match completion.user {
                2000 | 2003 => Err(libc::EBADF),
                2002 => Err(libc::EINVAL),
                user if user < 1000 => Ok(PAGE as u32),
                _ => Ok(0),
            };
            let result = completion.result.map_err(|error| error.raw_os_error().unwrap());
            assert_eq!(result, expected, "{kind}: {}", completion.user);
        }
        let found = &std::fs::read(disk.path()).unwrap()[..RUNS * PAGE];
        for (page, found) in found.chunks(PAGE).enumerate() {
            assert!(found.iter().all(|&byte| byte == page as u8 ^ 0x55), "{kind}: page {page}");
        }
    }
}

pub(super) fn dropping_a_writer_waits_for_what_has_started(engine: IoEngine) {
    const RUNS: usize = 16;
    let Some(backend) = open(engine) else { return };
    let (memory, disk) = (Memory::new(PAGE), Disk::new(RUNS * PAGE));
    for (kind, _, fd) in disk.each() {
        for round in 0..20 {
            memory.bytes_mut(0, PAGE).fill(round);
            let mut writer = backend.writer();
            for run in 0..RUNS {
                writer.push(memory.write(fd, (run * PAGE) as u64, &[0], PAGE, 0));
            }
            writer.submit();
            drop(writer);
            // Whatever were still read from the memory would be seen in the file.
            memory.bytes_mut(0, PAGE).fill(0xEE);
            let found = &std::fs::read(disk.path()).unwrap()[..RUNS * PAGE];
            assert!(
                !found.contains(&0xEE),
                "{kind}: the memory was read after the writer was gone"
            );
        }
    }
}
