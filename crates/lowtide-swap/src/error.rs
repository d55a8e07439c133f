//! What can go wrong, each with what, where and what to do. None of these errors affects another
//! page: what was stored stays stored, what was rejected left nothing behind.

use crate::file::Slot;
use crate::handle::Handle;
use std::io;
use std::path::PathBuf;

/// A page was not taken into the compressed tier. Nothing of it was kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Rejected {
    /// It has not [`PAGE_BYTES`](crate::PAGE_BYTES) bytes.
    #[error("a page for swap has {bytes} bytes instead of 4096: store pages of 4 KiB")]
    Size {
        /// Its bytes.
        bytes: usize,
    },
    /// The store may have no more memory.
    #[error(
        "the compressed tier uses {used} of at most {limit} pages of memory: raise its limit, or \
         write its coldest pages to the swap file"
    )]
    Limit {
        /// Pages that it has.
        used: usize,
        /// Pages that it may have.
        limit: usize,
    },
    /// The source had no page.
    #[error(
        "there is no memory for one more page of the compressed tier, which has {used}: raise the \
         tenant's budget, or write the coldest pages to the swap file"
    )]
    NoMemory {
        /// Pages that the store has.
        used: usize,
    },
    /// It does not compress, and the store keeps no such pages ([`StoreLimits::raw`]).
    ///
    /// [`StoreLimits::raw`]: crate::StoreLimits::raw
    #[error("the page does not compress: keep it in memory, or write it to the swap file")]
    Incompressible,
    /// As many pages are stored as there may be.
    #[error("all {slots} slots of the compressed tier are in use: give it more, or free memory")]
    Slots {
        /// Pages that may be stored.
        slots: u32,
    },
}

/// What was loaded from the compressed tier is not what was stored. The page is lost, and no byte
/// of it was returned as data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the page behind {handle} of the compressed tier {fault}: its contents are lost, and memory \
     may be faulty or overwritten; end what depends on the page"
)]
pub struct Corrupt {
    /// The handle that was loaded.
    pub handle: Handle,
    /// What is wrong.
    pub fault: Fault,
}

/// How contents are wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The bytes have another checksum than was stored with them.
    #[error("has checksum {found:#010x} instead of {expected:#010x}")]
    Checksum {
        /// Checksum that was recorded.
        expected: u32,
        /// Checksum of what was found.
        found: u32,
    },
    /// The bytes are what was stored, but they do not decompress to a page.
    #[error("cannot be decompressed")]
    Undecodable,
    /// Nothing is stored there (any more).
    #[error("is not stored")]
    Missing,
    /// The buffer of the caller is not a page.
    #[error("does not fit into a buffer of {0} bytes instead of 4096")]
    Buffer(usize),
}

/// The swap file cannot be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// A system call failed.
    #[error("cannot {action} a swap file in {}: {source}; choose another directory", dir.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The directory.
        dir: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The process may not write files of that size.
    #[error(
        "a swap file of {bytes} bytes is larger than this process may write files, {limit} bytes: \
         make it smaller, or raise `ulimit -f`"
    )]
    Limit {
        /// Bytes that the file may come to have.
        bytes: u64,
        /// Bytes that a file may have.
        limit: u64,
    },
    /// More slots than can be numbered, or none.
    #[error("a swap file has 1 to {most} slots of 4096 bytes, not {slots}")]
    Slots {
        /// Slots that were requested.
        slots: u32,
        /// The most.
        most: u32,
    },
}

/// Pages were not written to the swap file. All slots of the batch are free again, or will be when
/// a device answers that has not.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// There are not enough free slots.
    #[error(
        "the swap file has {free} of {slots} slots free, and {wanted} are needed: make it larger, \
         or free memory"
    )]
    Full {
        /// Slots that are free.
        free: u32,
        /// Slots in total.
        slots: u32,
        /// Slots that were needed.
        wanted: usize,
    },
    /// The device or file system refused.
    #[error(
        "writing {bytes} bytes at {offset} of the swap file failed: {source}; the pages stay in \
         memory; look into the kernel's log, or free space on the file system"
    )]
    Io {
        /// Where in the file.
        offset: u64,
        /// How many bytes.
        bytes: usize,
        /// Why not.
        source: io::Error,
    },
    /// An earlier write has timed out, and the device has not answered since.
    #[error(
        "nothing is written to the swap file until its device answers an earlier write: the pages \
         stay in memory; look into the kernel's log"
    )]
    NotAnswering,
    /// A page has not [`PAGE_BYTES`](crate::PAGE_BYTES) bytes.
    #[error("a page for swap has {bytes} bytes instead of 4096: store pages of 4 KiB")]
    Size {
        /// Its bytes.
        bytes: usize,
    },
}

impl WriteError {
    /// Whether the device may still write the pages.
    pub(crate) fn is_late(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::TimedOut)
    }
}

/// A page was not read from the swap file. It is still there, and may be read again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The device failed.
    #[error(
        "reading {slot} of the swap file failed: {source}; look into the kernel's log; reading it \
         again may help"
    )]
    Io {
        /// The slot.
        slot: Slot,
        /// Why not.
        source: io::Error,
    },
    /// The contents are wrong. No byte of them was returned as data.
    #[error(
        "{slot} of the swap file {fault}: the page is lost, and the device may be faulty; end what \
         depends on the page"
    )]
    Corrupt {
        /// The slot.
        slot: Slot,
        /// What is wrong.
        fault: Fault,
    },
}
