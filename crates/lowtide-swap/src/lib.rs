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
//! has a lock that another method needs, so a source may take the locks of its owner.
//!
//! Storing needs memory before it frees memory: a page, when no block has room for the object. An
//! owner that stores because it has none left keeps a page for that.
//!
//! ## Pages in a file
//!
//! ```
//! use lowtide_swap::{Neighbours, Outgoing, PAGE_BYTES, ReadAhead, Slot, SwapFile};
//!
//! struct Cache(Vec<(u64, Vec<u8>)>);
//!
//! impl Neighbours for Cache {
//!     fn wants(&mut self, _: Slot, tag: u64) -> bool {
//!         self.0.iter().all(|(have, _)| *have != tag)
//!     }
//!
//!     fn take(&mut self, _: Slot, tag: u64, page: &[u8]) -> bool {
//!         self.0.push((tag, page.to_vec()));
//!         true
//!     }
//! }
//!
//! // 4 MiB without a name, for all tenants or for one.
//! let file = SwapFile::create(std::env::temp_dir(), 1024)?;
//! let pages: Vec<Vec<u8>> = (0..8).map(|n| vec![n; PAGE_BYTES]).collect();
//! let batch: Vec<Outgoing> =
//!     (0..).zip(&pages).map(|(tag, bytes)| Outgoing { bytes, tag }).collect();
//! // One request, or an error that leaves nothing behind.
//! let slots = file.write(&batch)?;
//! // The page that is needed, and its neighbours with it.
//! let (ahead, mut cache) = (ReadAhead::default(), Cache(Vec::new()));
//! let mut page = vec![0; PAGE_BYTES];
//! file.read(slots[3], &mut page, &ahead, &mut cache)?;
//! assert_eq!((page, cache.0.len()), (vec![3; PAGE_BYTES], 7));
//! // A touch of one of them opens the window further.
//! assert!(file.touched(slots[4], &ahead));
//! slots.into_iter().for_each(|slot| file.free(slot));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | the owner | calls |
//! |---|---|
//! | writes a batch of evicted pages | [`SwapFile::write`]: a slot of 30 bits for each |
//! | faults on a page | [`SwapFile::read`], with a [`ReadAhead`] for each region or tenant |
//! | knows which pages are needed with it | [`SwapFile::read_together`] |
//! | sees the first touch of a page that has a slot | [`SwapFile::touched`] |
//! | needs the slot no more | [`SwapFile::free`] |
//! | has time, now and then | [`SwapFile::discard`]: space of free clusters goes back |
//! | reports | [`SwapFile::stat`] |
//!
//! A page keeps its slot until it is freed, also after it was read: an owner may keep both, and
//! evict the page again without writing it as long as it was not stored to.
//!
//! ## What goes wrong
//!
//! [`Rejected`], [`WriteError`]: the page stays with its owner, and nothing of it is left in the
//! tier. [`ReadError::Io`]: it is still in its slot. [`Corrupt`], [`ReadError::Corrupt`]: it is
//! lost, and no byte of it was given out as data. No error affects another page.
#![forbid(unsafe_code)]
mod age;
mod blocks;
mod classes;
mod codec;
mod cold;
mod compact;
mod entries;
mod error;
mod figures;
mod file;
mod handle;
mod lock;
mod recompress;
mod source;
mod store;

pub use codec::{Packing, register_thread_locals};
pub use cold::Dictionary;
pub use error::{Corrupt, CreateError, Fault, ReadError, Rejected, WriteError};
pub use figures::{MmStat, StoreStat};
pub use file::{
    AlignedBuffer, Alone, Backing, CLUSTER_SLOTS, FileStat, Incoming, Neighbours, Outgoing,
    ReadAhead, Slot, SwapFile, UnlinkedFile, spans,
};
pub use handle::Handle;
pub use recompress::Recompressed;
pub use source::{HeapPage, HeapPages, PAGE_BYTES, PageSource};
pub use store::{Cold, CompressedStore, StoreLimits};
