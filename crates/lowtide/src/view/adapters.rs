//! A view in the places where the standard library wants a file.
//!
//! [`FileExt`] for code that reads at offsets, [`Cursor`] for code that reads and writes
//! sequentially, a descriptor for what lowtide does not do itself. All errors are
//! [`lowtide::Error`](crate::Error)s within an [`io::Error`].

use super::View;
use std::io::{self, BufRead, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;

/// Bytes that a cursor reads at once for callers that look into its buffer.
const BUFFER: usize = 64 << 10;

/// A position in a view, to read and write from: [`Read`], [`Write`], [`Seek`] and [`BufRead`].
///
/// Reads end at the end of the file; writes past it make the file longer. Writes are not buffered:
/// all views of the file read at once what a cursor writes. [`Write::flush`] makes it durable, as
/// [`View::flush`] does: the flush of a [`BufWriter`](io::BufWriter) around a cursor is a sync of
/// the file. Only [`BufRead`] copies ahead, up to 64 KiB, and does not see bytes that others store
/// there in the meantime.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let pager = lowtide::Pager::builder().max(lowtide::Size::mib(1)).build()?;
/// use std::io::{BufRead, Seek, Write};
///
/// let options = lowtide::OpenOptions::new().create_with_len(0);
/// let view = options.open(&pager, dir.path().join("lines"))?;
/// let mut cursor = view.cursor();
/// writeln!(cursor, "one")?;
/// writeln!(cursor, "two")?;
/// cursor.flush()?;                                // durable
/// cursor.rewind()?;
/// assert_eq!(cursor.lines().collect::<Result<Vec<_>, _>>()?, ["one", "two"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Cursor<'view> {
    view: &'view View,
    /// Where the next byte is read or written.
    position: u64,
    /// What was copied ahead; from `used` on it is what follows the position.
    buffer: Vec<u8>,
    used: usize,
}

impl View {
    /// A cursor at the beginning of the file. There may be many; each has a position of its own.
    #[must_use]
    pub fn cursor(&self) -> Cursor<'_> {
        Cursor { view: self, position: 0, buffer: Vec::new(), used: 0 }
    }
}

impl Cursor<'_> {
    fn go_to(&mut self, position: u64) {
        self.position = position;
        self.buffer.clear();
        self.used = 0;
    }
}

impl Read for Cursor<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let ahead = &self.buffer[self.used..];
        if !ahead.is_empty() {
            let count = ahead.len().min(buf.len());
            buf[..count].copy_from_slice(&ahead[..count]);
            self.consume(count);
            return Ok(count);
        }
        let count = self.view.read_clamped(self.position, buf)?;
        self.go_to(self.position + count as u64);
        Ok(count)
    }
}

impl BufRead for Cursor<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.used == self.buffer.len() {
            self.used = 0;
            self.buffer.resize(BUFFER, 0);
            let got = self.view.read_clamped(self.position, &mut self.buffer);
            self.buffer.truncate(*got.as_ref().unwrap_or(&0));
            got?;
        }
        Ok(&self.buffer[self.used..])
    }

    fn consume(&mut self, amount: usize) {
        let amount = amount.min(self.buffer.len() - self.used);
        self.used += amount;
        self.position += amount as u64;
    }
}

impl Write for Cursor<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.view.write_at(self.position, buf)?;
        self.go_to(self.position + buf.len() as u64);
        Ok(buf.len())
    }

    /// Makes the file durable, as [`View::flush`] does.
    fn flush(&mut self) -> io::Result<()> {
        Ok(self.view.flush()?)
    }
}

impl Seek for Cursor<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
            SeekFrom::End(by) => self.view.refresh_len()?.checked_add_signed(by),
        };
        // The error of `lseek` for a position before the beginning.
        self.go_to(position.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?);
        Ok(self.position)
    }
}

/// Reads are short at the end of the file, and writes make it longer, as with a
/// [`File`](std::fs::File).
impl FileExt for View {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(self.read_clamped(offset, buf)?)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        View::write_at(self, offset, buf)?;
        Ok(buf.len())
    }
}

/// The descriptor that lowtide uses through the page cache: to query the file, to lock ranges of
/// it, to advise the kernel. What is written through it does not reach pages that lowtide has in
/// memory.
impl AsFd for View {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.buffered().as_fd()
    }
}
