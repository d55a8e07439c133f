//! Access to a file, in the same form for all systems.
//!
//! A player reaches its data through a [`DataAccess`]: a mapping (`load`, `store`; lowtide: a
//! guard) or the descriptor (`read`, `write`). lowtide's implementation is here; those of the peers
//! are in `peer/mapping.rs` and `peer/descriptor.rs`. Players are generic over it, so every system
//! runs the same instructions around its accesses.

use std::io;

use lowtide::View;
use thiserror::Error;

/// Why an access failed.
#[derive(Debug, Error)]
pub enum AccessError {
    #[error(transparent)]
    Lowtide(#[from] lowtide::Error),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// One thread's access to one file. Offsets and lengths are in bytes and inside the file.
///
/// What only reads has a [`load`](Self::load), and says in [`READ_ONLY`](Self::READ_ONLY) what a
/// write is answered with.
pub trait DataAccess: Send + 'static {
    /// Why nothing can be written.
    const READ_ONLY: &'static str = "it is read-only";

    /// Passes `len` bytes at `offset` to `look`. They do not cross a page unless they are longer
    /// than one.
    fn load<R>(
        &mut self,
        offset: u64,
        len: usize,
        look: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, AccessError>;

    /// Passes `len` bytes at each of `offsets` to `look`, with their index, in any order. Misses
    /// may overlap; behind a pointer they cannot, and this loads one after the other.
    fn load_many(
        &mut self,
        offsets: &[u64],
        len: usize,
        mut look: impl FnMut(usize, &[u8]),
    ) -> Result<(), AccessError> {
        offsets
            .iter()
            .enumerate()
            .try_for_each(|(index, &offset)| self.load(offset, len, |bytes| look(index, bytes)))
    }

    /// Writes through the mapping.
    fn store(&mut self, _offset: u64, _bytes: &[u8]) -> Result<(), AccessError> {
        Err(read_only(Self::READ_ONLY))
    }

    /// Reads through the descriptor, where there is more than one way.
    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), AccessError> {
        self.load(offset, bytes.len(), |found| bytes.copy_from_slice(found))
    }

    /// Writes through the descriptor.
    fn write(&mut self, _offset: u64, _bytes: &[u8]) -> Result<(), AccessError> {
        Err(read_only(Self::READ_ONLY))
    }

    /// Changes `bytes.len()` bytes at `offset` through the mapping: `change` gets the current
    /// content in `bytes` and returns whether to write it back. Readers see all of the change or
    /// nothing.
    fn modify(
        &mut self,
        _offset: u64,
        _bytes: &mut [u8],
        _change: impl FnOnce(&mut [u8]) -> bool,
    ) -> Result<(), AccessError> {
        Err(read_only(Self::READ_ONLY))
    }

    /// Makes everything written so far durable.
    fn flush(&mut self) -> Result<(), AccessError> {
        Ok(())
    }
}

fn read_only(why: &str) -> AccessError {
    AccessError::Io(io::Error::new(io::ErrorKind::Unsupported, why))
}

/// Bytes that are put together at a time when data of one call crosses pages: they stay in the
/// processor's cache.
const ASSEMBLED_BYTES: usize = 256 << 10;

/// A part of the data of one call that lies within a page.
#[derive(Clone, Copy, Debug)]
struct Piece {
    /// Where it begins in its page.
    start: usize,
    /// Where it begins in the buffer.
    to: usize,
    len: usize,
}

/// Access through lowtide: a [`View`].
///
/// A write excludes the guards of its page, so readers never see half of one. Two threads that
/// update the same record at once may both start from one version, and the later write wins: the
/// record stays whole.
#[derive(Clone)]
pub struct ViewAccess {
    view: View,
    page_shift: u32,
    /// Buffer for data that crosses pages.
    bytes: Vec<u8>,
    pages: Vec<u64>,
    pieces: Vec<Piece>,
}

impl ViewAccess {
    /// Access to `view`.
    pub fn new(view: View) -> Self {
        let page_shift = view.page_size().trailing_zeros();
        Self { view, page_shift, bytes: Vec::new(), pages: Vec::new(), pieces: Vec::new() }
    }

    /// The page of an offset, and the offset in the page.
    #[inline]
    const fn split(&self, offset: u64) -> (u64, usize) {
        (offset >> self.page_shift, (offset & ((1 << self.page_shift) - 1)) as usize)
    }

    #[inline]
    const fn fits_page(&self, start: usize, len: usize) -> bool {
        start + len <= 1 << self.page_shift
    }

    /// Puts data that crosses pages together in the buffer: one call for the pages of all, so that
    /// their misses overlap and neighbours are read together.
    fn assemble(&mut self, offsets: &[u64], len: usize) -> Result<(), AccessError> {
        let page_bytes = 1 << self.page_shift;
        self.bytes.resize(offsets.len() * len, 0);
        self.pages.clear();
        self.pieces.clear();
        for (index, &offset) in offsets.iter().enumerate() {
            let mut done = 0;
            while done < len {
                let (page, start) = self.split(offset + done as u64);
                let piece = (len - done).min(page_bytes - start);
                self.pages.push(page);
                self.pieces.push(Piece { start, to: index * len + done, len: piece });
                done += piece;
            }
        }
        let (pieces, bytes) = (&self.pieces, &mut self.bytes);
        let mut short = Ok(());
        self.view.get_many(&self.pages, |index, page| {
            let Piece { start, to, len } = pieces[index];
            match guard_bytes(page, start, len) {
                Ok(piece) => bytes[to..][..len].copy_from_slice(piece),
                Err(error) => short = Err(error),
            }
        })?;
        short
    }
}

impl DataAccess for ViewAccess {
    #[inline]
    fn load<R>(
        &mut self,
        offset: u64,
        len: usize,
        look: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, AccessError> {
        let (page, start) = self.split(offset);
        if self.fits_page(start, len) {
            let guard = self.view.page(page)?;
            return guard_bytes(&guard, start, len).map(look);
        }
        self.bytes.resize(len, 0);
        self.view.read_at(offset, &mut self.bytes)?;
        Ok(look(&self.bytes))
    }

    fn load_many(
        &mut self,
        offsets: &[u64],
        len: usize,
        mut look: impl FnMut(usize, &[u8]),
    ) -> Result<(), AccessError> {
        if offsets.iter().any(|&offset| !self.fits_page(self.split(offset).1, len)) {
            let at_once = (ASSEMBLED_BYTES / len).max(1);
            let mut first = 0;
            for offsets in offsets.chunks(at_once) {
                self.assemble(offsets, len)?;
                for (index, bytes) in (first..).zip(self.bytes.chunks_exact(len)) {
                    look(index, bytes);
                }
                first += offsets.len();
            }
            return Ok(());
        }
        let mut pages = std::mem::take(&mut self.pages);
        pages.clear();
        pages.extend(offsets.iter().map(|&offset| self.split(offset).0));
        let mut short = Ok(());
        let done = self.view.get_many(&pages, |index, bytes| {
            match guard_bytes(bytes, self.split(offsets[index]).1, len) {
                Ok(bytes) => look(index, bytes),
                Err(error) => short = Err(error),
            }
        });
        self.pages = pages;
        done?;
        short
    }

    fn store(&mut self, offset: u64, bytes: &[u8]) -> Result<(), AccessError> {
        self.write(offset, bytes)
    }

    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), AccessError> {
        Ok(self.view.read_at(offset, bytes)?)
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), AccessError> {
        Ok(self.view.write_at(offset, bytes)?)
    }

    fn modify(
        &mut self,
        offset: u64,
        bytes: &mut [u8],
        change: impl FnOnce(&mut [u8]) -> bool,
    ) -> Result<(), AccessError> {
        self.load(offset, bytes.len(), |found| bytes.copy_from_slice(found))?;
        if change(bytes) { self.write(offset, bytes) } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), AccessError> {
        Ok(self.view.flush()?)
    }
}

/// A part of a page. The last page of a file may be shorter than the others, for example after the
/// file was truncated.
#[inline]
fn guard_bytes(page: &[u8], start: usize, len: usize) -> Result<&[u8], AccessError> {
    page.get(start..start + len).ok_or_else(|| {
        AccessError::Io(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!(
                "the page has {} bytes where {} were expected; was the file truncated?",
                page.len(),
                start + len
            ),
        ))
    })
}
