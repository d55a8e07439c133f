//! The bytes to be written: records with key and checksum, generated once, in a file of their own.
//!
//! Generating them costs as much as copying them several times, so it must not be timed, and `dd`
//! can only read them from a file. It lies beside the files that are written, and is on the device
//! before anything is timed. Where memory has room for it, it is read from the page cache. Every
//! system reads each piece into its own buffer before writing it, as `dd` does.

use std::io::{self, Write};
use std::path::Path;

use lowtide_bench::content::Content;
use lowtide_bench::datafile::{DataDir, Scratch};
use lowtide_bench::error::BenchError;
use lowtide_report::interrupt;
use lowtide_report::progress::{Patient, Unit};

use super::file::CHUNK_BYTES;

/// The bytes to be written, which the kernel may drop from memory. Removed on drop.
#[derive(Debug)]
pub(crate) struct Source {
    file: Scratch,
}

impl Source {
    /// Generates `bytes` bytes, a multiple of a record.
    ///
    /// # Errors
    /// Those of [`DataDir::scratch`]; [`BenchError::File`], [`BenchError::DiskFull`],
    /// [`BenchError::Interrupted`].
    pub(crate) fn make(dir: &DataDir, bytes: u64) -> Result<Self, BenchError> {
        let file = dir.scratch("to-be-written")?;
        write(&file, bytes).map_err(|source| BenchError::file("write", file.path(), source))?;
        interrupt::check(|| "making what is to be written".into())?;
        Ok(Self { file })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }
}

fn write(to: &Scratch, bytes: u64) -> io::Result<()> {
    let mut file = to.file();
    let mut progress = Patient::new("making what is to be written", Unit::Bytes, bytes);
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut offset = 0;
    while offset < bytes && !interrupt::requested() {
        let len = usize::try_from(bytes - offset).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
        Content::Records.fill(offset, &mut chunk[..len]);
        file.write_all(&chunk[..len])?;
        offset += len as u64;
        progress.add(len as u64);
    }
    drop(progress);
    file.sync_data()
}
