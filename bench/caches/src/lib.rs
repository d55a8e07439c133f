//! lowtide beside `pread` with a cache: quick_cache, moka and foyer, as page caches of the same
//! bytes, in one run.
//!
//! | module | contents |
//! |---|---|
//! | [`run`](mod@run) | rounds, slices, ratios |
//! | [`system`] | the systems, and what "the same bytes" means |
//! | [`pages`] | a file of records behind a budget: `pread` with a cache, and a view |
//! | [`cache`] | the three caches behind one seam |
//! | [`slab`] | pooled, aligned page buffers, the values of the caches |
//! | [`heap`] | the scale for tables that a cache does not tell about |
//! | [`layout`] | records on pages of any size |
//! | [`work`], [`threads`] | the operations, and the threads that do them |
//! | [`files`] | the data, and the check that no update was lost |

#![deny(unsafe_code)]

pub mod cache;
pub mod error;
pub mod files;
pub mod heap;
pub mod layout;
pub mod pages;
pub mod run;
pub mod slab;
pub mod system;
pub mod threads;
pub mod work;
