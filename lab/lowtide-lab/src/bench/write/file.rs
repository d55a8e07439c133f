//! One file to be written: the loop that all systems share, and the check of the file.
//!
//! The clock runs from before the first piece is fetched. If the file is to be durable it stops
//! after the flush, so a system gains nothing by deferring its writes; else before it. The check is
//! not timed: the file is dropped from the kernel's page cache and read back through another
//! descriptor, and every record must have its key and checksum.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::Instant;

use lowtide_bench::access::AccessError;
use lowtide_bench::content::{Content, UNIT_BYTES};
use lowtide_bench::error::BenchError;
use lowtide_experiments::programs::writer::Writer;
use lowtide_report::interrupt;
use lowtide_report::tally::{Latency, Slice};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

/// Bytes per write.
pub(crate) const CHUNK_BYTES: usize = Writer::BLOCK as usize;
/// Alignment of buffers for direct I/O, in bytes: a page, which suffices for every device.
const ALIGN_BYTES: usize = 4096;

/// A file to be written, in a form that can be sent to a peer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Fill {
    /// The file, which exists and is empty.
    pub(crate) path: PathBuf,
    /// The source of the bytes.
    pub(crate) source: PathBuf,
    /// Number of bytes.
    pub(crate) bytes: u64,
    /// Whether the time of the flush counts.
    pub(crate) durable: bool,
}

impl Fill {
    /// Opens the file for writing, with direct I/O if `direct`.
    ///
    /// # Errors
    /// Those of opening; `EINVAL` if the file system does not support direct I/O.
    pub(crate) fn open(&self, direct: bool) -> io::Result<File> {
        let flags = if direct { OFlags::DIRECT } else { OFlags::empty() };
        File::options().read(true).write(true).custom_flags(flags.bits() as i32).open(&self.path)
    }

    /// Sets the file's length in advance, for systems that cannot extend it.
    ///
    /// # Errors
    /// Those of `ftruncate(2)`.
    pub(crate) fn set_len(&self) -> io::Result<()> {
        self.open(false)?.set_len(self.bytes)
    }

    /// Writes all of it to `to` with `store`, piece by piece, and then makes it durable with
    /// `flush`. Each piece counts as an operation. The first failure is counted and ends the loop;
    /// Ctrl-C ends it early.
    ///
    /// # Errors
    /// Those of reading the source.
    pub(crate) fn write<W>(
        &self,
        to: &mut W,
        mut store: impl FnMut(&mut W, u64, &[u8]) -> Result<(), AccessError>,
        flush: impl FnOnce(&mut W) -> Result<(), AccessError>,
    ) -> Result<Slice, AccessError> {
        let source = File::open(&self.source)?;
        let mut buffer = vec![0; CHUNK_BYTES + ALIGN_BYTES];
        let aligned = buffer.as_ptr().align_offset(ALIGN_BYTES);
        let chunk = &mut buffer[aligned..][..CHUNK_BYTES];
        let (mut slice, mut latency) = (Slice::default(), Latency::default());
        let begin = Instant::now();
        let (mut last, mut offset, mut done) = (begin, 0, Ok(()));
        while offset < self.bytes && !interrupt::requested() {
            let len = usize::try_from(self.bytes - offset)
                .map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
            source.read_exact_at(&mut chunk[..len], offset)?;
            done = store(to, offset, &chunk[..len]);
            if done.is_err() {
                break;
            }
            offset += len as u64;
            slice.ops += 1;
            let now = Instant::now();
            latency.record(now - last, 1);
            last = now;
        }
        slice.seconds = begin.elapsed().as_secs_f64();
        let begin = Instant::now();
        let flushed = flush(to);
        if self.durable {
            slice.add_flush(begin.elapsed());
        } else {
            slice.flush_seconds = begin.elapsed().as_secs_f64();
        }
        if let Err(error) = done.and(flushed) {
            slice.errors += 1;
            slice.first_error = Some(format!("writing {}: {error}", self.path.display()));
        }
        slice.latency = latency.pairs();
        Ok(slice)
    }

    /// Reads the file back and adds the correct and wrong records to `slice`. Skipped after a
    /// failed write.
    ///
    /// # Errors
    /// [`BenchError::File`].
    pub(crate) fn prove(&self, slice: &mut Slice) -> Result<(), BenchError> {
        if slice.errors > 0 || interrupt::requested() {
            return Ok(());
        }
        let name = |source| BenchError::file("read back", &self.path, source);
        let file = File::open(&self.path).map_err(name)?;
        lowtide_host::file::drop_page_cache(&file).map_err(name)?;
        let wrong = |slice: &mut Slice, what: String| {
            slice.errors += 1;
            slice.first_error.get_or_insert(what);
        };
        let found = file.metadata().map_err(name)?.len();
        if found != self.bytes {
            wrong(
                slice,
                format!("{} has {found} bytes instead of {}", self.path.display(), self.bytes),
            );
        }
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut offset = 0;
        while offset < self.bytes.min(found) && !interrupt::requested() {
            let left = self.bytes.min(found) - offset;
            let len = usize::try_from(left).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
            file.read_exact_at(&mut chunk[..len], offset).map_err(name)?;
            let (units, _) = chunk[..len].as_chunks::<UNIT_BYTES>();
            for (index, unit) in (offset / UNIT_BYTES as u64..).zip(units) {
                if Content::Records.check(index, unit) {
                    slice.verified += 1;
                } else {
                    wrong(
                        slice,
                        format!(
                            "record {index} of {} is not what was written",
                            self.path.display()
                        ),
                    );
                }
            }
            offset += len as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::write::source::Source;
    use lowtide_bench::datafile::{DataDir, Locking};

    fn made() -> (tempfile::TempDir, Source) {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = DataDir::open(Some(dir.path()), true, Locking::Locked).unwrap();
        let source = Source::make(&data_dir, 2 << 20).unwrap();
        (dir, source)
    }

    fn fill(dir: &std::path::Path, source: &Source) -> Fill {
        let path = dir.join("file");
        File::create(&path).unwrap();
        let source = source.path().to_owned();
        Fill { path, source, bytes: (1 << 20) + (64 << 10), durable: true }
    }

    fn written(fill: &Fill) -> Slice {
        let mut file = fill.open(false).unwrap();
        let store = |file: &mut File, offset, bytes: &[u8]| Ok(file.write_all_at(bytes, offset)?);
        fill.write(&mut file, store, |file| Ok(file.sync_data()?)).unwrap()
    }

    #[test]
    fn what_was_written_is_proved_record_by_record() {
        let (dir, source) = made();
        let fill = fill(dir.path(), &source);
        let mut slice = written(&fill);
        fill.prove(&mut slice).unwrap();
        assert_eq!((slice.ops, slice.verified, slice.errors), (2, 1088, 0));
    }

    #[test]
    fn the_time_of_the_flush_counts_if_the_file_is_to_be_durable() {
        let (dir, source) = made();
        for durable in [true, false] {
            let fill = Fill { durable, ..fill(dir.path(), &source) };
            let flush = |(): &mut ()| {
                std::thread::sleep(std::time::Duration::from_millis(400));
                Ok(())
            };
            let slice = fill.write(&mut (), |(), _, _| Ok(()), flush).unwrap();
            assert!(slice.flush_seconds >= 0.4);
            assert_eq!(slice.seconds >= 0.4, durable, "{}", slice.seconds);
        }
    }

    #[test]
    fn a_lost_page_and_a_lost_end_are_found() {
        let (dir, source) = made();
        let fill = fill(dir.path(), &source);
        let mut slice = written(&fill);
        let file = fill.open(false).unwrap();
        file.write_all_at(&[0; 4096], 64 << 10).unwrap();
        file.set_len(1 << 20).unwrap();
        fill.prove(&mut slice).unwrap();
        assert_eq!((slice.verified, slice.errors), (1020, 5));
        assert!(slice.first_error.unwrap().contains("1048576 bytes instead of 1114112"));
    }

    #[test]
    fn the_first_failure_ends_the_writing_and_is_counted() {
        let (dir, source) = made();
        let fill = fill(dir.path(), &source);
        let full =
            |_: &mut (), _, _: &[u8]| Err(io::Error::from(io::ErrorKind::StorageFull).into());
        let mut slice = fill.write(&mut (), full, |()| Ok(())).unwrap();
        fill.prove(&mut slice).unwrap();
        assert_eq!((slice.ops, slice.verified, slice.errors), (0, 0, 1));
    }
}
