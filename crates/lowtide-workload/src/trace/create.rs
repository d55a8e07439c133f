//! The way to write a trace to a file: [`create`], and [`TraceWriter`].
//!
//! The file's name selects the format: `.csv` the text, `.lt` the compact format; `.gz` or `.zst`
//! behind it compresses. The trace grows under a temporary name beside its own (`….partial`) and is
//! renamed when it is finished, so under its own name there are only whole traces, and a run that
//! fails leaves nothing. An existing path that is not a regular file (a pipe, a device) is written
//! to directly.

use super::compact::CompactWriter;
use super::csv::Writer;
use super::error::{TraceFileError, WriteError};
use super::format::Format;
use super::record::{Head, Names, TraceRecord};
use flate2::write::GzEncoder;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Bytes written at a time.
const BUFFER_BYTES: usize = 256 << 10;
/// Zstandard's own default. Our formats shrink little more at higher levels.
const ZSTD_LEVEL: i32 = 3;

/// A trace file that is being written.
///
/// [`finish`](Self::finish) makes it a trace; dropped before that, it is removed.
#[derive(Debug)]
pub struct TraceWriter {
    path: PathBuf,
    /// `None` once it is finished.
    encoder: Option<Encoder>,
    /// Where it grows; `None` for what is written to directly, and once it is in its place.
    partial: Option<PathBuf>,
}

#[derive(Debug)]
enum Encoder {
    Csv(Box<Writer<Output>>),
    Compact(Box<CompactWriter<Output>>),
}

/// Starts a trace at `path`, whose name says format and compression, with what `head` says:
/// optional columns, and the size of a page.
///
/// # Errors
/// [`TraceFileError::Name`], [`TraceFileError::Create`], [`TraceFileError::Write`].
///
/// ```
/// use lowtide_workload::trace::{self, Columns, Names};
/// use lowtide_workload::{OpKind, PageOp, Space, SpaceId};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("trace.lt.zst");
/// let names = Names::with_spaces([Space::file("data")]);
/// let mut writer = trace::create(&path, Columns::default())?;
/// writer.write(&PageOp::one(OpKind::Read, SpaceId(0), 17).into(), &names)?;
/// writer.finish()?;
/// assert_eq!(trace::open(&path, None)?.count(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn create(path: &Path, head: impl Into<Head>) -> Result<TraceWriter, TraceFileError> {
    let (format, compression) =
        by_name(path).ok_or_else(|| TraceFileError::Name { path: path.to_owned() })?;
    let uncreated = |source| TraceFileError::Create { path: path.to_owned(), source };
    let direct = fs::metadata(path).is_ok_and(|metadata| !metadata.is_file());
    let place = if direct { path.to_owned() } else { partial_path(path) };
    let file = if direct { File::options().write(true).open(&place) } else { File::create(&place) };
    let file = file.map_err(uncreated)?;
    // From here on, what is dropped is removed.
    let mut writer =
        TraceWriter { path: path.to_owned(), encoder: None, partial: (!direct).then_some(place) };
    let output = Output::new(file, compression).map_err(uncreated)?;
    let encoder = match format {
        Format::Compact => CompactWriter::new(output, head).map(Box::new).map(Encoder::Compact),
        _ => Writer::new(output, head).map(Box::new).map(Encoder::Csv),
    };
    writer.encoder = Some(encoder.map_err(|source| writer.unwritten(source))?);
    Ok(writer)
}

/// Refuses a path at which [`create`] cannot succeed: whose name says no format, or whose directory
/// does not exist.
///
/// # Errors
/// [`TraceFileError::Name`], [`TraceFileError::Create`].
pub fn check_path(path: &Path) -> Result<(), TraceFileError> {
    by_name(path).ok_or_else(|| TraceFileError::Name { path: path.to_owned() })?;
    let directory =
        path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match fs::metadata(directory) {
        Ok(metadata) if !metadata.is_dir() => Err(io::ErrorKind::NotADirectory.into()),
        Ok(_) if path.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(_) => Ok(()),
        Err(source) => Err(source),
    }
    .map_err(|source| TraceFileError::Create { path: path.to_owned(), source })
}

impl TraceWriter {
    /// Writes one record, whose numbers refer to `names`: the same tables for all records, though
    /// they may grow. Optional values without a column are left out.
    ///
    /// # Errors
    /// [`TraceFileError::Write`]; nothing of the record is then written, except perhaps when the
    /// device failed.
    #[inline]
    pub fn write(&mut self, record: &TraceRecord, names: &Names) -> Result<(), TraceFileError> {
        let written = match &mut self.encoder {
            Some(Encoder::Csv(writer)) => writer.write(record, names),
            Some(Encoder::Compact(writer)) => writer.write(record, names),
            // Only `finish` takes the encoder, and it takes the writer with it.
            None => Ok(()),
        };
        written.map_err(|source| self.unwritten(source))
    }

    /// Writes the rest, waits until the device has it, and gives the file its name.
    ///
    /// # Errors
    /// [`TraceFileError::Write`] when the rest cannot be written, [`TraceFileError::Create`] when
    /// the file cannot get its name. It is then removed.
    pub fn finish(mut self) -> Result<(), TraceFileError> {
        let output = match self.encoder.take() {
            Some(Encoder::Csv(writer)) => writer.finish(),
            Some(Encoder::Compact(writer)) => writer.finish(),
            None => return Ok(()),
        };
        let done = output.and_then(|output| {
            let file = output.finish()?;
            // A pipe or a terminal has nothing to wait for.
            if self.partial.is_some() {
                file.sync_all()?;
            }
            Ok(())
        });
        done.map_err(|source| self.unwritten(source))?;
        if let Some(partial) = &self.partial {
            fs::rename(partial, &self.path)
                .map_err(|source| TraceFileError::Create { path: self.path.clone(), source })?;
            self.partial = None;
        }
        Ok(())
    }

    #[cold]
    fn unwritten(&self, source: WriteError) -> TraceFileError {
        TraceFileError::Write { path: self.path.clone(), source }
    }
}

impl Drop for TraceWriter {
    fn drop(&mut self) {
        if let Some(partial) = &self.partial {
            // It may be gone already; a drop cannot report an error.
            let _ = fs::remove_file(partial);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compression {
    None,
    Gzip,
    Zstd,
}

/// Format and compression by name.
fn by_name(path: &Path) -> Option<(Format, Compression)> {
    let extension =
        |path: &Path| path.extension().map(|text| text.to_string_lossy().to_ascii_lowercase());
    let (compression, inner) = match extension(path)?.as_str() {
        "gz" => (Compression::Gzip, path.with_extension("")),
        "zst" => (Compression::Zstd, path.with_extension("")),
        _ => (Compression::None, path.to_owned()),
    };
    match extension(&inner)?.as_str() {
        "csv" => Some((Format::Csv, compression)),
        "lt" => Some((Format::Compact, compression)),
        _ => None,
    }
}

fn partial_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".partial");
    name.into()
}

/// A file behind a buffer, with or without a compressor.
enum Output {
    Plain(BufWriter<File>),
    Gzip(BufWriter<GzEncoder<File>>),
    Zstd(BufWriter<zstd::stream::write::Encoder<'static, File>>),
}

impl std::fmt::Debug for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Output").finish_non_exhaustive()
    }
}

impl Output {
    fn new(file: File, compression: Compression) -> io::Result<Self> {
        Ok(match compression {
            Compression::None => Self::Plain(BufWriter::with_capacity(BUFFER_BYTES, file)),
            Compression::Gzip => {
                let encoder = GzEncoder::new(file, flate2::Compression::default());
                Self::Gzip(BufWriter::with_capacity(BUFFER_BYTES, encoder))
            }
            Compression::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(file, ZSTD_LEVEL)?;
                encoder.include_checksum(true)?;
                Self::Zstd(BufWriter::with_capacity(BUFFER_BYTES, encoder))
            }
        })
    }

    /// Writes everything out and gives the file back.
    fn finish(self) -> io::Result<File> {
        match self {
            Self::Plain(buffer) => buffer.into_inner().map_err(io::IntoInnerError::into_error),
            Self::Gzip(buffer) => {
                buffer.into_inner().map_err(io::IntoInnerError::into_error)?.finish()
            }
            Self::Zstd(buffer) => {
                buffer.into_inner().map_err(io::IntoInnerError::into_error)?.finish()
            }
        }
    }
}

impl Write for Output {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(buffer) => buffer.write(bytes),
            Self::Gzip(buffer) => buffer.write(bytes),
            Self::Zstd(buffer) => buffer.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(buffer) => buffer.flush(),
            Self::Gzip(buffer) => buffer.flush(),
            Self::Zstd(buffer) => buffer.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::open;
    use super::super::record::Columns;
    use super::*;
    use crate::op::{OpKind, PageOp, Space, SpaceId};

    #[test]
    fn the_name_says_format_and_compression() {
        let named = |name: &str| by_name(Path::new(name));
        assert_eq!(named("a.csv"), Some((Format::Csv, Compression::None)));
        assert_eq!(named("dir.d/a.CSV.gz"), Some((Format::Csv, Compression::Gzip)));
        assert_eq!(named("a.b.lt"), Some((Format::Compact, Compression::None)));
        assert_eq!(named("a.lt.zst"), Some((Format::Compact, Compression::Zstd)));
        for name in ["a", "csv", "a.zst", "a.txt", "a.csv.xz", ".csv", "lt.gz"] {
            assert_eq!(named(name), None, "{name}");
        }
    }

    fn names() -> Names {
        Names::with_spaces([Space::file("data")])
    }

    fn write(path: &Path, pages: u64) -> Result<(), TraceFileError> {
        let mut writer = create(path, Columns { time_ns: true, ..Columns::default() })?;
        for page in 0..pages {
            let op = PageOp::one(OpKind::Load, SpaceId(0), page * 7919 % 100_003);
            writer.write(&TraceRecord { time_ns: Some(page * 3), ..op.into() }, &names())?;
        }
        writer.finish()
    }

    #[test]
    fn every_combination_is_read_back_by_its_content() {
        let directory = tempfile::tempdir().unwrap();
        let read = |path: &Path| -> Vec<TraceRecord> {
            open(path, None).unwrap().map(Result::unwrap).collect()
        };
        let plain = directory.path().join("a.csv");
        write(&plain, 5000).unwrap();
        let want = read(&plain);
        assert_eq!((want.len(), want[4999].time_ns), (5000, Some(14_997)));
        for name in ["a.csv.gz", "a.csv.zst", "a.lt", "a.lt.gz", "a.lt.zst"] {
            let path = directory.path().join(name);
            write(&path, 5000).unwrap();
            // Under a name that says nothing.
            let moved = directory.path().join("trace");
            fs::rename(&path, &moved).unwrap();
            assert_eq!(read(&moved), want, "{name}");
        }
    }

    #[test]
    fn what_is_not_finished_leaves_nothing_and_what_was_there_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.lt.zst");
        write(&path, 10).unwrap();
        let before = fs::read(&path).unwrap();
        let mut writer = create(&path, Columns::default()).unwrap();
        writer.write(&PageOp::one(OpKind::Load, SpaceId(0), 1).into(), &names()).unwrap();
        drop(writer);
        assert_eq!(fs::read(&path).unwrap(), before);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn places_that_cannot_be_written_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let absent = directory.path().join("absent/a.csv");
        let error = write(&absent, 1).unwrap_err();
        assert!(
            matches!(&error, TraceFileError::Create { .. })
                && error.to_string().contains("absent/a.csv")
        );
        let error = write(Path::new("trace.txt"), 1).unwrap_err().to_string();
        assert!(error.contains("trace.txt") && error.contains(".csv or .lt"), "{error}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["full.csv", "full.csv.gz", "full.lt", "full.lt.zst"] {
            let full = directory.path().join(name);
            std::os::unix::fs::symlink("/dev/full", &full).unwrap();
            let error = write(&full, 100_000).unwrap_err();
            let TraceFileError::Write { source: WriteError::Io(source), .. } = &error else {
                panic!("{error}")
            };
            assert_eq!(source.kind(), io::ErrorKind::StorageFull, "{name}: {error}");
        }
    }
}
