//! Which pages, or folios, a range of bytes has as a whole.
//!
//! Of such a page nothing is kept: it is replaced without being read, dropped without being zeroed,
//! or punched out of its file. The last page may be partial. Past the end there is nothing to keep,
//! so a range that reaches the end has all of that page, but only while the end stays where it is:
//! another thread may make the file or region longer and store past the old end, in the same page.
//! That thread sets the length first, and stores when it owns the page. So
//!
//! * [`Parts`] says what is *likely* whole, from one look at the length, and decides nothing;
//! * [`has_all`] decides, for the thread that owns the page, and for as long as it owns it.
//!
//! A cut needs no second look: it has the length for itself ([`Space::growing`]).

use super::Space;
use std::ops::Range;

/// A range of bytes, cut at the pages that lie in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Parts {
    /// Bytes before the first whole page: of one page, or none.
    pub(crate) head: Range<u64>,
    /// The whole pages. The last of them may reach past the end.
    pub(crate) whole: Range<u64>,
    /// Bytes after the last whole page.
    pub(crate) tail: Range<u64>,
}

impl Parts {
    /// Cuts a range of something of `len` bytes into pages of `1 << shift` bytes.
    pub(crate) fn of(bytes: &Range<u64>, len: u64, shift: u32) -> Self {
        let first = bytes.start.div_ceil(1 << shift);
        let to_end = (bytes.end == len).then(|| len.div_ceil(1 << shift));
        let end = to_end.unwrap_or(bytes.end >> shift);
        if first > end {
            // It lies in one page.
            return Self { head: bytes.clone(), whole: first..first, tail: bytes.end..bytes.end };
        }
        let head = bytes.start..(first << shift).min(bytes.end);
        let tail = (end << shift).max(bytes.start).min(bytes.end)..bytes.end;
        Self { head, whole: first..end, tail }
    }
}

/// Whether a range that has a page, or a run of pages, from the first byte to `end` has all of it:
/// nothing lies between `end` and the end of the page. The caller owns the page.
pub(crate) fn has_all(space: &Space, end: u64, page_end: u64) -> bool {
    end >= page_end || end >= space.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_range_are_the_range_and_whole_pages_end_where_pages_do_or_all_ends() {
        for (start, end) in (0..30).flat_map(|start| (start..=30).map(move |end| (start, end))) {
            for len in end..=30 {
                let Parts { head, whole, tail } = Parts::of(&(start..end), len, 3);
                let (from, to) = (whole.start << 3, (whole.end << 3).min(len));
                let mut found: Vec<_> = head.clone().chain(tail.clone()).collect();
                found.extend(from..to.max(from));
                found.sort_unstable();
                assert!(found.into_iter().eq(start..end), "{start}..{end} of {len}");
                assert!(whole.is_empty() || to == end || to.is_multiple_of(8));
                assert!(head.end - head.start < 8 && tail.end - tail.start < 8 || whole.is_empty());
            }
        }
    }
}
