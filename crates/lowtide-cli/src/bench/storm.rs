//! Threads that map, read and unmap a sparse file each, for ever: `mmap-thrash` on real memory.
//!
//! An operation is a round: map the file, look at the first word of each page, unmap it. Files are
//! holes, but for one page in 64, which begins with a mark that says which page of which file it
//! is; so zeroes and marks show that each page is the right one.
//!
//! Whose mapping it is, the caller decides: lowtide's in this process, or the kernel's in a child
//! that is in a memory cgroup. Each system has files of its own, so none finds in the page cache
//! what another has read.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lowtide::map::Way;
use lowtide::{Pager, Policy, Size, Tenant};
use lowtide_workload::mapping::MapThrash;
use serde::{Deserialize, Serialize};

use super::access::{AccessError, DataAccess};
use super::datafile::{DataDir, Scratch};
use super::error::BenchError;
use super::map::{self, MapAccess};
use super::peer::storm::StormPeer;
use super::system::{System, counted};
use super::tally::{Slice, Tally};
use super::thread_pool::{Player, ThreadPool, Until};

/// Bytes of a page.
pub(crate) const PAGE: u64 = 4096;
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

/// The files, which are removed on drop.
#[derive(Debug)]
pub(crate) struct StormFiles {
    /// What is played on them.
    pub(crate) storm: Storm,
    files: Vec<Scratch>,
}

/// The first word of a page.
const fn word(file: u64, page: u64) -> u64 {
    if page % MARKED == file % MARKED { 1 << 63 | file << 32 | page } else { 0 }
}

impl StormFiles {
    /// Makes the files of a system.
    ///
    /// # Errors
    /// Those of [`DataDir::scratch`]; [`BenchError::File`].
    pub(crate) fn make(dir: &DataDir, of: &str, thrash: &MapThrash) -> Result<Self, BenchError> {
        let storm = Storm { paths: Vec::new(), bytes: thrash.file };
        let mut made = Self { storm, files: Vec::new() };
        for number in 0..u64::from(thrash.threads) {
            let scratch = dir.scratch(&format!("mmap-thrash-{of}-{number}"))?;
            mark(scratch.file(), number, thrash.file)
                .map_err(|source| BenchError::file("write", scratch.path(), source))?;
            made.storm.paths.push(scratch.path().to_owned());
            made.files.push(scratch);
        }
        Ok(made)
    }

    /// One of them.
    pub(crate) fn example(&self) -> &Scratch {
        &self.files[0]
    }
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

/// One thread.
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
            Err(error) => tally.fail(&format!("{}: {error}", self.path.display())),
        }
        1
    }
}

/// lowtide in this process: a tenant with the limits of the group.
pub(crate) struct LowtideStorm {
    way: Way,
    policy: Policy,
    pager: Pager,
    /// Ends before the files go.
    pool: ThreadPool,
    _files: StormFiles,
}

impl LowtideStorm {
    /// The name of its rows.
    pub(crate) const fn name_of(way: Way) -> &'static str {
        map::name(way)
    }

    /// Starts the threads.
    ///
    /// # Errors
    /// Those of [`Storm::start`]; [`BenchError::Tenant`].
    pub(crate) fn start(
        (pager, policy): (Pager, Policy),
        way: Way,
        files: StormFiles,
        thrash: &MapThrash,
    ) -> Result<Self, BenchError> {
        let [high, max] = [thrash.high, thrash.max].map(Size::new);
        let tenant: Arc<Tenant> = Arc::new(pager.tenant("storm").high(high).max(max).create()?);
        let open = move |path: &Path| -> Result<MapAccess, AccessError> {
            let file = File::open(path)?;
            let map = map::of_tenant(&tenant, way, &file).map_err(io::Error::from)?;
            Ok(MapAccess::new(map))
        };
        Ok(Self { way, policy, pager, pool: files.storm.start(open)?, _files: files })
    }
}

impl System for LowtideStorm {
    fn name(&self) -> &'static str {
        Self::name_of(self.way)
    }

    fn policy(&self) -> Option<String> {
        Some(self.policy.to_string())
    }

    fn run(&mut self, until: Until) -> Result<Slice, BenchError> {
        counted(&mut self.pool, &self.pager, until)
    }
}

/// The kernel's mapping, in a child.
pub(crate) struct KernelStorm {
    /// The name of its row.
    pub(crate) name: &'static str,
    /// The child.
    pub(crate) peer: StormPeer,
    /// What it plays on.
    pub(crate) files: StormFiles,
}

impl System for KernelStorm {
    fn name(&self) -> &'static str {
        self.name
    }

    fn run(&mut self, until: Until) -> Result<Slice, BenchError> {
        self.peer.play(&self.files.storm, until)
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
