//! A wrapper of a [`DataAccess`] that records every access.
//!
//! An access is recorded when it begins. An update is a load, and a store if it writes.

use std::io;
use std::sync::Arc;

use lowtide_workload::OpKind;

use super::log::Log;
use lowtide_bench::access::{AccessError, DataAccess};

/// One thread's access, and its number in the log.
pub(crate) struct Tap<D> {
    access: D,
    notebook: Notebook,
}

struct Notebook {
    log: Arc<Log>,
    thread: u32,
    page_shift: u32,
}

impl Notebook {
    fn note(&self, kind: OpKind, offset: u64, len: usize) -> io::Result<()> {
        self.log.note(self.thread, kind, [self.pages(offset, len)])
    }

    /// The pages of a range of bytes: the first, and their number.
    fn pages(&self, offset: u64, len: usize) -> (u64, u32) {
        let first = offset >> self.page_shift;
        let last = (offset + (len as u64).max(1) - 1) >> self.page_shift;
        // Players request at most 2^16 pages of 64 KiB; the trace rejects more.
        (first, u32::try_from(last - first + 1).unwrap_or(u32::MAX))
    }
}

impl<D: DataAccess> Tap<D> {
    /// Records the accesses of `thread` through `access`, in pages of `page_bytes`, a power of two.
    pub(crate) fn new(access: D, log: Arc<Log>, thread: u32, page_bytes: u64) -> Self {
        Self { access, notebook: Notebook { log, thread, page_shift: page_bytes.trailing_zeros() } }
    }
}

impl<D: DataAccess> DataAccess for Tap<D> {
    fn load<R>(
        &mut self,
        offset: u64,
        len: usize,
        look: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, AccessError> {
        self.notebook.note(OpKind::Load, offset, len)?;
        self.access.load(offset, len, look)
    }

    fn load_many(
        &mut self,
        offsets: &[u64],
        len: usize,
        look: impl FnMut(usize, &[u8]),
    ) -> Result<(), AccessError> {
        let Notebook { log, thread, .. } = &self.notebook;
        let ranges = offsets.iter().map(|&offset| self.notebook.pages(offset, len));
        log.note(*thread, OpKind::Load, ranges)?;
        self.access.load_many(offsets, len, look)
    }

    fn store(&mut self, offset: u64, bytes: &[u8]) -> Result<(), AccessError> {
        self.notebook.note(OpKind::Store, offset, bytes.len())?;
        self.access.store(offset, bytes)
    }

    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), AccessError> {
        self.notebook.note(OpKind::Read, offset, bytes.len())?;
        self.access.read(offset, bytes)
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), AccessError> {
        self.notebook.note(OpKind::Write, offset, bytes.len())?;
        self.access.write(offset, bytes)
    }

    fn modify(
        &mut self,
        offset: u64,
        bytes: &mut [u8],
        change: impl FnOnce(&mut [u8]) -> bool,
    ) -> Result<(), AccessError> {
        self.notebook.note(OpKind::Load, offset, bytes.len())?;
        let mut noted = Ok(());
        let notebook = &self.notebook;
        self.access.modify(offset, bytes, |bytes| {
            let store = change(bytes);
            if store {
                noted = notebook.note(OpKind::Store, offset, bytes.len());
            }
            store && noted.is_ok()
        })?;
        Ok(noted?)
    }

    fn flush(&mut self) -> Result<(), AccessError> {
        self.access.flush()
    }
}
