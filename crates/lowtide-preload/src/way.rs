//! What keeps adopted mappings within a budget: a *way*, as the keeper uses it.

use crate::judge::Kind;
use serde::Serialize;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

/// A mapping that is handed over.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    /// The keeper's own descriptor of the file.
    pub(crate) file: Rc<OwnedFd>,
    /// Addresses, whole pages.
    pub(crate) range: Range<usize>,
    /// Where in the file the first page is.
    pub(crate) offset: u64,
    /// How it is used.
    #[allow(dead_code, reason = "the one way that there is treats both alike")]
    pub(crate) kind: Kind,
}

/// What a budget did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Figures {
    /// The budget.
    pub(crate) max_bytes: u64,
    /// Pages of the mapped parts of files that are in memory now, in bytes.
    pub(crate) resident_bytes: u64,
    /// The most that was seen.
    pub(crate) peak_bytes: u64,
    /// Pages that were dropped to keep the budget.
    pub(crate) dropped_pages: u64,
    /// Times that the keeper looked.
    pub(crate) rounds: u64,
}

/// Keeps mappings within one budget. All calls come from the keeper's thread.
pub(crate) trait Way {
    /// Takes a mapping, and returns its number here.
    fn adopt(&mut self, subject: &Subject) -> Result<u64, String>;

    /// Leaves a part of a mapping alone from now on.
    fn forget(&mut self, number: u64, range: &Range<usize>);

    /// Does what is to be done now; the time until the next call.
    fn tick(&mut self) -> Duration;

    /// What it did so far.
    fn figures(&mut self) -> Figures;
}
