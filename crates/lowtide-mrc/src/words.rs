//! A sequence of 32-bit words: in memory while it is short, otherwise in a temporary file.
//!
//! Words are in chunks of [`CHUNK_WORDS`]. When the sequence would exceed its memory limit, all
//! chunks move to an unnamed temporary file, which the system removes with its last descriptor,
//! even after a crash. Any number of readers can fetch chunks at the same time, in any order: a
//! chunk in memory is borrowed, and a chunk in the file is read with one positioned read into the
//! reader's own buffer.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Words per chunk: 256 KiB, large enough for sequential reads at device speed, small enough for
/// the cache of a core.
pub(super) const CHUNK_WORDS: usize = 64 * 1024;
const WORD_BYTES: usize = size_of::<u32>();
const CHUNK_BYTES: usize = CHUNK_WORDS * WORD_BYTES;

/// The temporary file behind a long tape failed.
#[derive(Debug, Error)]
#[error(
    "cannot {what} a temporary file of {bytes} bytes in {}: {source}; make room there, choose \
     another directory, \
     or allow more memory",
    dir.display()
)]
pub struct SpillError {
    /// The failed action: `create`, `write` or `read`.
    pub what: &'static str,
    /// The directory of the file.
    pub dir: PathBuf,
    /// The length of the file, or its intended length.
    pub bytes: u64,
    /// The system's error.
    pub source: io::Error,
}

/// The storage of a tape.
#[derive(Clone, Debug)]
pub struct Storage {
    /// Largest number of bytes in memory, for a tape and again for its next-use positions. Longer
    /// ones go to a file.
    pub memory_bytes: u64,
    /// The directory for that file. It should be on a disk: a directory on `tmpfs` would use
    /// memory.
    pub dir: PathBuf,
}

impl Default for Storage {
    /// 256 MiB, and the system's directory for temporary files.
    fn default() -> Self {
        Self { memory_bytes: 256 << 20, dir: std::env::temp_dir() }
    }
}

#[derive(Debug)]
enum Place {
    /// The chunks; all but the last are full.
    Memory(Vec<Vec<u32>>),
    File(File),
}

/// The row.
#[derive(Debug)]
pub(super) struct Words {
    place: Place,
    len: u64,
    storage: Storage,
}

impl Words {
    /// `len` words, to be written with [`write_chunk`](Self::write_chunk) in any order before they
    /// are read.
    pub(super) fn with_len(len: u64, storage: &Storage) -> Result<Self, SpillError> {
        let mut words = Self { place: Place::Memory(Vec::new()), len, storage: storage.clone() };
        if len * WORD_BYTES as u64 > storage.memory_bytes {
            words.place = Place::File(words.create()?);
        } else {
            words.place = Place::Memory(vec![Vec::new(); words.chunks() as usize]);
        }
        Ok(words)
    }

    pub(super) const fn len(&self) -> u64 {
        self.len
    }

    /// Number of chunks; the last may be short.
    pub(super) const fn chunks(&self) -> u64 {
        self.len.div_ceil(CHUNK_WORDS as u64)
    }

    /// Whether the words are in a file.
    pub(super) const fn spilled(&self) -> bool {
        matches!(self.place, Place::File(_))
    }

    /// The directory and the limit that apply.
    pub(super) const fn storage(&self) -> &Storage {
        &self.storage
    }

    /// Words in chunk `index`.
    const fn chunk_len(&self, index: u64) -> usize {
        let before = index * CHUNK_WORDS as u64;
        let rest = self.len.saturating_sub(before);
        if rest < CHUNK_WORDS as u64 { rest as usize } else { CHUNK_WORDS }
    }

    /// Replaces chunk `index`, which must get all its words.
    pub(super) fn write_chunk(&mut self, index: u64, chunk: Vec<u32>) -> Result<(), SpillError> {
        debug_assert_eq!(chunk.len(), self.chunk_len(index));
        match &mut self.place {
            Place::Memory(chunks) => chunks[index as usize] = chunk,
            Place::File(file) => write_at(file, index, &chunk)
                .map_err(|source| error("write", &self.storage.dir, self.len, source))?,
        }
        Ok(())
    }

    /// Adds a chunk at the end. All chunks before it must be full.
    fn append(&mut self, chunk: Vec<u32>) -> Result<(), SpillError> {
        let index = self.len / CHUNK_WORDS as u64;
        self.len += chunk.len() as u64;
        if let Place::Memory(chunks) = &mut self.place {
            if self.len * WORD_BYTES as u64 <= self.storage.memory_bytes {
                chunks.push(chunk);
                return Ok(());
            }
            let chunks = std::mem::take(chunks);
            self.place = Place::File(self.create()?);
            // One by one, so that memory is freed while the file grows.
            for (index, chunk) in (0..).zip(chunks) {
                self.write_chunk(index, chunk)?;
            }
        }
        self.write_chunk(index, chunk)
    }

    /// Chunk `index`, in memory or read into `room`.
    pub(super) fn chunk<'a>(
        &'a self,
        index: u64,
        room: &'a mut Chunk,
    ) -> Result<&'a [u32], SpillError> {
        match &self.place {
            Place::Memory(chunks) => Ok(&chunks[index as usize]),
            Place::File(file) => {
                let words = self.chunk_len(index);
                room.bytes.resize(words * WORD_BYTES, 0);
                file.read_exact_at(&mut room.bytes, index * CHUNK_BYTES as u64)
                    .map_err(|source| error("read", &self.storage.dir, self.len, source))?;
                room.words.clear();
                let (words, _) = room.bytes.as_chunks::<WORD_BYTES>();
                room.words.extend(words.iter().map(|word| u32::from_le_bytes(*word)));
                Ok(&room.words)
            }
        }
    }

    fn create(&self) -> Result<File, SpillError> {
        let dir = &self.storage.dir;
        tempfile::tempfile_in(dir).map_err(|source| error("create", dir, self.len, source))
    }
}

fn write_at(file: &File, index: u64, chunk: &[u32]) -> io::Result<()> {
    let bytes: Vec<u8> = chunk.iter().flat_map(|word| word.to_le_bytes()).collect();
    file.write_all_at(&bytes, index * CHUNK_BYTES as u64)
}

fn error(what: &'static str, dir: &Path, words: u64, source: io::Error) -> SpillError {
    SpillError { what, dir: dir.to_owned(), bytes: words * WORD_BYTES as u64, source }
}

/// A reader's buffer for one chunk of a tape in a file. Empty at first; at most 512 KiB.
#[derive(Default, Debug)]
pub struct Chunk {
    bytes: Vec<u8>,
    words: Vec<u32>,
}

/// Writes a row from its beginning to its end.
#[derive(Debug)]
pub(super) struct WordsWriter {
    words: Words,
    chunk: Vec<u32>,
}

impl WordsWriter {
    pub(super) fn new(storage: &Storage) -> Self {
        let words = Words { place: Place::Memory(Vec::new()), len: 0, storage: storage.clone() };
        Self { words, chunk: Vec::new() }
    }

    #[inline]
    pub(super) fn push(&mut self, word: u32) -> Result<(), SpillError> {
        self.chunk.push(word);
        if self.chunk.len() == CHUNK_WORDS { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), SpillError> {
        let chunk = std::mem::replace(&mut self.chunk, Vec::with_capacity(CHUNK_WORDS));
        self.words.append(chunk)
    }

    pub(super) fn finish(mut self) -> Result<Words, SpillError> {
        if !self.chunk.is_empty() {
            self.chunk.shrink_to_fit();
            self.flush()?;
        }
        Ok(self.words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: u32 = 3 * CHUNK_WORDS as u32 + 17;

    fn written(memory_bytes: u64) -> Words {
        let mut writer = WordsWriter::new(&Storage { memory_bytes, ..Storage::default() });
        (0..LEN).for_each(|word| writer.push(word.wrapping_mul(0x9E37_79B9)).unwrap());
        writer.finish().unwrap()
    }

    fn all(words: &Words) -> Vec<u32> {
        let mut room = Chunk::default();
        (0..words.chunks())
            .flat_map(|index| words.chunk(index, &mut room).unwrap().to_vec())
            .collect()
    }

    #[test]
    fn a_row_reads_the_same_from_memory_and_from_a_file() {
        let (memory, file) = (written(1 << 30), written(2 * CHUNK_BYTES as u64));
        assert_eq!((memory.spilled(), file.spilled()), (false, true));
        assert_eq!((memory.len(), file.len()), (u64::from(LEN), u64::from(LEN)));
        let expected: Vec<u32> = (0..LEN).map(|word| word.wrapping_mul(0x9E37_79B9)).collect();
        assert!(all(&memory) == expected && all(&file) == expected);
    }

    #[test]
    fn chunks_may_be_written_backwards() {
        for memory_bytes in [0, 1 << 30] {
            let mut words =
                Words::with_len(u64::from(LEN), &Storage { memory_bytes, ..Storage::default() })
                    .unwrap();
            for index in (0..words.chunks()).rev() {
                let start = index as u32 * CHUNK_WORDS as u32;
                let end = LEN.min(start + CHUNK_WORDS as u32);
                words.write_chunk(index, (start..end).collect()).unwrap();
            }
            assert!(all(&words) == (0..LEN).collect::<Vec<_>>());
        }
    }

    #[test]
    fn readers_share_a_file() {
        let words = written(0);
        let expected = all(&words);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| assert!(all(&words) == expected));
            }
        });
    }

    #[test]
    fn a_directory_that_is_not_there_is_named() {
        let dir = tempfile::tempdir().unwrap().path().join("gone");
        let mut writer = WordsWriter::new(&Storage { memory_bytes: 0, dir: dir.clone() });
        writer.push(1).unwrap();
        let error = writer.finish().unwrap_err();
        assert_eq!((error.what, error.bytes), ("create", 4));
        assert!(error.to_string().contains(&dir.display().to_string()), "{error}");
    }

    #[test]
    fn a_full_device_is_reported_with_the_reason() {
        // The device that is always full; absent in some sandboxes.
        let Ok(full) = File::options().write(true).read(true).open("/dev/full") else { return };
        let storage = Storage { memory_bytes: 0, ..Storage::default() };
        let mut words = Words { place: Place::File(full), len: 0, storage };
        let error = words.append(vec![0; 10]).unwrap_err();
        assert_eq!((error.what, error.source.kind()), ("write", io::ErrorKind::StorageFull));
    }
}
