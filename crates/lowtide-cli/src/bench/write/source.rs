//! The bytes to be written: records with key and checksum, generated once, in a file in memory.
//!
//! Generating them costs as much as copying them several times, so it must not be timed, and `dd`
//! can only read them from a file. So they are in a file in memory (`memfd_create(2)`) that ends
//! with this process. Every system reads each piece into its own buffer before writing it, as `dd`
//! does. Other processes find the file under `/proc`.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use rustix::fs::{MemfdFlags, memfd_create};

use super::file::CHUNK_BYTES;
use crate::bench::content::Content;
use crate::bench::error::BenchError;
use crate::{interrupt, progress};

/// The bytes to be written, in memory outside all budgets.
#[derive(Debug)]
pub(crate) struct Source {
    file: File,
}

impl Source {
    /// Generates `bytes` bytes, a multiple of a record.
    ///
    /// # Errors
    /// [`BenchError::File`], [`BenchError::Interrupted`].
    pub(crate) fn make(bytes: u64) -> Result<Self, BenchError> {
        Self::filled(bytes)
            .map_err(|source| BenchError::file("make", "a file in memory".as_ref(), source))
            .and_then(|source| {
                interrupt::check(|| "making what is to be written".into())?;
                Ok(source)
            })
    }

    fn filled(bytes: u64) -> io::Result<Self> {
        let mut file = File::from(memfd_create("lowtide-source", MemfdFlags::CLOEXEC)?);
        let progress = progress::bytes("making what is to be written", bytes);
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut offset = 0;
        while offset < bytes && !interrupt::requested() {
            let len =
                usize::try_from(bytes - offset).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
            Content::Records.fill(offset, &mut chunk[..len]);
            file.write_all(&chunk[..len])?;
            offset += len as u64;
            progress.inc(len as u64);
        }
        progress.finish_and_clear();
        Ok(Self { file })
    }

    /// The path by which other processes find it while it exists.
    pub(crate) fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into()
    }
}
