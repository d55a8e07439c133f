//! What a program calls.

use super::error::WarmError;
use super::known::{Known, WarmStat};
use super::save::save;
use crate::pager::{Inner, Pager};
use lowtide_sys::tell;
use std::path::Path;
use std::sync::PoisonError;
use std::time::Duration;

impl Pager {
    /// Saves which pages are in memory, in the place of a list that is there: as a whole, or not at
    /// all. A pager with [`PagerBuilder::warm`](crate::PagerBuilder::warm) does so when it ends; a
    /// program that may be killed calls this from time to time.
    ///
    /// Cost: a look at each page in memory, a few nanoseconds, and a file of two or three bytes for
    /// a page that lies alone. Other threads may use the pager.
    ///
    /// # Errors
    /// [`WarmError::Write`] has the kernel's error; no page is affected.
    pub fn save_warm(&self, path: impl AsRef<Path>) -> Result<(), WarmError> {
        save(&self.inner.pool, path.as_ref())
    }

    /// How far the warm restart has come.
    #[must_use]
    pub fn warm_stat(&self) -> WarmStat {
        let known = lowtide_pin::sync::lock(&self.inner.pool.warm.known);
        WarmStat { is_ready: known.reading.is_empty(), ..known.stat.clone() }
    }

    /// Waits until the pages of all files that were opened so far are read, as far as there is
    /// room, but not for longer than this. Returns whether they are.
    pub fn wait_warm(&self, timeout: Duration) -> bool {
        let warm = &self.inner.pool.warm;
        let known = lowtide_pin::sync::lock(&warm.known);
        let waits = |known: &mut Known| !known.reading.is_empty() && !known.closing;
        let waited = warm.changed.wait_timeout_while(known, timeout, waits);
        waited.unwrap_or_else(PoisonError::into_inner).0.reading.is_empty()
    }
}

impl Drop for Inner {
    /// The last handle is gone: what was in memory is saved, if that is wanted.
    fn drop(&mut self) {
        let warm = &self.pool.warm;
        let Some(path) = warm.path.clone() else { return };
        if warm.process == std::process::id()
            && let Err(error) = save(&self.pool, &path)
        {
            tell!(warn, %error, "the next start will be cold");
        }
    }
}
