//! How a fault waits for the I/O that it needs.
//!
//! A fault looks its page up under a lock of the address space. What becomes of that lock while the
//! page is on its way, and of the page between its arrival and the next look, is a choice; kernels
//! have one, a series of patches another, and its reviewers proposed two more.
//!
//! | | lock during the I/O | the page meanwhile | then |
//! |---|---|---|---|
//! | `mmap-lock-retry` | none; the second time the mmap lock | free | again, under the mmap lock |
//! | `vma-lock-retry` | none; the second time the VMA's | free | again, under the VMA's lock |
//! | `hold-vma` | the VMA's, or the mmap lock | referenced | maps it |
//! | `pin-retry` | none | referenced | again, under the VMA's lock |
//! | `hold` | none | referenced | maps it, under the VMA's lock |
//!
//! *Free* is a page without a reference: reclaim may take it before the fault comes back. Source:
//! `docs/kernel/fault-and-writeback.md` A1, A5, A9; more: `docs/design/fault-path.md`.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// How a fault waits for its I/O; see the head of the file.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum FaultPath {
    /// As kernels do, up to and with 7.3.
    #[default]
    MmapLockRetry,
    /// As with the series "continue using per-VMA lock when retrying page faults after I/O".
    VmaLockRetry,
    /// The lock of the mapping is held across the I/O, as a reviewer proposed.
    HoldVma,
    /// The page is pinned across the retry, as proposed in A9.5.
    PinRetry,
    /// The page is held from the look-up to the mapping, and there is no retry: lowtide.
    Hold,
}

impl FaultPath {
    /// All ways, the kernel's first.
    pub const ALL: [Self; 5] =
        [Self::MmapLockRetry, Self::VmaLockRetry, Self::HoldVma, Self::PinRetry, Self::Hold];

    /// The name, as on the command line and in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MmapLockRetry => "mmap-lock-retry",
            Self::VmaLockRetry => "vma-lock-retry",
            Self::HoldVma => "hold-vma",
            Self::PinRetry => "pin-retry",
            Self::Hold => "hold",
        }
    }

    /// Whether a first attempt gives its lock up for the I/O.
    pub const fn drops_lock(self) -> bool {
        !matches!(self, Self::HoldVma)
    }

    /// Whether a fault that had to wait is attempted again.
    pub const fn retries(self) -> bool {
        !matches!(self, Self::HoldVma | Self::Hold)
    }

    /// Whether a page keeps its reference while no lock is held.
    pub const fn keeps_page(self) -> bool {
        matches!(self, Self::PinRetry | Self::Hold)
    }

    /// Whether a fault that has given up the lock of its mapping takes that again, instead of the
    /// lock of the address space.
    pub const fn retries_by_vma(self) -> bool {
        matches!(self, Self::VmaLockRetry | Self::PinRetry | Self::Hold)
    }
}

impl fmt::Display for FaultPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A text that names no fault path.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is no fault path; use mmap-lock-retry, vma-lock-retry, hold-vma, pin-retry or hold")]
pub struct UnknownFaultPath(String);

impl FromStr for FaultPath {
    type Err = UnknownFaultPath;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|path| path.name() == text);
        found.ok_or_else(|| UnknownFaultPath(text.to_owned()))
    }
}
