//! Opens trace files, compressed or not.
//!
//! How a file is compressed is told by its first bytes, not by its name: gzip starts with `1f 8b` (RFC
//! 1952), Zstandard with `28 b5 2f fd` (RFC 8878), and a plain trace with a letter of its header. Files
//! made by joining several compressed files are read to the end of the last.

use super::error::TraceFileError;
use super::reader::Reader;
use flate2::bufread::MultiGzDecoder;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;

/// A reader of a trace file, whatever its compression.
pub type FileReader = Reader<Box<dyn BufRead + Send>>;

const GZIP_MAGIC: [u8; 2] = [0x1F, 0x8B];
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

/// Opens the trace at `path` and reads its header. Decompression happens as records are read.
///
/// # Errors
/// [`TraceFileError::Open`] when the file cannot be read, [`TraceFileError::Content`] when it does not start
/// with a header.
pub fn open(path: &Path) -> Result<FileReader, TraceFileError> {
    let file = File::open(path).and_then(|file| decompressed(BufReader::new(file)));
    let input = file.map_err(|source| TraceFileError::Open { path: path.to_owned(), source })?;
    Reader::new(input).map_err(|source| TraceFileError::Content { path: path.to_owned(), source })
}

/// The text of `input`, which may be plain, gzip or Zstandard. Reads up to four bytes to tell.
///
/// # Errors
/// Those of reading `input`, and of setting up the decompressor.
pub fn decompressed<R: BufRead + Send + 'static>(mut input: R) -> io::Result<Box<dyn BufRead + Send>> {
    // A pipe may deliver the magic in pieces, so it is collected and put back in front.
    let mut magic = Vec::with_capacity(ZSTD_MAGIC.len());
    input.by_ref().take(ZSTD_MAGIC.len() as u64).read_to_end(&mut magic)?;
    let gzip = magic.starts_with(&GZIP_MAGIC);
    let zstd = magic.starts_with(&ZSTD_MAGIC);
    let whole = Cursor::new(magic).chain(input);
    if gzip {
        Ok(Box::new(BufReader::new(MultiGzDecoder::new(whole))))
    } else if zstd {
        Ok(Box::new(BufReader::new(zstd::stream::read::Decoder::with_buffer(whole)?)))
    } else {
        Ok(Box::new(whole))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{TraceError, TraceFault, TraceRecord};
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write;

    fn trace(records: u32) -> String {
        let lines =
            (0..records).map(|page| format!("read,file:data,{},1\n", page.wrapping_mul(2_654_435_761)));
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

    fn read(bytes: &[u8]) -> Result<Vec<TraceRecord>, TraceError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        match open(file.path()) {
            Ok(reader) => reader.collect(),
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
    fn empty_and_tiny_files_are_traces_without_header() {
        assert!(matches!(read(b"").unwrap_err().what, TraceFault::NoHeader));
        assert!(matches!(read(b"op\n").unwrap_err().what, TraceFault::MissingColumn { column: "space" }));
    }

    #[test]
    fn a_missing_file_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("absent.csv");
        let Err(error) = open(&path) else { panic!("an absent file was opened") };
        assert!(matches!(&error, TraceFileError::Open { .. }));
        assert!(error.to_string().contains("absent.csv"));
        assert!(matches!(open(directory.path()), Err(TraceFileError::Open { .. })), "a directory");
    }
}
