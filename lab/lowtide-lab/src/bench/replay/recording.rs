//! A recorded trace, replayed in order by one thread.
//!
//! The spaces of a trace, including heaps, lie one after the other in one data file: a heap is
//! paged to its file as to swap. `load` and `store` use the mapping (lowtide: a guard, and a
//! write), `read` and `write` the descriptor, and `sync` makes everything durable; `free` has no
//! meaning for a file and is counted as ignored. Each write of a page has a new seed. As there is
//! one thread, the player knows the seed of every page, and detects stale pages as well as torn
//! ones.

use std::path::Path;
use std::sync::Arc;

use lowtide_report::tally::Tally;
use lowtide_workload::block::{fill_page, verify_page};
use lowtide_workload::trace::{Format, open};
use lowtide_workload::{OpKind, PageOp};

use lowtide_bench::access::{AccessError, DataAccess};
use lowtide_bench::content::BLOCK_SEED;
use lowtide_bench::error::BenchError;
use lowtide_bench::thread_pool::Player;

/// The longest trace, in operations: a trace is in memory, 24 bytes per operation.
const OPS_MAX: usize = 1 << 26;
/// The largest number of pages of all spaces of a trace: the player keeps 4 bytes for each.
const PAGES_MAX: u64 = 1 << 32;

/// A trace in memory.
#[derive(Debug)]
pub(crate) struct Recording {
    ops: Vec<PageOp>,
    /// The page at which each space begins in the data file.
    base: Vec<u64>,
    /// Pages of all spaces together.
    pages: u64,
    /// Operations that write.
    writes: u64,
    /// Bytes of a page, if the trace says.
    page_bytes: Option<u64>,
}

impl Recording {
    /// Reads a trace in the given format, or in the format detected from its content.
    ///
    /// # Errors
    /// [`BenchError::Trace`] with position and reason, [`BenchError::Usage`] for a trace that is
    /// empty or too long.
    pub(crate) fn read(path: &Path, format: Option<Format>) -> Result<Self, BenchError> {
        if path == Path::new("-") {
            return Err(BenchError::usage(
                "replay reads its trace more than once, and standard input can be read only once",
                "name a file with --trace FILE",
            ));
        }
        let too_large = |what: String| {
            BenchError::usage(
                format!("the trace {} {what}", path.display()),
                "split it into smaller traces",
            )
        };
        let mut ops = Vec::new();
        let mut ends: Vec<u64> = Vec::new();
        let trace = open(path, format)?;
        let page_bytes = trace.page_bytes();
        for record in trace {
            let op = record?.op;
            let space = op.space.0 as usize;
            if ends.len() <= space {
                ends.resize(space + 1, 0);
            }
            ends[space] = ends[space].max(op.last_page().saturating_add(1));
            ops.push(op);
            if ops.len() > OPS_MAX {
                return Err(too_large(format!("has more than {OPS_MAX} operations")));
            }
        }
        if ops.is_empty() {
            return Err(BenchError::usage(
                format!("the trace {} holds no operations", path.display()),
                "record a new trace",
            ));
        }
        let mut pages = 0_u64;
        let base = ends
            .iter()
            .map(|end| {
                let base = pages;
                pages = pages.saturating_add(*end);
                base
            })
            .collect();
        if pages > PAGES_MAX {
            return Err(too_large(format!("touches {pages} pages, more than {PAGES_MAX}")));
        }
        let writes = ops.iter().filter(|op| op.kind.writes()).count() as u64;
        Ok(Self { ops, base, pages, writes, page_bytes })
    }

    /// Number of operations.
    pub(crate) const fn len(&self) -> u64 {
        self.ops.len() as u64
    }

    /// Bytes of a page, if the trace says.
    pub(crate) const fn page_bytes(&self) -> Option<u64> {
        self.page_bytes
    }

    /// Number of pages that the data file needs.
    pub(crate) const fn pages(&self) -> u64 {
        self.pages
    }

    /// Whether it writes.
    pub(crate) const fn writes(&self) -> bool {
        self.writes > 0
    }
}

/// The player of a trace.
pub(crate) struct ReplayPlayer<D> {
    access: D,
    trace: Arc<Recording>,
    next: usize,
    page_bytes: usize,
    /// The seed of the last write of each page.
    seeds: Vec<u32>,
    /// The seed of the next write.
    seed: u32,
    bytes: Vec<u8>,
    offsets: Vec<u64>,
}

impl<D: DataAccess> ReplayPlayer<D> {
    /// A player from the first operation on, over a fresh file of blocks.
    pub(crate) fn new(access: D, trace: Arc<Recording>, page_bytes: usize) -> Self {
        let seeds = vec![BLOCK_SEED as u32; usize::try_from(trace.pages).unwrap_or(usize::MAX)];
        Self {
            access,
            trace,
            next: 0,
            page_bytes,
            seeds,
            seed: BLOCK_SEED as u32,
            bytes: Vec::new(),
            offsets: Vec::new(),
        }
    }

    fn carry_out(&mut self, op: PageOp, tally: &mut Tally) -> Result<(), AccessError> {
        let first = self.trace.base[op.space.0 as usize] + op.page;
        let pages = first..first + u64::from(op.pages);
        let offset = first * self.page_bytes as u64;
        let len = self.page_bytes * op.pages as usize;
        match op.kind {
            OpKind::Load => {
                tally.asked_bytes += len as u64;
                self.offsets.clear();
                self.offsets.extend(pages.map(|page| page * self.page_bytes as u64));
                let (seeds, page_bytes) = (&self.seeds, self.page_bytes as u64);
                let mut look = |offset: u64, bytes: &[u8]| {
                    let page = offset / page_bytes;
                    tally.check(verify_page(page, u64::from(seeds[page as usize]), bytes));
                };
                match self.offsets.as_slice() {
                    &[offset] => {
                        self.access.load(offset, self.page_bytes, |bytes| look(offset, bytes))
                    }
                    offsets => self.access.load_many(offsets, self.page_bytes, |index, bytes| {
                        look(offsets[index], bytes);
                    }),
                }
            }
            OpKind::Read => {
                tally.asked_bytes += len as u64;
                self.bytes.resize(len, 0);
                self.access.read(offset, &mut self.bytes)?;
                for (page, bytes) in pages.zip(self.bytes.chunks(self.page_bytes)) {
                    tally.check(verify_page(page, u64::from(self.seeds[page as usize]), bytes));
                }
                Ok(())
            }
            OpKind::Store | OpKind::Write => {
                self.seed = self.seed.wrapping_add(1);
                self.bytes.resize(len, 0);
                for (page, bytes) in pages.zip(self.bytes.chunks_mut(self.page_bytes)) {
                    if let Err(error) = fill_page(page, u64::from(self.seed), bytes) {
                        tally.fail(&error);
                    }
                    self.seeds[page as usize] = self.seed;
                }
                if op.kind == OpKind::Store {
                    self.access.store(offset, &self.bytes)
                } else {
                    self.access.write(offset, &self.bytes)
                }
            }
            OpKind::Sync => self.access.flush(),
            OpKind::Free => {
                tally.ignored += 1;
                Ok(())
            }
        }
    }
}

impl<D: DataAccess> Player for ReplayPlayer<D> {
    fn step(&mut self, _most: u64, tally: &mut Tally) -> u64 {
        let Some(&op) = self.trace.ops.get(self.next) else { return 0 };
        self.next += 1;
        if let Err(error) = self.carry_out(op, tally) {
            tally.fail(&format_args!(
                "operation {} ({} of page {}): {error}",
                self.next, op.kind, op.page
            ));
        }
        1
    }
}
