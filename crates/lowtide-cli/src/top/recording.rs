//! Recordings: samples as JSON lines, compressed with Zstandard if the name ends in `.zst`.
//!
//! A recorder may be killed at any time, so each sample is flushed, and a reader ignores a last
//! line that is not whole. A reader goes to any sample: it keeps where each line begins, and the
//! lines stay in a file. A compressed one is unpacked into a temporary file first.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use zstd::stream::{read::Decoder, write::Encoder};

use super::error::TopError;
use super::model::sample::Sample;

/// Fast, and small enough: samples resemble each other.
const LEVEL: i32 = 3;
/// How a compressed file begins.
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

enum Output {
    Plain(BufWriter<File>),
    Zstd(Encoder<'static, File>),
}

/// Writes a recording.
pub(crate) struct Recorder {
    path: PathBuf,
    output: Output,
}

impl Recorder {
    /// Creates the file, or makes it empty.
    pub(crate) fn create(path: &Path) -> Result<Self, TopError> {
        let open = || {
            let file = File::create(path)?;
            Ok(match path.extension().is_some_and(|extension| extension == "zst") {
                true => Output::Zstd(Encoder::new(file, LEVEL)?),
                false => Output::Plain(BufWriter::new(file)),
            })
        };
        let path = path.to_owned();
        match open() {
            Ok(output) => Ok(Self { path, output }),
            Err(source) => Err(TopError::Record { path, source }),
        }
    }

    /// Adds a sample.
    pub(crate) fn add(&mut self, sample: &Sample) -> Result<(), TopError> {
        let write = |output: &mut dyn Write| {
            serde_json::to_writer(&mut *output, sample)?;
            output.write_all(b"\n")?;
            output.flush()
        };
        let written = match &mut self.output {
            Output::Plain(output) => write(output),
            Output::Zstd(output) => write(output),
        };
        written.map_err(|source| TopError::Record { path: self.path.clone(), source })
    }

    /// Ends the file.
    pub(crate) fn finish(self) -> Result<(), TopError> {
        let ended = match self.output {
            Output::Plain(mut output) => output.flush(),
            Output::Zstd(output) => output.finish().map(drop),
        };
        ended.map_err(|source| TopError::Record { path: self.path, source })
    }
}

/// A line of a recording.
struct Line {
    begin: u64,
    length: usize,
    at_ns: u64,
}

/// A recording to be read.
pub(crate) struct Recording {
    path: PathBuf,
    file: File,
    lines: Vec<Line>,
}

/// The part of a sample that is read when a recording is opened.
#[derive(Deserialize)]
struct Stamp {
    at_ns: u64,
}

/// The file itself, or its content unpacked.
fn unpacked(path: &Path) -> io::Result<File> {
    let mut file = File::open(path)?;
    let mut magic = [0; MAGIC.len()];
    let is_short = match file.read_exact(&mut magic) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => true,
        read => read.map(|()| false)?,
    };
    file.seek(SeekFrom::Start(0))?;
    if is_short || magic != MAGIC {
        return Ok(file);
    }
    let mut plain = tempfile::tempfile()?;
    let mut decoder = Decoder::new(file)?;
    match io::copy(&mut decoder, &mut plain) {
        // It was not ended: what is there counts.
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => {}
        copied => drop(copied?),
    }
    plain.seek(SeekFrom::Start(0))?;
    Ok(plain)
}

impl Recording {
    /// Opens a file, and looks at when its samples were taken.
    pub(crate) fn open(path: &Path) -> Result<Self, TopError> {
        let failed = |source| TopError::Open { path: path.to_owned(), source };
        let file = unpacked(path).map_err(failed)?;
        let mut lines: Vec<Line> = Vec::new();
        let (mut begin, mut text) = (0, Vec::new());
        let mut reader = BufReader::new(&file);
        loop {
            text.clear();
            let length = reader.read_until(b'\n', &mut text).map_err(failed)?;
            if length == 0 {
                break;
            }
            let is_whole = text.ends_with(b"\n");
            match serde_json::from_slice::<Stamp>(&text) {
                Ok(Stamp { at_ns }) => lines.push(Line { begin, length, at_ns }),
                Err(_) if !is_whole && !lines.is_empty() => break,
                Err(error) => {
                    let (path, why) = (path.to_owned(), error.to_string());
                    return Err(TopError::NoRecording { path, line: lines.len() + 1, why });
                }
            }
            begin += length as u64;
        }
        match lines.is_empty() {
            true => Err(TopError::Empty { path: path.to_owned() }),
            false => Ok(Self { path: path.to_owned(), file, lines }),
        }
    }

    /// How many samples it has; at least one.
    pub(crate) const fn count(&self) -> usize {
        self.lines.len()
    }

    /// When a sample was taken: nanoseconds since 1970.
    pub(crate) fn at_ns(&self, number: usize) -> u64 {
        self.lines[number].at_ns
    }

    /// The last sample that was taken by this time, or the first.
    pub(crate) fn by(&self, at_ns: u64) -> usize {
        self.lines.partition_point(|line| line.at_ns <= at_ns).saturating_sub(1)
    }

    /// Reads a sample.
    pub(crate) fn read(&self, number: usize) -> Result<Sample, TopError> {
        let line = &self.lines[number];
        let mut text = vec![0; line.length];
        let path = || self.path.clone();
        let read = self.file.read_exact_at(&mut text, line.begin);
        read.map_err(|source| TopError::Open { path: path(), source })?;
        serde_json::from_slice(&text).map_err(|error| TopError::NoRecording {
            path: path(),
            line: number + 1,
            why: error.to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::model::processes::tests::{page, sample};
    use super::super::model::sample::Seen;
    use super::*;

    fn samples() -> Vec<Sample> {
        let of = |second| {
            let mut sample = sample(second, vec![page(7, second, &[("/", second * 10)])]);
            sample.processes.push(Seen::unreadable(8, "it is of version 9".into()));
            sample
        };
        (1..=20).map(of).collect()
    }

    fn record(path: &Path) {
        let mut recorder = Recorder::create(path).unwrap();
        samples().iter().for_each(|sample| recorder.add(sample).unwrap());
        recorder.finish().unwrap();
    }

    #[test]
    fn a_recording_gives_back_its_samples_in_any_order() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["plain.jsonl", "packed.zst"] {
            let path = dir.path().join(name);
            record(&path);
            let recording = Recording::open(&path).unwrap();
            assert_eq!(recording.count(), 20);
            for number in [19, 0, 7] {
                assert_eq!(recording.read(number).unwrap(), samples()[number], "{name}");
            }
            assert_eq!(recording.by(0), 0);
            assert_eq!(recording.by(5_500_000_000), 4);
            assert_eq!(recording.by(u64::MAX), 19);
        }
        let size = |name: &str| fs::metadata(dir.path().join(name)).unwrap().len();
        assert!(size("packed.zst") * 3 < size("plain.jsonl"));
    }

    #[test]
    fn a_recording_that_was_cut_off_has_the_samples_before() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["plain.jsonl", "packed.zst"] {
            let path = dir.path().join(name);
            let mut recorder = Recorder::create(&path).unwrap();
            samples().iter().for_each(|sample| recorder.add(sample).unwrap());
            // As a kill would leave it: neither ended nor dropped.
            std::mem::forget(recorder);
            let whole = fs::read(&path).unwrap();
            fs::write(&path, &whole[..whole.len() - 5]).unwrap();
            assert!(Recording::open(&path).unwrap().count() >= 18, "{name}");
        }
    }

    #[test]
    fn other_files_are_refused_with_the_line_that_is_wrong() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("other");
        let open = |text: &str| {
            fs::write(&path, text).unwrap();
            Recording::open(&path).err().map(|error| error.to_string()).unwrap_or_default()
        };
        assert!(open("").contains("has no samples"));
        assert!(open("hello\n").contains("line 1: "));
        assert!(open("{\"at_ns\":1,\"processes\":[]}\n{}\n").contains("line 2: "));
        let missing = Recording::open(&dir.path().join("missing")).err().unwrap().to_string();
        assert!(missing.starts_with("cannot read the recording "), "{missing}");
    }
}
