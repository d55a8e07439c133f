//! A region beside the file of a cycle: memory larger than its tenant's, which is stored to,
//! discarded, freed lazily, grown and dropped, while the disk does to its swap what it does to the
//! file.
//!
//! A region promises nothing about a crash. It promises that a byte reads as it was stored, or not
//! at all: with an error where a page cannot be brought back. So this thread knows what each *cell*
//! of 64 bytes must be, and compares all that it reads.
//!
//! Some steps have a second thread, which shares no byte with the first: one grows the region and
//! stores past its old end, the other discards up to that end; one stores, the other removes the
//! tenant; one drops the region, the other reclaims. The cells are smaller than pages, so the two
//! share pages, and the state of pages is what must not be confused.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;

use lowtide::{Error, Pager, Region, RegionOptions, Size, SwapOptions, Tenant};
use lowtide_workload::SplitMix64;
use lowtide_workload::prng::mix64;

/// Bytes of a cell.
const CELL: u64 = 64;
/// Frames of the tenant that pays.
const FRAMES: u64 = 64;
/// Pages of a region at its largest, where there is swap.
const PAGES_MAX: u64 = 3 * FRAMES;
/// The same without swap: a region stays in memory.
const PAGES_MAX_UNSWAPPED: u64 = FRAMES / 3;
/// Cells of a step, at most.
const STEP_MAX: u64 = 900;
/// Bytes of the pages that can be swapped.
const SWAPPED_PAGE: usize = 4096;

/// Where pages of a region go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwapKind {
    /// Nowhere: they stay in memory.
    Nowhere,
    /// They are compressed.
    Compressed,
    /// The same, and to a file.
    File,
    /// To a file that is full after some pages.
    SmallFile,
}

impl SwapKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Nowhere, Self::Compressed, Self::File, Self::SmallFile];

    /// Draws one that pages of this size can have.
    pub fn draw(rng: &mut SplitMix64, page: usize) -> Self {
        match page {
            SWAPPED_PAGE => Self::ALL[rng.below(Self::ALL.len() as u64) as usize],
            _ => Self::Nowhere,
        }
    }

    /// The row of the coverage table, which is also its name on a command line.
    #[must_use]
    pub const fn row(self) -> &'static str {
        match self {
            Self::Nowhere => "a region that stays in memory",
            Self::Compressed => "a region that is compressed",
            Self::File => "a region with a swap file",
            Self::SmallFile => "a region with a full swap file",
        }
    }

    /// What a pager is built with.
    #[must_use]
    pub fn swap(self, dir: &Path, page: usize) -> Option<SwapOptions> {
        let pages = |n: u64| Size::new(n * page as u64);
        let compressed = SwapOptions::compressed(pages(FRAMES / 2));
        match self {
            Self::Nowhere => None,
            Self::Compressed => Some(compressed),
            Self::File => Some(compressed.file(dir, pages(4 * PAGES_MAX))),
            Self::SmallFile => Some(compressed.file(dir, pages(16))),
        }
    }

    /// Bytes that a pager needs beside those of the file.
    #[must_use]
    pub const fn bytes(page: usize) -> u64 {
        FRAMES * page as u64
    }
}

/// What a cell must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cell {
    /// This version; zeroes are version 0.
    Is(u32),
    /// This version, or zeroes: it was freed lazily.
    Freed(u32),
    /// Anything: an operation on it has failed.
    Unknown,
}

/// See the module documentation.
#[derive(Debug)]
pub struct Heap {
    pager: Pager,
    tenant: Tenant,
    region: Region,
    cells: Vec<Cell>,
    cells_max: u64,
    page: u64,
    version: u32,
    tenants: u32,
    rng: SplitMix64,
    /// The disk says that it has written what it has not.
    lies: bool,
    counts: BTreeMap<&'static str, u64>,
}

impl Heap {
    /// The rows of the coverage table that steps fill.
    pub const ROWS: [&'static str; 4] = [
        "discards beside growth",
        "lazy frees beside growth",
        "regions dropped beside reclaim",
        "tenants removed beside stores",
    ];

    /// A region, and its tenant.
    ///
    /// # Errors
    /// In words: that they cannot be made.
    pub fn new(pager: &Pager, swap: SwapKind, lies: bool, rng: SplitMix64) -> Result<Self, String> {
        let page = pager.page_size() as u64;
        let tenant = tenant_of(pager, 0, page)?;
        let region = region(&tenant).map_err(|error| error.to_string())?;
        let pages = if swap == SwapKind::Nowhere { PAGES_MAX_UNSWAPPED } else { PAGES_MAX };
        Ok(Self {
            pager: pager.clone(),
            tenant,
            region,
            cells: Vec::new(),
            cells_max: pages * page / CELL,
            page,
            version: 0,
            tenants: 0,
            rng,
            lies,
            counts: BTreeMap::new(),
        })
    }

    /// How often each row was filled.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.counts.iter().map(|(row, count)| (*row, *count))
    }

    /// Does something.
    ///
    /// # Errors
    /// In words: bytes that cannot be, or an error that no disk explains.
    pub fn step(&mut self) -> Result<(), String> {
        if self.cells.len() as u64 >= self.cells_max {
            return self.renew();
        }
        match self.rng.below(32) {
            0..10 => self.store(),
            10..20 => self.read(),
            20..22 => self.discard(false),
            22..24 => self.discard(true),
            24..29 => self.race(),
            29 => self.remove(),
            30 => self.renew(),
            _ => {
                let most = if self.rng.below(2) == 0 { FRAMES } else { FRAMES / 2 };
                // Where it cannot be reached now, it falls to it later.
                let _ = self.tenant.set_max(Size::new(most * self.page));
                let _ = self.tenant.reclaim(Size::new(self.rng.below(FRAMES) * self.page));
                Ok(())
            }
        }
    }

    /// Some cells, if there are any.
    fn some(&mut self) -> Range<u64> {
        let all = self.cells.len() as u64;
        if all == 0 {
            return 0..0;
        }
        let first = self.rng.below(all);
        first..(first + 1 + self.rng.below(STEP_MAX)).min(all)
    }

    fn next_version(&mut self) -> u32 {
        self.version += 1;
        self.version
    }

    fn set(&mut self, cells: Range<u64>, to: Cell) {
        self.cells[cells.start as usize..cells.end as usize].fill(to);
    }

    fn store(&mut self) -> Result<(), String> {
        let cells = self.some();
        let version = self.next_version();
        let stored = self.region.write_at(cells.start * CELL, &contents(&cells, version));
        self.set(cells, if stored.is_ok() { Cell::Is(version) } else { Cell::Unknown });
        self.refused(stored, "a store")
    }

    fn discard(&mut self, lazily: bool) -> Result<(), String> {
        let cells = self.some();
        let bytes = bytes(&cells);
        let region = &self.region;
        let done = if lazily { region.advise_free(bytes) } else { region.clear(bytes) };
        self.discarded(&cells, lazily, done.is_ok());
        self.refused(done, "a discard")
    }

    /// What cells are after a discard.
    fn discarded(&mut self, cells: &Range<u64>, lazily: bool, is_done: bool) {
        for cell in &mut self.cells[cells.start as usize..cells.end as usize] {
            *cell = match *cell {
                _ if !is_done => Cell::Unknown,
                _ if !lazily => Cell::Is(0),
                Cell::Is(version) | Cell::Freed(version) => Cell::Freed(version),
                Cell::Unknown => Cell::Unknown,
            };
        }
    }

    fn read(&mut self) -> Result<(), String> {
        let cells = self.some();
        self.check(cells)
    }

    /// Compares cells with what they must be.
    fn check(&mut self, cells: Range<u64>) -> Result<(), String> {
        let mut found = vec![0xA5; (cells.end - cells.start) as usize * CELL as usize];
        if let Err(error) = self.region.read_at(cells.start * CELL, &mut found) {
            return self.refused(Err(error), "a read");
        }
        for (cell, found) in cells.zip(found.chunks(CELL as usize)) {
            let is = |version| found == contents(&(cell..cell + 1), version);
            let due = self.cells[cell as usize];
            let right = match due {
                Cell::Is(version) => is(version),
                Cell::Freed(version) => is(version) || is(0),
                Cell::Unknown => true,
            };
            if !right {
                let page = cell * CELL / self.page;
                let zeroes = if is(0) { "zeroes" } else { "other bytes" };
                return Err(format!(
                    "cell {cell} of a region (page {page}): {zeroes}, not {due:?}"
                ));
            }
            if matches!(due, Cell::Freed(_)) && is(0) {
                // What is gone does not come back.
                self.cells[cell as usize] = Cell::Is(0);
            }
        }
        Ok(())
    }

    /// A discard up to the end of the region, and a thread that makes it longer and stores there.
    fn race(&mut self) -> Result<(), String> {
        let end = self.cells.len() as u64;
        let gone = end - self.rng.below(end.min(STEP_MAX) + 1)..end;
        let grown = end..end + 1 + self.rng.below(STEP_MAX / 4);
        let lazily = self.rng.below(2) == 0;
        let version = self.next_version();
        let region = &self.region;
        let (discarded, grew, stored) = std::thread::scope(|scope| {
            let grower = scope.spawn(|| {
                let grew = region.grow((grown.end - grown.start) * CELL);
                let bytes = contents(&grown, version);
                let stored = grew.as_ref().map(|begins| region.write_at(*begins, &bytes));
                (grew.is_ok(), stored.unwrap_or(Ok(())))
            });
            let bytes = bytes(&gone);
            let done = if lazily { region.advise_free(bytes) } else { region.clear(bytes) };
            let (grew, stored) = grower.join().unwrap_or((false, Ok(())));
            (done, grew, stored)
        });
        if !grew {
            return Err(format!("a region of {end} cells does not grow"));
        }
        let cell = if stored.is_ok() { Cell::Is(version) } else { Cell::Unknown };
        self.cells.resize(grown.end as usize, cell);
        self.discarded(&gone, lazily, discarded.is_ok());
        self.count(usize::from(lazily));
        self.refused(discarded, "a discard")?;
        self.refused(stored, "a store")?;
        self.check(gone.start.max(end.saturating_sub(self.page / CELL))..grown.end)
    }

    /// The tenant goes while its region is stored to; the region goes on, for the root.
    fn remove(&mut self) -> Result<(), String> {
        let cells = self.some();
        let version = self.next_version();
        let (region, tenant) = (&self.region, &self.tenant);
        let (removed, stored) = std::thread::scope(|scope| {
            let remover = scope.spawn(|| tenant.remove());
            let stored = region.write_at(cells.start * CELL, &contents(&cells, version));
            (remover.join(), stored)
        });
        self.set(cells, if stored.is_ok() { Cell::Is(version) } else { Cell::Unknown });
        self.refused(stored, "a store")?;
        if matches!(removed, Ok(Ok(()))) {
            self.count(3);
            self.tenants += 1;
            self.tenant = tenant_of(&self.pager, self.tenants, self.page)?;
        }
        self.renew()
    }

    /// The region goes while a thread reclaims, and another one comes.
    fn renew(&mut self) -> Result<(), String> {
        let next = match region(&self.tenant) {
            Ok(next) => next,
            Err(error) => return self.refused(Err(error), "the making"),
        };
        let (old, tenant) = (std::mem::replace(&mut self.region, next), &self.tenant);
        let bytes = Size::new(FRAMES * self.page);
        std::thread::scope(|scope| {
            scope.spawn(|| tenant.reclaim(bytes).is_ok());
            drop(old);
        });
        self.cells.clear();
        self.count(2);
        Ok(())
    }

    fn count(&mut self, row: usize) {
        *self.counts.entry(Self::ROWS[row]).or_default() += 1;
    }

    /// Whether a full tenant, or a disk, explains an error.
    fn refused(&self, done: Result<(), Error>, what: &str) -> Result<(), String> {
        match done {
            Err(Error::SwapIn { source, .. })
                if source.kind() == ErrorKind::InvalidData && !self.lies =>
            {
                Err(format!("{what} of a region: swap has other bytes than it was given: {source}"))
            }
            Ok(())
            | Err(Error::OutOfBudget { .. } | Error::SwapIn { .. } | Error::Timeout { .. }) => {
                Ok(())
            }
            Err(error) => Err(format!("{what} of a region: {error}")),
        }
    }
}

fn tenant_of(pager: &Pager, number: u32, page: u64) -> Result<Tenant, String> {
    let tenant = pager.tenant(&format!("heap-{number}")).max(Size::new(FRAMES * page));
    tenant.create().map_err(|error| error.to_string())
}

fn region(tenant: &Tenant) -> Result<Region, Error> {
    RegionOptions::new().create(tenant, 0)
}

fn bytes(cells: &Range<u64>) -> Range<u64> {
    cells.start * CELL..cells.end * CELL
}

/// The bytes of cells of a version. Those of every other one are easily compressed.
fn contents(cells: &Range<u64>, version: u32) -> Vec<u8> {
    let word = |cell: u64, at: u64| match version {
        0 => 0,
        odd if odd % 2 == 1 => mix64(u64::from(odd) << 32 | cell),
        even => mix64(u64::from(even) << 32 | cell << 4 | at),
    };
    let words = cells.clone().flat_map(|cell| (0..CELL / 8).map(move |at| word(cell, at)));
    words.flat_map(u64::to_le_bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heap(swap: SwapKind, seed: u64) -> (tempfile::TempDir, Heap) {
        let dir = tempfile::tempdir().unwrap();
        let builder = Pager::builder().max(Size::new(2 * SwapKind::bytes(SWAPPED_PAGE)));
        let builder = match swap.swap(dir.path(), SWAPPED_PAGE) {
            Some(swap) => builder.swap(swap),
            None => builder,
        };
        let pager = builder.build().unwrap();
        (dir, Heap::new(&pager, swap, false, SplitMix64::new(seed)).unwrap())
    }

    #[test]
    fn a_region_reads_as_it_was_stored_with_every_kind_of_swap() {
        for swap in SwapKind::ALL {
            let (_dir, mut heap) = heap(swap, 5);
            for _ in 0..600 {
                heap.step().unwrap_or_else(|what| panic!("{swap:?}: {what}"));
            }
            assert!(Heap::ROWS.iter().all(|row| heap.counts.contains_key(row)), "{swap:?}");
        }
    }

    #[test]
    fn a_byte_that_was_not_stored_is_found() {
        let (_dir, mut heap) = heap(SwapKind::Compressed, 6);
        while heap.cells.iter().filter(|cell| matches!(cell, Cell::Is(1..))).count() < 100 {
            heap.step().unwrap();
        }
        let at = heap.cells.iter().position(|cell| matches!(cell, Cell::Is(1..))).unwrap() as u64;
        let mut byte = [0];
        heap.region.read_at(at * CELL + 7, &mut byte).unwrap();
        heap.region.write_at(at * CELL + 7, &[byte[0] ^ 1]).unwrap();
        assert!(heap.check(at..at + 1).is_err());
        heap.region.clear(at * CELL..at * CELL + CELL).unwrap();
        assert!(heap.check(at..at + 1).unwrap_err().contains("zeroes"), "bytes that are lost");
    }
}
