//! What can go wrong with a tenant itself. What goes wrong with its pages is an
//! [`Error`](crate::Error), as everywhere.

use lowtide_core::{ConfigError, DirtyLimitsError, GroupError, Size};

/// An operation on a tenant that failed and changed nothing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TenantError {
    /// The name cannot be one step of a path.
    #[error("{name:?} cannot name a tenant, because it {problem}: choose another name")]
    InvalidName {
        /// The requested name.
        name: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A sibling has the name.
    #[error("tenant {path:?} already exists: choose another name, or get it with `Pager::find`")]
    Exists {
        /// Its path.
        path: String,
    },
    /// It has been removed, by this handle or another one.
    #[error("the tenant has been removed: its pages belong to its parent")]
    Gone,
    /// The pager met a defect of its own.
    #[error(
        "the pager is poisoned: a thread panicked while holding its lock. Flushed data is safe. \
         Drop this pager and build a new one"
    )]
    Poisoned,
    /// There is no room for another one.
    #[error("there are already 65535 tenants, the maximum of a pager: remove some")]
    TooMany,
    /// It would have too many ancestors.
    #[error(
        "a tenant can be at most {} levels below the root: create it higher up",
        lowtide_core::limits::MAX_DEPTH
    )]
    TooDeep,
    /// The root is the pager itself.
    #[error(
        "the root of a pager can be neither moved, renamed nor removed, and its only limit is \
         `max`"
    )]
    Root,
    /// Tenants are removed from the bottom up.
    #[error("{path:?} has tenants below it: remove those first")]
    HasChildren {
        /// Its path.
        path: String,
    },
    /// Reclaim has had pages of it for as long as the pager's timeout: it compresses them, or
    /// writes them to the swap file.
    #[error(
        "reclaim compresses pages of the tenant, or writes them to the swap file, whose device may \
         not answer: try again"
    )]
    Busy,
    /// It would be below itself.
    #[error("a tenant cannot be moved below itself")]
    Cycle,
    /// What it uses does not fit under its new ancestors, even after reclaim.
    #[error(
        "{needed_bytes} bytes do not fit under the new parent, where {margin_bytes} are left: \
         raise a `max` there, or free some memory"
    )]
    NoRoom {
        /// Bytes that the tenant uses.
        needed_bytes: u64,
        /// Bytes that the fullest of its new ancestors has left.
        margin_bytes: u64,
    },
    /// The budget of a whole pager has bounds.
    #[error(
        "a pager that was built with {built_bytes} bytes cannot have a budget of {bytes}: at \
         least {min_bytes} are needed, and no more than it was built with"
    )]
    RootBudget {
        /// The requested budget.
        bytes: u64,
        /// What the pager was built with.
        built_bytes: u64,
        /// The smallest possible budget.
        min_bytes: u64,
    },
    /// The bounds of a limit that sets itself make no sense.
    #[error(
        "impossible bounds of a limit that sets itself: at least {least}, at most {most}, target \
         {target}; choose a page or more, no less for the most, and a target between 0.000001 and 1"
    )]
    AutoLimits {
        /// The lower bound.
        least: Size,
        /// The upper bound.
        most: Size,
        /// The share of the time, as text.
        target: String,
    },
    /// The pager was built without [background threads](crate::PagerBuilder::background).
    #[error("a limit that sets itself needs a pager with background threads")]
    NoBackground,
    /// The system starts no thread.
    #[error("the thread that sets limits cannot be started: {kind}")]
    NoThread {
        /// The kernel's error.
        kind: std::io::ErrorKind,
    },
    /// The limits for dirty data make no sense.
    #[error("impossible limits for dirty data: {0}")]
    DirtyLimits(DirtyLimitsError),
    /// The two belong to different pagers.
    #[error("the tenant belongs to another pager")]
    OtherPager,
}

impl TenantError {
    /// The engine's refusal, in bytes and paths. `path` is called where the message needs it.
    pub(super) fn from_group(
        error: GroupError,
        page_shift: u32,
        path: impl FnOnce() -> String,
    ) -> Self {
        match error {
            GroupError::Gone => Self::Gone,
            GroupError::TooMany => Self::TooMany,
            GroupError::TooDeep => Self::TooDeep,
            GroupError::Root => Self::Root,
            GroupError::HasChildren => Self::HasChildren { path: path() },
            GroupError::Busy => Self::Busy,
            GroupError::Cycle => Self::Cycle,
            GroupError::NoRoom { needed, margin } => Self::NoRoom {
                needed_bytes: needed << page_shift,
                margin_bytes: margin << page_shift,
            },
        }
    }

    pub(super) fn from_dirty(error: DirtyLimitsError) -> Self {
        match error {
            DirtyLimitsError::Gone => Self::Gone,
            other => Self::DirtyLimits(other),
        }
    }

    pub(super) fn from_config(error: ConfigError, page_shift: u32, built_bytes: u64) -> Self {
        let (ConfigError::BudgetTooSmall { pages } | ConfigError::BudgetTooLarge { pages, .. }) =
            error;
        Self::RootBudget {
            bytes: pages
                .checked_shl(page_shift)
                .filter(|b| b >> page_shift == pages)
                .unwrap_or(u64::MAX),
            built_bytes,
            min_bytes: lowtide_core::limits::MIN_BUDGET << page_shift,
        }
    }
}
