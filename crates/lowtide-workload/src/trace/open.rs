//! The way to read any trace: [`open`], and [`Trace`], which is what all consumers use.

use super::compact;
use super::csv;
use super::error::{TraceError, TraceFault, TraceFileError};
use super::foreign::PAGE_BYTES;
use super::foreign::filemap::{Filemap, Skipped};
use super::foreign::lackey::Lackey;
use super::foreign::msr::Msr;
use super::foreign::object_csv::ObjectCsv;
use super::foreign::oracle::Oracle;
use super::format::Format;
use super::input::{Input, Source};
use super::recognise::SAMPLE_BYTES;
use super::record::{Names, TraceRecord};
use super::text::{Lines, Text};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A trace of any format, compressed or not: an iterator over its records.
///
/// Reads as it goes, in memory that does not grow with the trace but with what it names: spaces and
/// tenants, and for `oracle-general` and `object-csv` about 24 bytes for every distinct object.
/// Ends after the last record or after the first error.
///
/// ```
/// use lowtide_workload::trace::{self, Format};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("sort.txt");
/// std::fs::write(&path, "==1== Lackey\nI  0401ab70,3\n S 1fff000658,8\n")?;
/// let mut trace = trace::open(&path, None)?;
/// assert_eq!(trace.format(), Format::Lackey);
/// let pages: Result<Vec<u64>, _> = trace.by_ref().map(|r| r.map(|r| r.op.page)).collect();
/// assert_eq!(pages?, [0x401a, 0x1fff000]);
/// assert_eq!(trace.names().spaces()[0].to_string(), "anon:memory");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Trace {
    path: PathBuf,
    format: Format,
    decoder: Decoder,
    taken: Arc<AtomicU64>,
    file_bytes: Option<u64>,
    ended: bool,
}

/// How far a trace has been read, in bytes of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes read so far; up to a buffer's length ahead of the records.
    pub read_bytes: u64,
    /// The length of the file, where it has one.
    pub file_bytes: Option<u64>,
}

/// A reader for each format. An enumeration and not an object: the call is made for every record.
#[derive(Debug)]
enum Decoder {
    Csv(csv::Reader<Source>),
    Compact(compact::Reader),
    Oracle(Oracle),
    ObjectCsv(Text<ObjectCsv, Source>),
    Msr(Text<Msr, Source>),
    Lackey(Text<Lackey, Source>),
    Filemap(Text<Filemap, Source>),
}

/// Opens the trace at `path`, or standard input for `-`. Decompression happens as records are read.
///
/// Without `format` it is recognised by the first 64 KiB of the content; see [`Format`].
///
/// # Errors
/// [`TraceFileError::Open`] when the file cannot be read, [`TraceFileError::Content`] when it is
/// empty, its format is not recognised, or its header is wrong.
pub fn open(path: &Path, format: Option<Format>) -> Result<Trace, TraceFileError> {
    let unopened = |source| TraceFileError::Open { path: path.to_owned(), source };
    if path == Path::new("-") {
        return read_from(io::stdin(), path, format);
    }
    let file = File::open(path).map_err(unopened)?;
    let metadata = file.metadata().map_err(unopened)?;
    let file_bytes = metadata.is_file().then_some(metadata.len());
    let input = Input::new(file).map_err(unopened)?;
    Trace::of(input, path, file_bytes, format)
}

/// As [`open`], but from any source of bytes. Messages call it `name`.
///
/// # Errors
/// Those of [`open`].
pub fn read_from(
    source: impl Read + Send + 'static,
    name: &Path,
    format: Option<Format>,
) -> Result<Trace, TraceFileError> {
    let input = Input::new(source)
        .map_err(|source| TraceFileError::Open { path: name.to_owned(), source })?;
    Trace::of(input, name, None, format)
}

impl Trace {
    fn of(
        mut input: Input,
        path: &Path,
        file_bytes: Option<u64>,
        format: Option<Format>,
    ) -> Result<Self, TraceFileError> {
        let taken = input.taken();
        let content = |source| TraceFileError::Content { path: path.to_owned(), source };
        let at_start = |what| content(TraceError { line: None, byte_offset: 0, what });
        // What cannot be read at all is reported here; what can be read in part is read as far as
        // that.
        let (whole, failed) = match input.fill(SAMPLE_BYTES) {
            Ok(filled) => (!filled, None),
            Err(source) => (false, Some(source)),
        };
        let sample = input.available();
        let sample = &sample[..sample.len().min(SAMPLE_BYTES)];
        if let (true, Some(source)) = (sample.is_empty(), failed) {
            return Err(at_start(TraceFault::Io { source }));
        }
        if sample.is_empty() {
            return Err(at_start(TraceFault::Empty));
        }
        let recognised = format.or_else(|| Format::of_sample(sample, whole));
        let format = recognised.ok_or_else(|| at_start(TraceFault::UnknownFormat))?;
        let decoder = match format {
            Format::Csv => Decoder::Csv(csv::Reader::of(Lines::new(input)).map_err(content)?),
            Format::Compact => Decoder::Compact(compact::Reader::new(input).map_err(content)?),
            Format::OracleGeneral => Decoder::Oracle(Oracle::new(input)),
            Format::ObjectCsv => {
                let mut lines = Lines::new(input);
                let parser =
                    ObjectCsv::new(&mut lines).map_err(|fault| content(lines.at(fault)))?;
                Decoder::ObjectCsv(Text::new(lines, parser))
            }
            Format::Msr => Decoder::Msr(Text::new(Lines::new(input), Msr::default())),
            Format::Lackey => Decoder::Lackey(Text::new(Lines::new(input), Lackey::new())),
            Format::Filemap => {
                let parser = Filemap::new(sample);
                Decoder::Filemap(Text::new(Lines::new(input), parser))
            }
        };
        Ok(Self { path: path.to_owned(), format, decoder, taken, file_bytes, ended: false })
    }

    /// The format it is read in.
    #[must_use]
    pub const fn format(&self) -> Format {
        self.format
    }

    /// Bytes of a page: what the trace says, or what the reader made of the bytes and addresses of
    /// a foreign format ([`PAGE_BYTES`]). `None` when a trace in our own formats does not say.
    #[must_use]
    pub fn page_bytes(&self) -> Option<u64> {
        match &self.decoder {
            Decoder::Csv(reader) => reader.page_bytes(),
            Decoder::Compact(reader) => reader.page_bytes(),
            _ => Some(PAGE_BYTES),
        }
    }

    /// The spaces and tenants seen so far. Records refer to them by number.
    #[must_use]
    pub fn names(&self) -> &Names {
        match &self.decoder {
            Decoder::Csv(reader) => reader.names(),
            Decoder::Compact(reader) => reader.names(),
            Decoder::Oracle(reader) => reader.names(),
            Decoder::ObjectCsv(reader) => reader.names(),
            Decoder::Msr(reader) => reader.names(),
            Decoder::Lackey(reader) => reader.names(),
            Decoder::Filemap(reader) => reader.names(),
        }
    }

    /// For how many pages one in the trace stands, the others not being recorded, and how many
    /// neighbours are in it together: powers of two, and 1 where it does not say.
    #[must_use]
    pub fn sampled(&self) -> (u64, u64) {
        match &self.decoder {
            Decoder::Csv(reader) => reader.sampled(),
            _ => (1, 1),
        }
    }

    /// Where reading is, as an offset into the decompressed content: the last line read, or the
    /// next binary record.
    #[must_use]
    pub fn position(&self) -> u64 {
        match &self.decoder {
            Decoder::Csv(reader) => reader.byte_offset(),
            Decoder::Compact(reader) => reader.byte_offset(),
            Decoder::Oracle(reader) => reader.byte_offset(),
            Decoder::ObjectCsv(reader) => reader.byte_offset(),
            Decoder::Msr(reader) => reader.byte_offset(),
            Decoder::Lackey(reader) => reader.byte_offset(),
            Decoder::Filemap(reader) => reader.byte_offset(),
        }
    }

    /// How far the file has been read, for a progress bar.
    #[must_use]
    pub fn progress(&self) -> Progress {
        Progress { read_bytes: self.taken.load(Ordering::Relaxed), file_bytes: self.file_bytes }
    }

    /// What has been passed over; only `filemap` traces hold what is no access.
    #[must_use]
    pub fn skipped(&self) -> Skipped {
        match &self.decoder {
            Decoder::Filemap(reader) => reader.parser().skipped(),
            _ => Skipped::default(),
        }
    }

    /// What it was opened as.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    #[cold]
    fn content(&mut self, source: TraceError) -> TraceFileError {
        self.ended = true;
        TraceFileError::Content { path: self.path.clone(), source }
    }
}

impl Iterator for Trace {
    type Item = Result<TraceRecord, TraceFileError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let result = match &mut self.decoder {
            Decoder::Csv(reader) => reader.next().transpose(),
            Decoder::Compact(reader) => reader.next(),
            Decoder::Oracle(reader) => reader.next(),
            Decoder::ObjectCsv(reader) => reader.next(),
            Decoder::Msr(reader) => reader.next(),
            Decoder::Lackey(reader) => reader.next(),
            Decoder::Filemap(reader) => reader.next(),
        };
        match result {
            Ok(Some(record)) => Some(Ok(record)),
            Ok(None) => {
                self.ended = true;
                None
            }
            Err(error) => Some(Err(self.content(error))),
        }
    }
}

impl std::iter::FusedIterator for Trace {}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write;

    fn trace(records: u32) -> String {
        let lines = (0..records)
            .map(|page| format!("read,file:data,{},1\n", page.wrapping_mul(2_654_435_761)));
        std::iter::once("op,space,page,pages\n".to_owned()).chain(lines).collect()
    }

    fn gzip(text: &str) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(text: &str) -> Vec<u8> {
        zstd::encode_all(text.as_bytes(), 1).unwrap()
    }

    fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        file
    }

    fn read(bytes: &[u8]) -> Result<Vec<TraceRecord>, TraceError> {
        let file = file(bytes);
        match open(file.path(), None).and_then(Iterator::collect) {
            Ok(records) => Ok(records),
            Err(TraceFileError::Content { source, .. }) => Err(source),
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn plain_gzip_and_zstd_read_alike() {
        let text = trace(5000);
        let plain = read(text.as_bytes()).unwrap();
        assert_eq!(plain.len(), 5000);
        assert_eq!(read(&gzip(&text)).unwrap(), plain);
        assert_eq!(read(&zstd(&text)).unwrap(), plain);
    }

    #[test]
    fn joined_files_are_read_to_the_end() {
        let text = trace(100);
        let (head, tail) = text.split_at(700);
        let plain = read(text.as_bytes()).unwrap();
        assert_eq!(read(&[gzip(head), gzip(tail)].concat()).unwrap(), plain);
        assert_eq!(read(&[zstd(head), zstd(tail)].concat()).unwrap(), plain);
    }

    #[test]
    fn a_compressed_file_cut_short_is_an_error() {
        let text = trace(5000);
        for whole in [gzip(&text), zstd(&text)] {
            for cut in [10, whole.len() / 2, whole.len() - 1] {
                let error = read(&whole[..cut]).expect_err("a cut file");
                assert!(matches!(error.what, TraceFault::Io { .. }), "{error}");
            }
        }
    }

    #[test]
    fn damage_is_an_error() {
        let mut bytes = gzip(&trace(5000));
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x55;
        assert!(read(&bytes).is_err());
    }

    #[test]
    fn what_is_no_trace_is_an_error_that_names_the_formats() {
        assert!(matches!(read(b"").unwrap_err().what, TraceFault::Empty));
        assert!(matches!(read(&gzip("")).unwrap_err().what, TraceFault::Empty));
        assert!(matches!(
            read(b"op\n").unwrap_err().what,
            TraceFault::MissingColumn { column: "space" }
        ));
        for bytes in [b"hello\n".as_slice(), &[0; 100], b"\x7fELF\x02\x01\x01"] {
            let error = read(bytes).unwrap_err();
            assert!(matches!(error.what, TraceFault::UnknownFormat), "{error}");
            let text = error.to_string();
            assert!(
                text.starts_with("byte 0: ") && text.contains("--format (csv, compact,"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_forced_format_is_not_second_guessed() {
        let text = file(b"op,space,page,pages\nread,file:a,1,1\n");
        for format in Format::ALL {
            let found =
                open(text.path(), Some(format)).and_then(Iterator::collect::<Result<Vec<_>, _>>);
            match format {
                Format::Csv => assert_eq!(found.unwrap().len(), 1),
                // Text without a known event holds no access.
                Format::Filemap => assert_eq!(found.unwrap().len(), 0),
                _ => assert!(found.is_err(), "{format}"),
            }
        }
    }

    #[test]
    fn a_missing_file_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("absent.csv");
        let Err(error) = open(&path, None) else { panic!("an absent file was opened") };
        assert!(matches!(&error, TraceFileError::Open { .. }));
        assert!(error.to_string().contains("absent.csv"));
        assert!(
            matches!(open(directory.path(), None), Err(TraceFileError::Open { .. })),
            "a directory"
        );
    }

    #[test]
    fn progress_is_in_bytes_of_the_file_and_position_in_bytes_of_the_text() {
        let text = trace(50_000);
        let packed = zstd(&text);
        let file = file(&packed);
        let mut trace = open(file.path(), None).unwrap();
        let early = trace.progress();
        assert_eq!(early.file_bytes, Some(packed.len() as u64));
        assert_eq!(trace.by_ref().take(2).count(), 2);
        assert_eq!(trace.position() as usize, text.match_indices('\n').nth(1).unwrap().0 + 1);
        assert_eq!(trace.by_ref().count(), 49_998);
        assert_eq!(trace.progress().read_bytes, packed.len() as u64);
        assert!(early.read_bytes <= packed.len() as u64);
    }
}
