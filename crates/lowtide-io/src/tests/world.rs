//! What the scenarios play with: memory, files with known content, backends.
//!
//! # Safety
//!
//! Opts in to unsafe code to allocate, and to make reads. Every [`Memory`] outlives the backend or
//! the batch that uses it, and a scenario uses a page for one thing at a time.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::NamedTempFile;

use super::super::{
    Arena, Backend, Batch, Completion, IoEngine, Options, Read, ReadRun, Slice, Write,
};

pub(super) const PAGE: usize = 4096;

/// Page-aligned memory, as an arena would be.
pub(super) struct Memory {
    base: *mut u8,
    layout: Layout,
}

// SAFETY: the tests give each thread pages of its own.
unsafe impl Sync for Memory {}

// SAFETY: the memory is not tied to a thread.
unsafe impl Send for Memory {}

impl Memory {
    pub(super) fn new(len: usize) -> Memory {
        let layout = Layout::from_size_align(len, PAGE).unwrap();
        // SAFETY: the layout is not empty.
        let base = unsafe { alloc_zeroed(layout) };
        assert!(!base.is_null());
        Memory { base, layout }
    }

    pub(super) fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset < self.layout.size());
        self.base.wrapping_add(offset)
    }

    /// A read into this memory at `to`.
    pub(super) fn read(&self, fd: RawFd, offset: u64, to: usize, len: usize, user: u64) -> Read {
        assert!(to + len <= self.layout.size());
        // SAFETY: the memory outlives the backend or batch, and the scenario uses disjoint pages.
        unsafe { Read::new(fd, offset, self.at(to), len as u32, user) }
    }

    /// A read into pieces of this memory: where they begin, and their length.
    pub(super) fn read_run(
        &self,
        fd: RawFd,
        offset: u64,
        to: &[usize],
        len: usize,
        user: u64,
    ) -> ReadRun {
        let slices = to.iter().map(|&at| {
            assert!(at + len <= self.layout.size());
            Slice::new(self.at(at), len)
        });
        // SAFETY: the memory outlives the backend or batch, and the scenario uses disjoint pages.
        unsafe { ReadRun::new(fd, offset, slices.collect(), user) }
    }

    /// A write of pieces of this memory: where they begin, and their length.
    pub(super) fn write(
        &self,
        fd: RawFd,
        offset: u64,
        from: &[usize],
        len: usize,
        user: u64,
    ) -> Write {
        let slices = from.iter().map(|&at| {
            assert!(at + len <= self.layout.size());
            Slice::new(self.at(at), len)
        });
        // SAFETY: the memory outlives the backend, the writer or the call.
        unsafe { Write::new(&anon(), fd, offset, slices.collect(), user) }
    }

    pub(super) fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        assert!(offset + len <= self.layout.size());
        // SAFETY: in bounds, initialised (zeroed), and no transfer to these pages is under way.
        unsafe { std::slice::from_raw_parts(self.at(offset), len) }
    }

    #[expect(clippy::mut_from_ref, reason = "pages are handed out like frames of an arena")]
    pub(super) fn bytes_mut(&self, offset: usize, len: usize) -> &mut [u8] {
        assert!(offset + len <= self.layout.size());
        // SAFETY: in bounds, initialised, and the scenario makes one such borrow at a time.
        unsafe { std::slice::from_raw_parts_mut(self.at(offset), len) }
    }

    pub(super) fn arena(&self) -> Arena {
        // SAFETY: the memory is neither unmapped nor exchanged before the test drops it, after the
        // backend.
        unsafe { Arena::new(self.base, self.layout.size()) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.base, self.layout) };
    }
}

/// The bytes every test file has at an offset.
pub(super) fn content(offset: u64, len: usize) -> Vec<u8> {
    (offset..offset + len as u64)
        .map(|at| (at / 512).wrapping_mul(31).wrapping_add(at) as u8)
        .collect()
}

/// A file with known content, and descriptors of the kinds to test.
pub(super) struct Disk {
    file: NamedTempFile,
    pub(super) opened: Vec<(&'static str, File)>,
}

impl Disk {
    pub(super) fn new(len: usize) -> Disk {
        let file = NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content(0, len)).unwrap();
        let open =
            |flags| OpenOptions::new().read(true).write(true).custom_flags(flags).open(file.path());
        let mut opened = vec![("buffered", open(0).unwrap())];
        match open(libc::O_DIRECT) {
            Ok(direct) => opened.push(("direct", direct)),
            Err(error) => eprintln!("no direct I/O here: {error}"),
        }
        Disk { file, opened }
    }

    /// Where the file is.
    pub(super) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Every kind of descriptor: its name, the file, the number.
    pub(super) fn each(&self) -> impl Iterator<Item = (&'static str, &File, RawFd)> {
        self.opened.iter().map(|(kind, file)| (*kind, file, file.as_raw_fd()))
    }
}

/// What files are called where the name does not matter.
pub(super) fn anon() -> Arc<PathBuf> {
    Arc::new(PathBuf::from("data"))
}

pub(super) fn open_with(engine: IoEngine, options: Options) -> Option<Backend> {
    match Backend::open(Options { engine, ..options }) {
        Ok(backend) => {
            assert_eq!(backend.engine(), engine);
            Some(backend)
        }
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

pub(super) fn open(engine: IoEngine) -> Option<Backend> {
    open_with(engine, Options::default())
}

pub(super) fn errno(result: io::Result<u32>) -> Option<i32> {
    result.unwrap_err().raw_os_error()
}

/// Carries one read out as a batch does: on a ring, if there are rings.
pub(super) fn read_queued(backend: &Backend, read: Read) -> io::Result<u32> {
    let mut batch = backend.batch(&anon());
    batch.push(read);
    drain(&mut batch).pop().expect("it was waited for").result
}

/// Waits for everything in a batch.
pub(super) fn drain(batch: &mut Batch<'_>) -> Vec<Completion> {
    let mut completions = Vec::new();
    batch.wait(batch.in_flight(), &mut completions);
    assert_eq!(batch.in_flight(), 0);
    completions
}

/// Writes several runs, overlapped: one result for each, in their order.
pub(super) fn write_runs(backend: &Backend, writes: Vec<Write>) -> Vec<io::Result<()>> {
    let mut results: Vec<io::Result<()>> = writes.iter().map(|_| Ok(())).collect();
    let mut writer = backend.writer();
    for (index, write) in writes.into_iter().enumerate() {
        writer.push(Write { user: index as u64, ..write });
    }
    let mut ended = Vec::new();
    writer.wait(results.len(), None, &mut ended);
    for completion in ended {
        results[completion.user as usize] = completion.result.map(drop);
    }
    results
}

/// Makes a file durable.
pub(super) fn sync(backend: &Backend, fd: RawFd) -> io::Result<()> {
    let mut writer = backend.writer();
    writer.push_sync(&anon(), fd, 0);
    let mut ended = Vec::new();
    writer.wait(1, None, &mut ended);
    ended.remove(0).result.map(drop)
}
