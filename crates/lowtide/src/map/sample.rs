//! What is seen of windows that are read ahead behind a pointer.
//!
//! A page that comes in is in the page table, as if it had been touched. To see its first touch it
//! is taken out of the table again (*zapped*), and the touch takes a fault of the kernel's. Of a
//! page that is read in order both together cost as much as bringing it in did, and say only what
//! was foreseen. So of a long window one chunk in [`PART`] is zapped, and stands for the others:
//! how many of its pages are evicted unused says how much of the window was of use. The first look
//! at one of the others, which are *fresh*, zaps it, and from then on it is as any page.
//!
//! ```text
//!   window  |####............................####............................|
//!            zapped: their first touches are seen        present: they are not
//! ```

use super::pages::Arrival;
use crate::ahead::marks::Ahead;
use std::ops::Range;

/// Pages that are zapped together.
const CHUNK: u64 = 16;
/// Of this number of chunks one is zapped.
const PART: u64 = 8;
/// Pages of a window of which a part is enough.
const LONG: usize = 32;

impl Arrival {
    /// How pages come in that no thread waits for: `pages` of them together.
    pub(crate) const fn ahead(pages: usize) -> Self {
        if pages < LONG { Self::Ahead } else { Self::Window }
    }

    /// What a page that came in so says of the use of read-ahead.
    pub(crate) const fn says(self, page: u64) -> Ahead {
        match self {
            Self::Window if is_sample(page) => Ahead::Sample,
            Self::Window => Ahead::Unseen,
            Self::Ahead | Self::Touched => Ahead::Seen,
        }
    }
}

impl Ahead {
    /// Pages that are taken for wasted when this one is evicted before its use was seen.
    pub(crate) const fn wasted(self) -> u64 {
        match self {
            Self::Seen => 1,
            Self::Sample => PART,
            Self::Unseen => 0,
        }
    }
}

const fn is_sample(page: u64) -> bool {
    (page / CHUNK).is_multiple_of(PART)
}

/// The parts of a window whose first touches are seen.
pub(super) fn samples(window: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let chunks = window.start / CHUNK..window.end.div_ceil(CHUNK);
    let own =
        move |chunk: u64| window.start.max(chunk * CHUNK)..window.end.min((chunk + 1) * CHUNK);
    chunks.filter(|chunk| chunk % PART == 0).map(own)
}

/// The parts of a window whose first touches are not seen.
pub(super) fn others(window: Range<u64>) -> impl Iterator<Item = u64> {
    window.filter(|&page| !is_sample(page))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_page_of_a_window_is_a_sample_or_is_not_and_one_in_eight_is() {
        for window in [0..1024, 7..777, 130..140, 5..20] {
            let sampled: Vec<u64> = samples(window.clone()).flatten().collect();
            let mut all: Vec<u64> = others(window.clone()).chain(sampled.iter().copied()).collect();
            all.sort_unstable();
            assert_eq!(all, window.clone().collect::<Vec<_>>());
            let is_sample = |page: &u64| Arrival::Window.says(*page) == Ahead::Sample;
            assert!(sampled.iter().all(is_sample) && !others(window).any(|page| is_sample(&page)));
        }
        assert_eq!(samples(0..1024).flatten().count(), 128);
        assert_eq!(samples(7..140).collect::<Vec<_>>(), [7..16, 128..140]);
    }

    #[test]
    fn what_is_read_a_few_pages_at_a_time_is_seen_whole() {
        assert_eq!(Arrival::ahead(31), Arrival::Ahead);
        assert_eq!(Arrival::ahead(32), Arrival::Window);
        assert_eq!(Arrival::Ahead.says(17).wasted(), 1);
        let wasted: u64 = (0..128).map(|page| Arrival::Window.says(page).wasted()).sum();
        assert_eq!(wasted, 128, "all of it, if none is used");
    }
}
