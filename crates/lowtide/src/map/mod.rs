//! Files behind a plain pointer, under a budget.
//!
//! A [`Map`] is for code that wants `&[u8]`: a search index, an archive, a vector index, everything
//! that was written for a memory map. It dereferences to the bytes of the file, and a hit is what
//! the processor does with a pointer. What is in memory is charged to a tenant, and the pager's
//! policy decides which pages stay.
//!
//! ```
//! use lowtide::{Size, Pager, map::MapOptions};
//! use std::fs::File;
//!
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("index");
//! # std::fs::write(&path, vec![7; 1 << 20])?;
//! let pager = Pager::builder().max(Size::kib(256)).build()?;
//! let file = File::open(&path)?;
//! // SAFETY: no program changes the file while it is mapped.
//! let map = unsafe { MapOptions::new().map(&pager, &file) }?;
//! assert_eq!((map.len(), map[1_000_000]), (1 << 20, 7));
//! println!("{}", map.report());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | file | concept |
//! |---|---|
//! | `options`, `mode`, `make`, `handle`, `writable`, `remap`, `report`, `error` | the public API |
//! | `area` | what maps that are read and maps that are written have in common |
//! | `pages` | what reclaim and a miss ask of memory behind a pointer |
//! | `space`, `page_bits` | a map's entry in the pager; what is known of each page |
//! | `mirror`, `server`, `serve` | `userfault` mode: this process serves page faults |
//! | `heap` | there, memory without a file: its pages come from swap |
//! | `landing` | memory in which bytes arrive and from which they are written |
//! | `sample` | there, what is seen of windows that are read ahead |
//! | `stores` | there, what is stored: noticed, written back, never lost |
//! | `watched`, `watch`, `adopt` | `pagecache` mode: the kernel's mapping, watched and trimmed |
//! | `streams` | read-ahead for the kernel's mappings |
//! | `noticed` | what of them is charged |
//! | `sweep`, `sweeper` | what the kernel has of any file that is mapped, beyond that |
//! | `run` | memory and files of programs that know nothing of lowtide |
//! | `copy` | private mappings that are stored to |
//!
#![doc = include_str!("corners.md")]

mod adopt;
mod area;
mod copy;
mod error;
mod handed;
mod handle;
mod heap;
mod landing;
mod make;
mod mirror;
mod mode;
mod noticed;
mod on_error;
mod options;
mod page_bits;
mod pages;
mod remap;
mod report;
#[cfg(feature = "run")]
pub mod run;
#[cfg(not(feature = "run"))]
mod run;
mod sample;
mod serve;
mod server;
mod space;
mod stores;
mod streams;
mod sweep;
mod sweeper;
mod watch;
mod watched;
mod writable;

pub use adopt::{Adopted, MapFile};
pub use error::MapError;
pub use handle::Map;
pub(crate) use landing::{Landing, register_blocks};
pub(crate) use mirror::register_lists;
pub use mode::{MapMode, UnknownMapMode};
pub use options::{Access, MapOptions};
pub(crate) use pages::{Arrival, MappedPages, StoredPages};
pub use remap::RemapOptions;
pub use report::MapReport;
pub(crate) use run::company::Exchange;
pub(crate) use space::PageTables;
pub use writable::MapMut;
