//! Threads that map, read and unmap a sparse file each, forever: `mmap-thrash` on real memory.
//!
//! An operation is a round: map the file, look at the first word of each page, unmap it. Files are
//! holes, but for one page in 64, which begins with a mark that says which page of which file it
//! is; so zeroes and marks show that each page is the right one.
//!
//! Whose mapping it is, the caller decides (`mapped.rs`).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use lowtide_bench::access::{AccessError, DataAccess};
use lowtide_bench::datafile::DataDir;
use lowtide_bench::error::BenchError;
use lowtide_bench::thread_pool::{Player, ThreadPool};
use lowtide_experiments::programs::mapping::MapThrash;
use lowtide_report::tally::Tally;
use serde::{Deserialize, Serialize};

use super::mapped::{Made, Mapped, PAGE};

/// One page in this number has a mark.
const MARKED: u64 = 64;

/// What the threads map.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Storm {
    /// The file of each thread.
    paths: Vec<PathBuf>,
    /// Bytes of each.
    bytes: u64,
}

/// The first word of a page.
const fn word(file: u64, page: u64) -> u64 {
    if page % MARKED == file % MARKED { 1 << 63 | file << 32 | page } else { 0 }
}

/// Makes the files of a system.
///
/// # Errors
/// Those of [`DataDir::scratch`]; [`BenchError::File`].
pub(crate) fn make(dir: &DataDir, of: &str, thrash: &MapThrash) -> Result<Made, BenchError> {
    Made::with_files(
        (dir, &format!("mmap-thrash-{of}"), thrash.threads),
        |file, number| mark(file, number, thrash.file),
        |paths| Mapped::Storm(Storm { paths, bytes: thrash.file }),
    )
}

fn mark(file: &File, number: u64, bytes: u64) -> io::Result<()> {
    file.set_len(bytes)?;
    for page in (number % MARKED..bytes / PAGE).step_by(MARKED as usize) {
        file.write_all_at(&word(number, page).to_le_bytes(), page * PAGE)?;
    }
    file.sync_all()
}

impl Storm {
    /// Bytes of each file.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Starts the threads. `map` maps a file, which is unmapped when its access is dropped.
    ///
    /// # Errors
    /// Those of [`ThreadPool::start`].
    pub(crate) fn start<D, M>(&self, map: M) -> Result<ThreadPool, BenchError>
    where
        D: DataAccess,
        M: Fn(&Path) -> Result<D, AccessError> + Clone + Send + 'static,
    {
        let player = |(number, path): (u64, &PathBuf)| {
            let (path, pages, map) = (path.clone(), self.bytes / PAGE, map.clone());
            Box::new(Reader { number, path, pages, map }) as Box<dyn Player>
        };
        Ok(ThreadPool::start((0..).zip(&self.paths).map(player).collect())?)
    }
}

struct Reader<M> {
    number: u64,
    path: PathBuf,
    pages: u64,
    map: M,
}

impl<D: DataAccess, M: Fn(&Path) -> Result<D, AccessError> + Send> Player for Reader<M> {
    fn step(&mut self, _most: u64, tally: &mut Tally) -> u64 {
        let round = (self.map)(&self.path).and_then(|mut access| {
            let mut wrong = None;
            for page in 0..self.pages {
                access.load(page * PAGE, 8, |bytes| {
                    if bytes != word(self.number, page).to_le_bytes() {
                        wrong.get_or_insert(page);
                    }
                })?;
            }
            Ok(wrong)
        });
        tally.asked_bytes += self.pages * PAGE;
        match round {
            Ok(None) => tally.verified += self.pages,
            Ok(Some(page)) => {
                tally.fail(&format!("page {page} of {} is another", self.path.display()));
            }
            Err(error) => {
                tally.fail(&format!("{}: {error}", self.path.display()));
                // Failing is faster than working, and no round.
                return 0;
            }
        }
        1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_tell_files_and_pages_apart_and_most_pages_are_holes() {
        let marked = |file| (0..4096).filter(|&page| word(file, page) != 0).count();
        assert_eq!((marked(0), marked(70)), (64, 64));
        assert_ne!(word(6, 70), word(70, 70));
        assert_ne!(word(6, 70), word(6, 134));
        assert_eq!(word(6, 71), 0);
    }
}
