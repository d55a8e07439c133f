//! Threads that copy blocks out of a mapped file each, chosen as fio chooses them: `fio-mmap` on
//! real memory.
//!
//! A file is mapped once, when its thread starts, and has no holes. A block begins and ends with a
//! word that says which block of which file it is, so each copy is known for the right one.
//!
//! Whose mapping it is, the caller decides (`mapped.rs`).

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use lowtide_bench::access::{AccessError, DataAccess};
use lowtide_bench::datafile::DataDir;
use lowtide_bench::error::BenchError;
use lowtide_bench::thread_pool::{Player, ThreadPool};
use lowtide_experiments::programs::mapping::{FioBlocks, FioMmap, FioOrder};
use lowtide_report::tally::Tally;
use rustix::fs::{Advice, fadvise};
use serde::{Deserialize, Serialize};

use super::mapped::{Made, Mapped};

/// Bytes of a block.
const BLOCK: usize = FioMmap::BLOCK as usize;
/// Bytes of the word at either end.
const WORD: usize = 8;
/// Bytes that are written at a time.
const CHUNK: u64 = 1 << 20;

/// What the threads read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Blocks {
    /// The file of each thread.
    paths: Vec<PathBuf>,
    /// Bytes of each.
    bytes: u64,
    /// Whether a few blocks are wanted often.
    zipf: bool,
    /// Seed of the choices.
    seed: u64,
}

/// The word of a block.
const fn word(file: u64, block: u64) -> [u8; WORD] {
    (1 << 63 | file << 40 | block).to_le_bytes()
}

/// Makes the files of a system.
///
/// # Errors
/// Those of [`DataDir::scratch`]; [`BenchError::File`].
pub(crate) fn make(dir: &DataDir, of: &str, fio: &FioMmap) -> Result<Made, BenchError> {
    let zipf = fio.order == FioOrder::Zipf;
    Made::with_files(
        (dir, &format!("fio-mmap-{of}"), fio.jobs),
        |file, number| fill(file, number, fio.file),
        |paths| Mapped::Blocks(Blocks { paths, bytes: fio.file, zipf, seed: fio.seed }),
    )
}

/// Writes a file, and leaves none of it in the page cache.
fn fill(mut file: &File, number: u64, bytes: u64) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK as usize];
    for at in (0..bytes).step_by(CHUNK as usize) {
        let part = &mut chunk[..(bytes - at).min(CHUNK) as usize];
        for (block, bytes) in (at / FioMmap::BLOCK..).zip(part.chunks_exact_mut(BLOCK)) {
            bytes[..WORD].copy_from_slice(&word(number, block));
            bytes[BLOCK - WORD..].copy_from_slice(&word(number, block));
        }
        file.write_all(part)?;
    }
    file.sync_all()?;
    Ok(fadvise(file, 0, None, Advice::DontNeed)?)
}

impl Blocks {
    /// Bytes of each file.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Starts the threads, each with its mapping.
    ///
    /// # Errors
    /// Those of [`ThreadPool::start`]; that a file cannot be mapped.
    pub(crate) fn start<D, M>(&self, map: M) -> Result<ThreadPool, BenchError>
    where
        D: DataAccess + Send + 'static,
        M: Fn(&Path) -> Result<D, AccessError>,
    {
        let order = if self.zipf { FioOrder::Zipf } else { FioOrder::Uniform };
        let fio = FioMmap { file: self.bytes, seed: self.seed, ..FioMmap::published(order, 1.0) };
        let player = |(number, path): (u32, &PathBuf)| {
            let failed = |error: AccessError| {
                BenchError::file("map", path, io::Error::other(error.to_string()))
            };
            let access = map(path).map_err(failed)?;
            let blocks = fio.blocks(number).expect("a file has blocks");
            Ok(Box::new(Job { number: number.into(), access, blocks }) as Box<dyn Player>)
        };
        let players: Result<_, BenchError> = (0..).zip(&self.paths).map(player).collect();
        Ok(ThreadPool::start(players?)?)
    }
}

struct Job<D> {
    number: u64,
    access: D,
    blocks: FioBlocks,
}

impl<D: DataAccess + Send> Player for Job<D> {
    fn step(&mut self, _most: u64, tally: &mut Tally) -> u64 {
        let (block, mut copy) = (self.blocks.choose(), [0; BLOCK]);
        tally.asked_bytes += FioMmap::BLOCK;
        match self.access.read(block * FioMmap::BLOCK, &mut copy) {
            Ok(()) => {
                let word = word(self.number, block);
                if copy.starts_with(&word) && copy.ends_with(&word) {
                    tally.verified += 1;
                } else {
                    tally.fail(&format!("block {block} of file {} is another", self.number));
                }
            }
            Err(error) => tally.fail(&format!("block {block} of file {}: {error}", self.number)),
        }
        1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_tell_files_and_blocks_apart() {
        assert_ne!(word(0, 7), word(1, 7));
        assert_ne!(word(1, 7), word(1, 8));
        assert_ne!(word(0, 0), [0; 8]);
    }

    #[test]
    fn a_file_has_its_words_at_both_ends_of_each_block() {
        let file = tempfile::tempfile().unwrap();
        fill(&file, 3, (1 << 20) + 8192).unwrap();
        let mut bytes = vec![0; (1 << 20) + 8192];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, 0).unwrap();
        for (block, bytes) in (0..).zip(bytes.chunks(BLOCK)) {
            assert!(bytes.starts_with(&word(3, block)) && bytes.ends_with(&word(3, block)));
        }
    }
}
