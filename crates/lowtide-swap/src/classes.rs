//! Sizes of objects: which there are, and how many fit into how many pages.
//!
//! A compressed page is an *object* of a few hundred to a few thousand bytes. Objects of about one
//! size share *blocks* of one to eight pages, back to back, so that an object may begin in one page
//! and end in the next. A block of several pages loses less at its end: of objects of 2,720 bytes a
//! single page holds one and loses 1,376 bytes, two pages hold three and lose 32.
//!
//! Sizes are multiples of [`GRAIN`]. For each, the number of pages is the one that loses least, and
//! sizes of which equally many fit into equally many pages are one class, with the largest of them.
//! For lengths that are equally frequent, rounding up and ends of blocks cost 19 % with blocks of
//! two pages, 8 % with four, 2.6 % with eight and 1.2 % with sixteen; but the longer a block, the
//! more memory a single object keeps until compaction moves it. Eight is the kernel's default, too.
//!
//! The largest size of which several fit is 3,616 bytes (nine in eight pages). A page that
//! compresses to more takes a page of its own in any case, and is kept as it is: see
//! `docs/kernel/fault-and-writeback.md` C5, where the geometry sets the threshold, too.
//!
//! All that is for pages of 4 KiB. Where pages are smaller or larger, sizes are so in proportion.

use crate::source::PAGE_BYTES;

/// Sizes are multiples of this, in bytes.
const GRAIN: usize = 32;
/// Pages of the longest block.
const CHAIN_MAX: usize = 8;
/// Bytes of the largest object that shares a block of pages of 4 KiB: nine of them fit into eight
/// pages.
const SHARED_MAX: usize = CHAIN_MAX * PAGE_BYTES / (CHAIN_MAX + 1) / GRAIN * GRAIN;
/// Sizes below the one of whole pages, before those that are alike are joined.
const SIZES: usize = SHARED_MAX / GRAIN;

/// One class of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Bytes of an object.
    pub(crate) size: usize,
    /// Pages of a block.
    pub(crate) pages: usize,
    /// Objects of a block.
    pub(crate) objects: usize,
}

/// The shape that loses least for objects of a size.
const fn best(size: usize) -> Shape {
    let mut shape = Shape { size, pages: 1, objects: PAGE_BYTES / size };
    let mut pages = 2;
    while pages <= CHAIN_MAX {
        let lost = pages * PAGE_BYTES % size;
        let lost_before = shape.pages * PAGE_BYTES % size;
        // Compared for equally many pages.
        if lost * shape.pages < lost_before * pages {
            shape = Shape { size, pages, objects: pages * PAGE_BYTES / size };
        }
        pages += 1;
    }
    shape
}

const fn is_alike(a: Shape, b: Shape) -> bool {
    a.pages == b.pages && a.objects == b.objects
}

/// How many classes there are, with that of whole pages.
const fn count() -> usize {
    let mut count = 1;
    let mut n = 1;
    while n <= SIZES {
        if n == SIZES || !is_alike(best(n * GRAIN), best((n + 1) * GRAIN)) {
            count += 1;
        }
        n += 1;
    }
    count
}

/// Number of classes. The last has whole pages.
pub(crate) const CLASSES: usize = count();

/// The class of each size, and the shape of each class.
const fn tables() -> ([u8; SIZES + 1], [Shape; CLASSES]) {
    let mut class_of = [0; SIZES + 1];
    let whole = Shape { size: PAGE_BYTES, pages: 1, objects: 1 };
    let mut shapes = [whole; CLASSES];
    let mut class = 0;
    let mut n = 1;
    while n <= SIZES {
        class_of[n] = class as u8;
        shapes[class] = best(n * GRAIN);
        if n == SIZES || !is_alike(best(n * GRAIN), best((n + 1) * GRAIN)) {
            class += 1;
        }
        n += 1;
    }
    (class_of, shapes)
}

const TABLES: ([u8; SIZES + 1], [Shape; CLASSES]) = tables();
static CLASS_OF: [u8; SIZES + 1] = TABLES.0;
static SHAPES: [Shape; CLASSES] = TABLES.1;

/// Bytes of the largest object that shares a block of pages of a size.
pub(crate) const fn shared_max(page_bytes: usize) -> usize {
    SHARED_MAX * page_bytes / PAGE_BYTES
}

/// The class of objects of some bytes. More than [`shared_max`] are a whole page.
pub(crate) fn class_of(bytes: usize, page_bytes: usize) -> usize {
    let grains = (bytes * PAGE_BYTES).div_ceil(page_bytes * GRAIN);
    if bytes > shared_max(page_bytes) { CLASSES - 1 } else { usize::from(CLASS_OF[grains]) }
}

/// The shape of a class.
pub(crate) fn shape(class: usize, page_bytes: usize) -> Shape {
    let shape = SHAPES[class];
    Shape { size: shape.size * page_bytes / PAGE_BYTES, ..shape }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_fits_into_the_smallest_class_that_takes_it() {
        assert_eq!((shared_max(PAGE_BYTES), shared_max(1024)), (3616, 904));
        for page_bytes in [512, 1024, PAGE_BYTES, 65536] {
            for bytes in (1..=page_bytes).step_by(page_bytes / 512) {
                let class = class_of(bytes, page_bytes);
                let size = |class| shape(class, page_bytes).size;
                assert!(size(class) >= bytes, "{bytes} of {page_bytes} bytes");
                assert!(class == 0 || size(class - 1) < bytes, "{bytes} of {page_bytes} bytes");
            }
        }
    }

    #[test]
    fn blocks_lose_less_than_a_sixteenth() {
        for (class, page_bytes) in (0..CLASSES).flat_map(|c| [(c, 512), (c, PAGE_BYTES)]) {
            let Shape { size, pages, objects } = shape(class, page_bytes);
            assert!(pages <= CHAIN_MAX && objects >= 1);
            assert!(size * objects <= pages * page_bytes);
            let lost = pages * page_bytes - size * objects;
            assert!(lost * 16 <= pages * page_bytes, "class {class} loses {lost} bytes");
        }
        assert_eq!(CLASSES, 77);
        let whole = Shape { size: PAGE_BYTES, pages: 1, objects: 1 };
        assert_eq!(shape(CLASSES - 1, PAGE_BYTES), whole);
    }
}
