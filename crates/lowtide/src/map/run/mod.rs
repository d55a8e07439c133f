//! What `lowtide run`, and others that serve memory which a program mapped itself, need of maps.
//!
//! A program that was not written for lowtide has its own mappings and descriptors. These are kept
//! within a budget without its help, and under promises that only its host can give, that a file
//! does not change for instance. So this is for hosts, behind the feature `run`, and none of it is
//! stable.
//!
//! | file | concept |
//! |---|---|
//! | `company` | what other processes under the same budget have of a file |
//! | `cover` | a mirror in the place of a mapping of the program, and that mapping back |
//! | `placed` | `userfault` mode at addresses of the program's own |
//! | `manner`, `way` | in order, or each alone: how pages come in; which way is better for it |
//! | `reads` | files that are read through descriptors: what a host says of them |
//! | `noted` | the same: what the thread that watches does with it |

pub(super) mod company;
#[cfg(feature = "run")]
mod cover;
pub(super) mod manner;
pub(super) mod noted;
#[cfg(feature = "run")]
mod placed;
#[cfg(feature = "run")]
mod reads;
#[cfg(feature = "run")]
mod way;

#[cfg(feature = "run")]
pub use company::ExchangeFn;
#[cfg(feature = "run")]
pub use cover::{Cover, Lost, Mapped, keep_room};
#[cfg(feature = "run")]
pub use manner::Manner;
#[cfg(feature = "run")]
pub use placed::{Aside, Placed};
#[cfg(feature = "run")]
pub use reads::Reads;
#[cfg(feature = "run")]
pub use way::Way;

/// Opens the page tables of this process for the maps of a pager: after a process has given rights
/// up, it may not open them any more.
///
/// # Errors
/// That of the kernel; that it cannot scan page tables.
#[cfg(feature = "run")]
pub fn open_page_tables(pager: &crate::Pager) -> Result<(), super::MapError> {
    super::space::page_tables(&pager.inner.pool, super::MapMode::PageCache).map(drop)
}

/// Shares the page cache of a pager's watched files with other processes under the same budget.
/// The first call counts.
#[cfg(feature = "run")]
pub fn share_files(pager: &crate::Pager, exchange: std::sync::Arc<ExchangeFn>) {
    drop(pager.inner.pool.exchange.set(company::Exchange(exchange)));
}
