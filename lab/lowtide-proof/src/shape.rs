//! What a cycle draws besides its disk: pages, folios, views or a map, a region, and patience.
//!
//! The first of all is drawn from number and seed of the cycle, so that each proof walks through
//! all of them. The budget is the one that was requested, or the least that these pages and folios
//! need.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use lowtide::advanced::OpenAdvanced as _;
use lowtide::map::MapMode;
use lowtide::{OpenError, OpenOptions, Pager, PagerBuilder, Size, View};
use lowtide_workload::SplitMix64;

use crate::access::{Access, Mapped};
use crate::heap::SwapKind;

/// A cycle of this number is played through a map, where there are such.
const MAPPED: u64 = 4;
/// A cycle of this number has a region beside its file.
const WITH_REGION: u64 = 3;
/// What an operation waits for room, in the cycles in which that is hardly anything.
const IMPATIENT: [Duration; 2] = [Duration::ZERO, Duration::from_millis(1)];
/// Bytes of the processor's pages, which maps have.
const PROCESSOR_PAGE: usize = 4096;
/// Base pages that a pager may have.
const PAGES: [usize; 8] = [512, 1024, 2048, 4096, 8192, 16384, 32768, 65536];
/// Folios of this many orders, from 0 on.
const ORDERS: u8 = 10;
/// Bytes of the largest folio.
const FOLIO_MAX: usize = 2 << 20;
/// The least budget in pages.
const PAGES_MIN: u64 = 32;
/// The least budget in folios.
const FOLIOS_MIN: u64 = 8;

/// See the module documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of a base page.
    pub page: usize,
    /// Folios have two to the power of this many pages.
    pub order: u8,
    /// Whether half of the threads use a view that was opened by itself.
    pub two_views: bool,
    /// Whether the file is closed and opened again half-way.
    pub reopens: bool,
    /// All threads store through one map, which gets its pages in this way.
    pub map: Option<MapMode>,
    /// Pages that are evicted stay compressed, in this many sixteenths of the budget.
    pub zcache: Option<u64>,
    /// A region beside the file, and where its pages go.
    pub region: Option<SwapKind>,
    /// How long an operation waits for room; `None` is what the proof gives to all others.
    pub patience: Option<Duration>,
}

/// A file that is open.
#[derive(Debug)]
pub enum Opened {
    /// A view for each half of the threads.
    Views(Box<[View; 2]>),
    /// A map for all.
    Map(Box<Mapped>),
}

impl Opened {
    /// What a thread stores through.
    #[must_use]
    pub fn access(&self, thread: usize) -> Access<'_> {
        match self {
            Self::Views(views) => Access::View(&views[thread % views.len()]),
            Self::Map(mapped) => Access::Map(mapped),
        }
    }
}

impl Shape {
    /// Draws one; maps in these ways are possible.
    pub fn draw(rng: &mut SplitMix64, ways: &[MapMode]) -> Self {
        if !ways.is_empty() && rng.below(MAPPED) == 0 {
            let map = Some(ways[rng.below(ways.len() as u64) as usize]);
            // A map that is dropped stays open for a moment, until its last fault is done with.
            // A load that finds no room ends the process, so it waits as long as others.
            return Self {
                page: PROCESSOR_PAGE,
                order: 0,
                two_views: false,
                reopens: false,
                map,
                zcache: None,
                region: None,
                patience: None,
            };
        }
        // The page that all writers use is drawn most.
        let page =
            if rng.below(3) == 0 { 4096 } else { PAGES[rng.below(PAGES.len() as u64) as usize] };
        let largest = (FOLIO_MAX / page).ilog2() as u8;
        let order = if rng.below(2) == 0 { 0 } else { rng.below(u64::from(ORDERS)) as u8 };
        Self {
            page,
            order: order.min(largest),
            two_views: rng.below(2) == 0,
            reopens: rng.below(4) == 0,
            map: None,
            zcache: (rng.below(2) == 0).then(|| 1 + rng.below(12)),
            region: (rng.below(WITH_REGION) == 0).then(|| SwapKind::draw(rng, page)),
            patience: IMPATIENT.get(rng.below(4) as usize).copied(),
        }
    }

    /// The budget of a pager: as wanted, if that is possible, and what a region takes.
    pub fn budget(&self, wanted: u64) -> u64 {
        let (page, folio) = (self.page as u64, (self.page as u64) << self.order);
        let region = self.region.map_or(0, |_| SwapKind::bytes(self.page));
        wanted.max(PAGES_MIN * page).max(FOLIOS_MIN * folio) + region
    }

    /// A builder with what the shape says of a pager; the swap file is in `dir`.
    pub fn builder(&self, wanted: u64, dir: &Path) -> PagerBuilder {
        let builder = Pager::builder().max(Size::new(self.budget(wanted))).base_page(self.page);
        let builder =
            if let Some(part) = self.zcache { builder.zcache_sixteenths(part) } else { builder };
        let swap = self.region.and_then(|swap| swap.swap(dir, self.page));
        let builder = if let Some(swap) = swap { builder.swap(swap) } else { builder };
        if let Some(patience) = self.patience { builder.memory_timeout(patience) } else { builder }
    }

    /// Opens the file. With a length, it is made, or made so long. A file that is mapped is made
    /// `bytes` long before.
    ///
    /// # Errors
    /// Those of opening.
    pub fn open(
        &self,
        pager: &Pager,
        path: &Path,
        create: Option<u64>,
        bytes: u64,
    ) -> Result<Opened, OpenError> {
        match self.map {
            None => self.views(pager, path, create).map(|views| Opened::Views(Box::new(views))),
            Some(way) => {
                // A map neither makes a file nor changes its length.
                let io = |source| OpenError::Io { path: path.to_owned(), source };
                let view =
                    OpenOptions::new().write(true).create_with_len(bytes).open(pager, path)?;
                view.close().map_err(|error| io(error.into()))?;
                Mapped::open(pager, path, way).map(|map| Opened::Map(Box::new(map))).map_err(io)
            }
        }
    }

    /// One view for each half of the threads.
    fn views(
        &self,
        pager: &Pager,
        path: &Path,
        create: Option<u64>,
    ) -> Result<[View; 2], OpenError> {
        let options = OpenOptions::new().write(true).folio_order(self.order);
        let options =
            if let Some(bytes) = create { options.create_with_len(bytes) } else { options };
        let first = options.open(pager, path)?;
        let second = if self.two_views { options.open(pager, path)? } else { first.clone() };
        Ok([first, second])
    }

    /// The row that a map fills, once it is there.
    pub fn mapped_row(&self) -> Option<String> {
        self.map.map(mapped_row)
    }

    /// The rows of the coverage table that it fills by being drawn.
    pub fn rows(&self) -> Vec<String> {
        let mut rows = vec![
            format!("pages of {} bytes", self.page),
            format!("folios of order {}", self.order),
        ];
        rows.extend(self.two_views.then(|| "two views".to_owned()));
        rows.extend(self.reopens.then(|| "closed and opened half-way".to_owned()));
        rows.extend(self.region.map(|swap| swap.row().to_owned()));
        rows.extend(self.patience.map(patience_row));
        rows
    }

    /// All rows that a long proof must have filled where maps in these ways are possible.
    pub fn all_rows(ways: &[MapMode]) -> impl Iterator<Item = String> {
        let pages = PAGES.into_iter().map(|page| format!("pages of {page} bytes"));
        let orders = (0..ORDERS).map(|order| format!("folios of order {order}"));
        let others = ["two views", "closed and opened half-way"].map(str::to_owned);
        let regions = SwapKind::ALL.map(|swap| swap.row().to_owned());
        let patience = IMPATIENT.map(patience_row);
        let maps = ways.iter().copied().map(mapped_row);
        pages.chain(orders).chain(others).chain(maps).chain(regions).chain(patience)
    }
}

fn patience_row(patience: Duration) -> String {
    format!("a patience of {} ms", patience.as_millis())
}

fn mapped_row(way: MapMode) -> String {
    format!("stores through a map, {way}")
}

/// How a file begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// Half as long as it will be.
    Half,
    /// As long as it will be, and all of it a hole.
    Sparse,
    /// The pager makes it, and it has no bytes.
    New,
    /// The pager makes it, as long as it will be.
    NewSparse,
}

impl Beginning {
    /// The rows of the coverage table.
    pub const ROWS: [&'static str; 2] = ["files that began sparse", "files that the pager made"];

    /// Draws one.
    pub fn draw(rng: &mut SplitMix64) -> Self {
        [Self::Half, Self::Sparse, Self::New, Self::NewSparse][rng.below(4) as usize]
    }

    /// The rows that it fills.
    pub fn rows(self) -> impl Iterator<Item = &'static str> {
        let sparse = matches!(self, Self::Sparse | Self::NewSparse);
        [sparse, self.is_new()]
            .into_iter()
            .zip(Self::ROWS)
            .filter_map(|(is, row)| is.then_some(row))
    }

    const fn is_new(self) -> bool {
        matches!(self, Self::New | Self::NewSparse)
    }

    /// Makes the file, or sees that there is none and returns the length with which the pager is to
    /// make it.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn make(self, path: &Path, half: u64, bytes: u64) -> io::Result<Option<u64>> {
        let make = |bytes| File::create(path).and_then(|file| file.set_len(bytes)).map(|()| None);
        match self {
            Self::Half => make(half),
            Self::Sparse => make(bytes),
            Self::New | Self::NewSparse => {
                match std::fs::remove_file(path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
                Ok(Some(if self == Self::New { 0 } else { bytes }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_is_possible_and_every_row_is_filled_by_some() {
        let (mut rng, ways) = (SplitMix64::new(7), [MapMode::Userfault, MapMode::PageCache]);
        let mut rows: Vec<String> = Vec::new();
        for _ in 0..600 {
            let shape = Shape::draw(&mut rng, &ways);
            assert!(shape.page << shape.order <= FOLIO_MAX);
            assert!(shape.budget(0) >= PAGES_MIN * shape.page as u64);
            rows.extend(shape.rows().into_iter().chain(shape.mapped_row()));
        }
        assert!(Shape::all_rows(&ways).all(|row| rows.contains(&row)));
    }
}
