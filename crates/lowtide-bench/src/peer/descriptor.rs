//! A peer's access to its data through a descriptor: `pread(2)`.
//!
//! Buffered, the kernel brings whole pages into its page cache, which is charged to the group, and
//! copies the bytes from there. Direct (`O_DIRECT`), the device writes into this process's own
//! buffer, and there is no cache at all: each read is of the smallest block that covers the bytes
//! and that the device can read alone.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use lowtide_sys::file::{DirectAlign, OpenMode, direct_alignment, open};

use crate::access::{AccessError, DataAccess};

/// One thread's access through a descriptor.
#[derive(Clone)]
pub struct DescriptorAccess {
    file: Arc<File>,
    /// The rules of direct I/O, if the reads are direct.
    align: Option<DirectAlign>,
    buffer: Vec<u8>,
}

impl DescriptorAccess {
    /// Opens the file at `path` for buffered reads.
    ///
    /// # Errors
    /// Those of opening.
    pub fn buffered(path: &Path) -> io::Result<Self> {
        let file = open(path, OpenMode::READ)?;
        // As good advice as a program can give: it reads nothing ahead.
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random)?;
        Ok(Self { file: Arc::new(file), align: None, buffer: Vec::new() })
    }

    /// Opens the file at `path` for direct reads.
    ///
    /// # Errors
    /// Those of opening; `Unsupported` where its file system allows no direct I/O.
    pub fn direct(path: &Path) -> io::Result<Self> {
        let file = open(path, OpenMode::READ.direct())?;
        let align = direct_alignment(&file)?.ok_or(io::ErrorKind::Unsupported)?;
        Ok(Self { file: Arc::new(file), align: Some(align), buffer: Vec::new() })
    }

    /// Reads the smallest readable block that covers a range, and returns the range's place in the
    /// buffer.
    fn fetch(&mut self, offset: u64, len: usize) -> io::Result<usize> {
        let Some(DirectAlign { memory, offset: unit }) = self.align else {
            self.buffer.resize(len.max(self.buffer.len()), 0);
            self.file.read_exact_at(&mut self.buffer[..len], offset)?;
            return Ok(0);
        };
        let unit = unit as u64;
        let first = offset - offset % unit;
        let block = (offset + len as u64).next_multiple_of(unit) - first;
        let block = usize::try_from(block).map_err(io::Error::other)?;
        self.buffer.resize((block + memory).max(self.buffer.len()), 0);
        let at = self.buffer.as_ptr().align_offset(memory);
        self.file.read_exact_at(&mut self.buffer[at..at + block], first)?;
        Ok(at + (offset - first) as usize)
    }
}

impl DataAccess for DescriptorAccess {
    const READ_ONLY: &'static str = "this peer only reads";

    #[inline]
    fn load<R>(
        &mut self,
        offset: u64,
        len: usize,
        look: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, AccessError> {
        let at = self.fetch(offset, len)?;
        Ok(look(&self.buffer[at..at + len]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::Content;

    #[test]
    fn ranges_of_every_alignment_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("words");
        let mut bytes = vec![0; 64 << 10];
        Content::Words.fill(0, &mut bytes);
        std::fs::write(&path, &bytes).unwrap();
        let direct = DescriptorAccess::direct(&path)
            .inspect_err(|why| eprintln!("SKIPPED in part: direct reads: {why}"));
        for mut access in [DescriptorAccess::buffered(&path)].into_iter().chain([direct]).flatten()
        {
            let ranges = [(0, 512), (504, 16), (8, 64), (4088, 4096), (65_528, 8), (0, 65_536)];
            for (offset, len) in ranges {
                let found = access
                    .load(offset, len, |row| (row.len(), Content::Words.verify_words(offset, row)));
                assert_eq!(found.unwrap(), (len, Ok(())), "{len} bytes at {offset}");
            }
            let mut copy = [0; 24];
            access.read(1016, &mut copy).unwrap();
            assert_eq!(Content::Words.verify_words(1016, &copy), Ok(()));
            let behind = access.load(65_528, 16, <[u8]>::len).unwrap_err();
            assert!(matches!(behind, AccessError::Io(_)), "{behind}");
            assert!(access.write(0, &[1]).is_err() && access.store(0, &[1]).is_err());
            assert!(access.modify(0, &mut [1], |_| true).is_err());
            let wrong = access.load(8, 64, |row| Content::Words.verify_words(0, row));
            assert!(wrong.unwrap().is_err());
        }
    }
}
