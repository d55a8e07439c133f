//! Scenarios of reads: what they bring, where they end, how they fail.

use std::collections::HashSet;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use super::super::{Completion, IoEngine, Options};
use super::world::{
    Disk, Memory, PAGE, anon, content, drain, errno, open, open_with, read_queued, sync,
};

pub(super) fn single_reads_of_every_size(engine: IoEngine) {
    let Some(backend) = open(engine) else { return };
    let (memory, disk) = (Memory::new(2 << 20), Disk::new(4 << 20));
    for (kind, _, fd) in disk.each() {
        for (offset, len) in
            [(0, 512), (512, 1024), (4096, 4096), (12288, 65536), (1 << 20, 2 << 20)]
        {
            let got = backend.read_one(&anon(), memory.read(fd, offset, 0, len, 0)).unwrap();
            assert_eq!(got as usize, len, "{kind}");
            assert!(
                memory.bytes(0, len) == content(offset, len),
                "{kind}: {len} bytes at {offset}"
            );
        }
    }
}

pub(super) fn registered_and_other_memory_hold_the_same_bytes(engine: IoEngine) {
    let (memory, other, disk) = (Memory::new(16 * PAGE), Memory::new(PAGE), Disk::new(64 * PAGE));
    let options = Options { arena: Some(memory.arena()), ..Options::default() };
    let Some(backend) = open_with(engine, options) else { return };
    for (kind, _, fd) in disk.each() {
        for page in 0..16 {
            let offset = (page * 3 * PAGE) as u64;
            read_queued(&backend, memory.read(fd, offset, page * PAGE, PAGE, 0)).unwrap();
            read_queued(&backend, other.read(fd, offset, 0, PAGE, 0)).unwrap();
            assert!(memory.bytes(page * PAGE, PAGE) == content(offset, PAGE), "{kind}: registered");
            assert!(other.bytes(0, PAGE) == content(offset, PAGE), "{kind}: not registered");
        }
    }
}

pub(super) fn a_read_ends_with_the_file(engine: IoEngine) {
    let Some(backend) = open(engine) else { return };
    let (memory, disk) = (Memory::new(2 * PAGE), Disk::new(5000));
    for (kind, _, fd) in disk.each() {
        assert_eq!(
            backend.read_one(&anon(), memory.read(fd, 0, 0, 2 * PAGE, 0)).unwrap(),
            5000,
            "{kind}"
        );
        assert!(memory.bytes(0, 5000) == content(0, 5000), "{kind}");
        assert_eq!(
            backend.read_one(&anon(), memory.read(fd, PAGE as u64, 0, PAGE, 0)).unwrap(),
            904,
            "{kind}"
        );
        assert_eq!(
            backend.read_one(&anon(), memory.read(fd, 1 << 20, 0, PAGE, 0)).unwrap(),
            0,
            "{kind}"
        );
        let mut batch = backend.batch(&anon());
        batch.push(memory.read(fd, 0, 0, 2 * PAGE, 7));
        let completions = drain(&mut batch);
        assert!(matches!(completions[..], [Completion { user: 7, result: Ok(5000) }]), "{kind}");
    }
}

pub(super) fn a_run_is_read_into_scattered_memory(engine: IoEngine) {
    const PAGES: usize = 1500;
    let Some(backend) = open(engine) else { return };
    let len = PAGES * PAGE - 1000;
    let (memory, disk) = (Memory::new(PAGES * PAGE), Disk::new(len));
    for (kind, _, fd) in disk.each() {
        memory.bytes_mut(0, PAGES * PAGE).fill(0);
        // More slices than one transfer takes, backwards, and the file ends inside the last.
        let to: Vec<usize> = (0..PAGES).rev().map(|page| page * PAGE).collect();
        let mut batch = backend.batch(&anon());
        batch.push_run(memory.read_run(fd, 0, &to, PAGE, 7));
        let completions = drain(&mut batch);
        assert!(
            matches!(completions[..],
                [Completion { user: 7, result: Ok(got) }] if got as usize == len),
            "{kind}: {completions:?}"
        );
        for (page, &at) in to.iter().enumerate() {
            let valid = PAGE.min(len - page * PAGE);
            assert!(
                memory.bytes(at, valid) == content((page * PAGE) as u64, valid),
                "{kind}: page {page}"
            );
        }
    }
}

pub(super) fn a_batch_may_be_deeper_than_its_capacity(engine: IoEngine) {
    const COUNT: usize = 100;
    let Some(backend) = open_with(engine, Options { depth: 4, ..Options::default() }) else {
        return;
    };
    let (memory, disk) = (Memory::new(COUNT * PAGE), Disk::new(COUNT * PAGE));
    for (kind, _, fd) in disk.each() {
        memory.bytes_mut(0, COUNT * PAGE).fill(0);
        let mut batch = backend.batch(&anon());
        assert_eq!(batch.capacity(), 4);
        let mut seen = HashSet::new();
        let mut completions = Vec::new();
        for page in 0..COUNT {
            // Backwards, so that no read lands where it would without its offset.
            let offset = (COUNT - 1 - page) * PAGE;
            batch.push(memory.read(fd, offset as u64, page * PAGE, PAGE, page as u64));
        }
        batch.submit();
        assert_eq!(batch.in_flight(), COUNT);
        while batch.in_flight() > 0 {
            let before = batch.in_flight();
            batch.wait(3, &mut completions);
            assert!(completions.len() >= 3.min(before), "{kind}");
            assert_eq!(batch.in_flight(), before - completions.len(), "{kind}");
            for completion in completions.drain(..) {
                assert_eq!(completion.result.unwrap() as usize, PAGE, "{kind}");
                assert!(seen.insert(completion.user), "{kind}: {} ended twice", completion.user);
            }
        }
        assert_eq!(seen.len(), COUNT);
        for page in 0..COUNT {
            let offset = (COUNT - 1 - page) * PAGE;
            assert!(
                memory.bytes(page * PAGE, PAGE) == content(offset as u64, PAGE),
                "{kind}: page {page}"
            );
        }
    }
}

pub(super) fn waiting_for_none_only_looks(engine: IoEngine) {
    let Some(backend) = open(engine) else { return };
    let (memory, disk) = (Memory::new(PAGE), Disk::new(PAGE));
    for (kind, _, fd) in disk.each() {
        let mut batch = backend.batch(&anon());
        let mut completions = Vec::new();
        batch.wait(0, &mut completions);
        batch.wait(10, &mut completions);
        assert!(completions.is_empty(), "{kind}: nothing was requested");
        batch.push(memory.read(fd, 0, 0, PAGE, 0));
        while completions.is_empty() {
            batch.wait(0, &mut completions);
            std::thread::yield_now();
        }
        assert_eq!(batch.in_flight(), 0, "{kind}");
    }
}

pub(super) fn errors_are_the_kernels(engine: IoEngine) {
    let Some(backend) = open(engine) else { return };
    let (memory, disk) = (Memory::new(4 * PAGE), Disk::new(4 * PAGE));
    assert_eq!(errno(backend.read_one(&anon(), memory.read(-1, 0, 0, PAGE, 0))), Some(libc::EBADF));
    let to_nowhere = memory.write(-1, 0, &[0], PAGE, 0);
    assert_eq!(backend.write_run(to_nowhere).unwrap_err().raw_os_error(), Some(libc::EBADF));
    assert_eq!(sync(&backend, -1).unwrap_err().raw_os_error(), Some(libc::EBADF));

    for (kind, file, fd) in disk.each() {
        let impossible = backend.read_one(&anon(), memory.read(fd, u64::MAX, 0, PAGE, 0));
        assert_eq!(errno(impossible), Some(libc::EINVAL), "{kind}");
        let read_only = File::open(disk.path()).unwrap();
        let refused = memory.write(read_only.as_raw_fd(), 0, &[0], PAGE, 0);
        assert_eq!(
            backend.write_run(refused).unwrap_err().raw_os_error(),
            Some(libc::EBADF),
            "{kind}"
        );

        // Alignment is the file system's affair: say what it says.
        let said =
            file.read_at(memory.bytes_mut(100, 300), 10).map_err(|error| error.raw_os_error());
        let result = backend.read_one(&anon(), memory.read(fd, 10, 100, 300, 0));
        assert_eq!(
            result.map(|got| got as usize).map_err(|error| error.raw_os_error()),
            said,
            "{kind}"
        );
    }
}

pub(super) fn one_bad_read_spoils_no_other(engine: IoEngine) {
    let Some(backend) = open(engine) else { return };
    let (memory, disk) = (Memory::new(9 * PAGE), Disk::new(9 * PAGE));
    for (kind, _, fd) in disk.each() {
        let mut batch = backend.batch(&anon());
        for page in 0..9 {
            let fd = if page % 3 == 1 { -1 } else { fd };
            batch.push(memory.read(fd, (page * PAGE) as u64, page * PAGE, PAGE, page as u64));
        }
        for completion in drain(&mut batch) {
            let page = completion.user as usize;
            if page % 3 == 1 {
                assert_eq!(errno(completion.result), Some(libc::EBADF), "{kind}");
            } else {
                assert_eq!(completion.result.unwrap() as usize, PAGE, "{kind}");
                let expected = content((page * PAGE) as u64, PAGE);
                assert!(memory.bytes(page * PAGE, PAGE) == expected, "{kind}");
            }
        }
    }
}
