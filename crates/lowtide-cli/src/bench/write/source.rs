//! The bytes that are written: records with key and checksum, made once, in a file in memory.
//!
//! Making them costs about as much as copying them several times, so it must not be inside
//! anybody's clock; and `dd` can only read them. So they are in a file in memory
//! (`memfd_create(2)`) that goes with this process, and every system reads each piece of it into a
//! buffer of its own before it writes it, as `dd` does. Other processes find it under `/proc`.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use rustix::fs::{MemfdFlags, memfd_create};

use super::fill::CHUNK_BYTES;
use crate::bench::content::Content;
use crate::bench::error::BenchError;
use crate::{interrupt, progress};

/// Bytes to be written. They are in memory, beside all budgets.
#[derive(Debug)]
pub(super) struct Source {
    file: File,
}

impl Source {
    /// Makes `bytes` bytes, a multiple of a record.
    ///
    /// # Errors
    /// [`BenchError::File`], [`BenchError::Interrupted`].
    pub(super) fn make(bytes: u64) -> Result<Self, BenchError> {
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

    /// Where other processes find it, as long as it lives.
    pub(super) fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into()
    }
}
