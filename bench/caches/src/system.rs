//! The systems, and how large each may be.
//!
//! **The same bytes.** A budget of B bytes is for everything that a system keeps in memory of its
//! own accord: pages and what leads to them. How many pages that leaves is found by weighing
//! (`fit`): a system is built for some number of pages and filled by as many threads as the
//! measurement has, with three times as many pages as it may keep, so that its ghosts, logs and
//! freed records are as they will be. Then everything is added up, and the number is corrected
//! until the sum is at most B and as close to it as the steps of hash tables allow.
//!
//! | part | how it is known |
//! |---|---|
//! | page buffers of a cache | all of them, with their counts: no more exist ([`crate::slab`]) |
//! | records, tables, ghosts, logs of a cache | the allocator's count ([`crate::heap`]) |
//! | locks of pages | allocated on the heap, so counted there |
//! | lowtide's frames, tables and translations | [`lowtide::Pager::stat`] |
//! | what lowtide allocates besides | the allocator's count |
//!
//! Charged to no system: stacks of threads, and rings, which are the kernel's. The growth of the
//! process while a system is built and warmed up is printed beside it, as a check.

use std::fmt;
use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use crate::layout::RecordLayout;
use lowtide::{IoEngine, OpenOptions, Pager, Policy, Size};
use lowtide_workload::SplitMix64;
use lowtide_workload::record::RECORD_BYTES;

use crate::cache::{Foyer, Moka, PageCache, QuickCache};
use crate::error::Error;
use crate::heap;
use crate::pages::{Cached, Paged, Pages};
use crate::run::WARMERS;

/// Corrections of a capacity, at most.
const STEPS: u32 = 8;
/// A capacity is good enough when this share of the budget is used.
const CLOSE: f64 = 0.985;
/// How many times its pages a system is filled with while it is weighed.
const TURNS: u64 = 3;
/// What follows the name of lowtide with compressed pages.
const ZCACHE: &str = "+zcache";
/// Pages of a part of a file of which one is touched: of a page of translations there are more.
const PART: u64 = 256;

/// A system of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// lowtide, with a policy if not its default, an I/O engine, and compressed pages or not.
    Lowtide(Option<Policy>, IoEngine, bool),
    /// `pread` and quick_cache.
    QuickCache,
    /// `pread` and moka.
    Moka,
    /// `pread` and foyer.
    Foyer,
}

impl Kind {
    /// The four. lowtide is as by default, but compresses nothing, as the others do.
    pub const ALL: [Self; 4] =
        [Self::Lowtide(None, IoEngine::Auto, false), Self::QuickCache, Self::Moka, Self::Foyer];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lowtide(policy, engine, zcache) => {
                f.write_str("lowtide")?;
                if let Some(policy) = policy {
                    write!(f, ":{policy}")?;
                }
                if *engine != IoEngine::Auto {
                    write!(f, "@{engine}")?;
                }
                f.write_str(if *zcache { ZCACHE } else { "" })
            }
            Self::QuickCache => f.write_str(QuickCache::NAME),
            Self::Moka => f.write_str(Moka::NAME),
            Self::Foyer => f.write_str(Foyer::NAME),
        }
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (rest, zcache) = text.strip_suffix(ZCACHE).map_or((text, false), |rest| (rest, true));
        let (rest, engine) = rest.split_once('@').unwrap_or((rest, "auto"));
        let (name, policy) =
            rest.split_once(':').map_or((rest, None), |(name, policy)| (name, Some(policy)));
        if name == "lowtide" {
            let policy = policy.map(str::parse).transpose();
            let policy = policy.map_err(|error: lowtide::PolicyError| error.to_string())?;
            let engine =
                engine.parse().map_err(|error: lowtide::UnknownIoEngine| error.to_string());
            return Ok(Self::Lowtide(policy, engine?, zcache));
        }
        Self::ALL.into_iter().find(|kind| kind.to_string() == text).ok_or_else(|| {
            format!(
                "there is no system `{text}`; choose of lowtide, lowtide:POLICY, lowtide@psync, \
                 lowtide+zcache, quick_cache, moka, foyer"
            )
        })
    }
}

/// What all systems of a run have in common.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Where records are.
    pub layout: RecordLayout,
    /// Bytes of the file.
    pub data: u64,
    /// The budget.
    pub max: u64,
    /// Threads.
    pub threads: u32,
    /// Whether each update is durable when it returns.
    pub durable: bool,
}

/// The size of a system within the budget.
#[derive(Clone, Copy, Debug)]
pub struct Fit {
    /// Pages that it may keep.
    pub pages: u64,
    /// Bytes of heap that it needs for them.
    pub heap: u64,
    /// All bytes, with those of the pages.
    pub bytes: u64,
}

impl Kind {
    /// Builds the system over the file at `path`, of `pages` pages.
    ///
    /// # Errors
    /// Those of the pager and of the file.
    pub fn build(&self, path: &Path, terms: &Terms, pages: u64) -> Result<Arc<dyn Pages>, Error> {
        Ok(match self {
            Self::Lowtide(policy, engine, zcache) => {
                let page_bytes = terms.layout.page_bytes();
                let mut builder = Pager::builder()
                    .max(Size::new(pages * page_bytes as u64))
                    .base_page(page_bytes)
                    .io_engine(*engine)
                    .zcache(*zcache);
                if let Some(policy) = policy {
                    builder = builder.policy(*policy);
                }
                let pager = builder.build()?;
                let options = OpenOptions::new().write(true).sync(terms.durable).lock(false);
                let view = options.open(&pager, path)?;
                Arc::new(Paged::new(pager, view, terms.layout, self.to_string()))
            }
            Self::QuickCache => Arc::new(cached::<QuickCache>(path, terms, pages)?),
            Self::Moka => Arc::new(cached::<Moka>(path, terms, pages)?),
            Self::Foyer => Arc::new(cached::<Foyer>(path, terms, pages)?),
        })
    }

    /// The bytes that the system takes with `pages` pages, and how many of them are heap.
    fn weigh(&self, path: &Path, terms: &Terms, pages: u64) -> Result<(u64, u64), Error> {
        match self {
            Self::Lowtide(..) => {
                let (built, heap) = heap::weigh(|| {
                    let built = self.build(path, terms, pages)?;
                    touch(&*built, terms, pages)?;
                    Ok::<_, Error>(built)
                });
                Ok((built?.bytes() + heap, heap))
            }
            Self::QuickCache => weigh_filled::<QuickCache>(path, terms, pages),
            Self::Moka => weigh_filled::<Moka>(path, terms, pages),
            Self::Foyer => weigh_filled::<Foyer>(path, terms, pages),
        }
    }

    /// As many pages as fit into the budget with all that leads to them.
    ///
    /// # Errors
    /// [`Error::Misfit`], and those of [`Kind::build`].
    pub fn fit(&self, path: &Path, terms: &Terms) -> Result<Fit, Error> {
        let mut pages = terms.max / terms.layout.page_bytes() as u64;
        let mut best: Option<Fit> = None;
        for _ in 0..STEPS {
            let (bytes, heap) = self.weigh(path, terms, pages)?;
            if bytes <= terms.max {
                if best.is_none_or(|best| best.pages < pages) {
                    best = Some(Fit { pages, heap, bytes });
                }
                if bytes as f64 >= CLOSE * terms.max as f64 {
                    break;
                }
            }
            pages = (pages as f64 * 0.998 * terms.max as f64 / bytes as f64) as u64;
            if pages == 0 {
                break;
            }
        }
        best.ok_or_else(|| Error::Misfit { system: self.to_string(), bytes: terms.max })
    }
}

/// `pread` and a cache.
fn cached<C: PageCache>(path: &Path, terms: &Terms, pages: u64) -> Result<Cached<C>, Error> {
    let threads = terms.threads.max(WARMERS);
    Cached::new(open_data(path, terms.durable)?, terms.layout, pages as usize, threads)
}

/// Reads as many pages as may be kept, in each part of the file: frames and translations take
/// memory for what leads to them where they were used.
fn touch(pages: &dyn Pages, terms: &Terms, kept: u64) -> Result<(), Error> {
    let all = terms.data / RECORD_BYTES as u64;
    let of_page = (terms.layout.page_bytes() / RECORD_BYTES) as u64;
    let part = PART.min(all / of_page / kept.max(1)).max(1) * of_page;
    (0..all).step_by(part as usize).try_for_each(|key| pages.read(key).map(drop))
}

/// Fills a cache as misses do, without reading.
fn weigh_filled<C: PageCache>(path: &Path, terms: &Terms, pages: u64) -> Result<(u64, u64), Error> {
    let (filled, heap) = heap::weigh(|| {
        let cached = cached::<C>(path, terms, pages)?;
        let all = terms.data / terms.layout.page_bytes() as u64;
        let fill = |thread: u32| {
            let mut rng = SplitMix64::new(thread.into());
            (0..TURNS * pages / u64::from(terms.threads))
                .try_for_each(|_| cached.put_blank(rng.below(all)))
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..terms.threads).map(|thread| scope.spawn(move || fill(thread))).collect();
            threads.into_iter().try_for_each(|thread| {
                thread.join().unwrap_or_else(|_| Err(Error::Thread(C::NAME.into())))
            })
        })?;
        Ok::<_, Error>(cached)
    });
    Ok((filled?.bytes() + heap, heap))
}

/// The file, past the page cache where that is possible, and with `O_DSYNC` where each write is to
/// be durable.
fn open_data(path: &Path, durable: bool) -> Result<File, Error> {
    let open = |direct: i32| {
        let dsync = if durable { libc::O_DSYNC } else { 0 };
        fs::OpenOptions::new().read(true).write(true).custom_flags(direct | dsync).open(path)
    };
    let opened = match open(libc::O_DIRECT) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => open(0),
        opened => opened,
    };
    opened.map_err(|source| Error::file("open", path, source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for name in ["lowtide", "lowtide:lru", "lowtide:mglru-7.1@psync", "lowtide@uring", "foyer"]
        {
            assert_eq!(name.parse::<Kind>().unwrap().to_string(), name);
        }
        for name in ["lowtide:best", "lowtide@aio", "foyer@psync", "", "low"] {
            assert!(name.parse::<Kind>().is_err(), "{name}");
        }
    }
}
