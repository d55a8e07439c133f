//! What counts as cold, without a clock of time.
//!
//! Each use of a page stamps it with a count of uses. The owner of the store calls
//! [`CompressedStore::age`] now and then (every some seconds, or whenever its engine ages), which
//! draws a line: a page is *cold* if its last use was before the line before the last one, so it
//! was not used for at least one whole interval. A page that was stored just before a line is not
//! cold at the next moment, and in a store that no thread uses all pages become cold.

use crate::lock::lock;
use crate::source::PageSource;
use crate::store::CompressedStore;

/// The last two lines, as stamps; `None` before there was one.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Boundaries {
    last: Option<u32>,
    before: Option<u32>,
}

impl Boundaries {
    fn draw(&mut self, stamp: u32) {
        self.before = self.last.replace(stamp);
    }

    /// Whether a stamp is cold. Stamps wrap around.
    pub(crate) fn is_cold(&self, stamp: u32) -> bool {
        self.before.is_some_and(|line| (line.wrapping_sub(stamp) as i32) > 0)
    }
}

impl<S: PageSource> CompressedStore<S> {
    /// Ends an interval: what was not used during the whole one that ended before is cold from now
    /// on, until it is loaded. [`recompress`](CompressedStore::recompress) takes cold pages only.
    pub fn age(&self) {
        lock(&self.age).draw(self.advance());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_cold_after_a_whole_interval_without_use() {
        let mut lines = Boundaries::default();
        assert!(!lines.is_cold(0));
        lines.draw(10);
        assert!(!lines.is_cold(5), "it was used in the interval that has just ended");
        lines.draw(20);
        assert!(lines.is_cold(9));
        assert!(!lines.is_cold(10) && !lines.is_cold(15) && !lines.is_cold(25));
    }

    #[test]
    fn stamps_may_wrap_around() {
        let mut lines = Boundaries::default();
        lines.draw(3);
        lines.draw(9);
        assert!(lines.is_cold(u32::MAX - 5));
        assert!(!lines.is_cold(4));
    }
}
