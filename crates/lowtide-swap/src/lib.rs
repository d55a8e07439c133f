//! # Where anonymous pages are kept when they are evicted
//!
//! Two tiers. The first is memory: a [`CompressedStore`] for each tenant, which keeps a page in the
//! smallest form that it has. The second is a file without a name.
//!
//! The crate starts no thread, reads no clock, and knows nothing of tenants, tables of pages or
//! reclaim: which page is evicted, when, and what a page's owner remembers of it, is decided by
//! its caller. It depends on no other crate of lowtide.
//!
//! ## Pages in memory
//!
//! ```
//! use lowtide_swap::{CompressedStore, HeapPages, PAGE_BYTES, StoreLimits};
//!
//! // One store for each tenant: the pages of its memory are that tenant's.
//! let store = CompressedStore::new(HeapPages::new(1000), StoreLimits::default());
//! let page = vec![42; PAGE_BYTES];
//! // A handle is 30 bits (`to_bits`), to be kept where the page was mapped.
//! let handle = store.store_tagged(&page, 7)?;
//! // The page comes back verified, or there is an error: never other bytes.
//! let mut back = vec![0; PAGE_BYTES];
//! store.load(handle, &mut back)?;
//! assert_eq!(back, page);
//! // It stays stored until it is freed.
//! store.free(handle);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | the owner | calls |
//! |---|---|
//! | gives memory, and charges it | implements [`PageSource`]: `take` a page, drop it |
//! | evicts a page | [`CompressedStore::store_tagged`]; the tag says which page it is |
//! | … and it is [`Rejected`] | makes room (below), or keeps the page |
//! | faults on a page | [`CompressedStore::load`], then [`free`](CompressedStore::free) |
//! | drops a page that is swapped out | [`CompressedStore::free`] |
//! | has time, now and then | [`CompressedStore::age`] |
//! | … and then in small steps | [`CompressedStore::recompress`], [`CompressedStore::compact`] |
//! | needs room | [`CompressedStore::coldest`] |
//! | … and for each page of these | [`CompressedStore::peek`], writes it to the file, frees it |
//! | changes how much memory it may have | [`set_limit`](CompressedStore::set_limit) |
//! | reports | [`stat`](CompressedStore::stat): the figures of zram's `mm_stat`, and more |
//!
//! All methods take `&self` and may be called from all threads. Storing and loading take no lock
//! while they compress, decompress or hash. No method calls the source, or drops a page, while it
//! has a lock, so a source may take the locks of its owner.
//!
//! Storing needs memory before it frees memory: up to four pages when no block has room for the
//! object. An owner that stores because it has none left keeps a few pages for that.
#![forbid(unsafe_code)]
mod age;
mod blocks;
mod classes;
mod codec;
mod compact;
mod entries;
mod error;
mod figures;
mod file;
mod recompress;
mod source;
mod store;

pub use error::{Corrupt, CreateError, Fault, ReadError, Rejected, WriteError};
pub use figures::{MmStat, StoreStat};
pub use file::Slot;
pub use recompress::Recompressed;
pub use source::{HeapPage, HeapPages, PAGE_BYTES, PageSource};
pub use store::{Cold, CompressedStore, Handle, StoreLimits};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes a lock. One that a panic has left is taken as it is: what it guards has no unfinished
/// changes but those of the panic's own page, and contents are verified in any case.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
