//! The place of a record: pages and offsets for 1 KiB records on pages of any size.
//!
//! Record `key` starts at byte `key * 1024` of its file, without gaps or headers. Page sizes are
//! powers of two, so a page of 1 KiB or more holds whole records, and a page of 512 bytes holds
//! half of one: there, and only there, a record spans two pages and must be put together before it
//! is verified.

use lowtide_workload::record::RECORD_BYTES;
use thiserror::Error;

/// The smallest page: the logical block of most devices.
pub const PAGE_BYTES_MIN: usize = 512;

/// Why records cannot be laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// The page size is not usable.
    #[error(
        "page size {page_bytes} is not a power of two of at least {PAGE_BYTES_MIN} bytes; use 4096"
    )]
    PageBytes {
        /// The requested page size, in bytes.
        page_bytes: usize,
    },
}

/// Where one record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordPlace {
    /// The first page.
    pub page: u64,
    /// How many pages it spans: 1, or 2 on pages of 512 bytes.
    pub pages: u32,
    /// The offset of its first byte in the first page.
    pub offset: usize,
}

/// The arrangement of records on pages of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordLayout {
    page_bytes: usize,
}

impl RecordLayout {
    /// The layout for pages of `page_bytes`.
    ///
    /// # Errors
    /// [`LayoutError::PageBytes`] unless `page_bytes` is a power of two of at least 512.
    pub const fn new(page_bytes: usize) -> Result<Self, LayoutError> {
        if page_bytes.is_power_of_two() && page_bytes >= PAGE_BYTES_MIN {
            Ok(Self { page_bytes })
        } else {
            Err(LayoutError::PageBytes { page_bytes })
        }
    }

    /// The page size in bytes.
    #[must_use]
    pub const fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Where record `key` is. Page numbers saturate at `u64::MAX`, far beyond any file.
    #[inline]
    #[must_use]
    pub const fn place(&self, key: u64) -> RecordPlace {
        if self.page_bytes >= RECORD_BYTES {
            let shift = (self.page_bytes / RECORD_BYTES).trailing_zeros();
            let in_page = (key & ((1 << shift) - 1)) as usize;
            RecordPlace { page: key >> shift, pages: 1, offset: in_page * RECORD_BYTES }
        } else {
            let pages = (RECORD_BYTES / self.page_bytes) as u32;
            RecordPlace { page: key.saturating_mul(pages as u64), pages, offset: 0 }
        }
    }

    /// How many pages hold `records` records, the last one filled up.
    #[must_use]
    pub const fn pages_for(&self, records: u64) -> u64 {
        if self.page_bytes >= RECORD_BYTES {
            records.div_ceil((self.page_bytes / RECORD_BYTES) as u64)
        } else {
            records.saturating_mul((RECORD_BYTES / self.page_bytes) as u64)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_powers_of_two_from_512_are_pages() {
        for page_bytes in [0, 1, 256, 511, 513, 1000, 4095, 12_288] {
            assert_eq!(RecordLayout::new(page_bytes), Err(LayoutError::PageBytes { page_bytes }));
        }
    }

    proptest! {
        #[test]
        fn records_are_dense_and_straddle_only_half_kib_pages(
            exponent in 9_u32..=21,
            key in 0_u64..1 << 40,
        ) {
            let page_bytes = 1_usize << exponent;
            let layout = RecordLayout::new(page_bytes).unwrap();
            let place = layout.place(key);
            let start = place.page * page_bytes as u64 + place.offset as u64;
            prop_assert_eq!(start, key * RECORD_BYTES as u64);
            prop_assert!(place.offset + RECORD_BYTES <= place.pages as usize * page_bytes);
            prop_assert_eq!(place.pages, if page_bytes == 512 { 2 } else { 1 });
            // The file of `key + 1` records ends with the page that holds the last of them.
            prop_assert_eq!(layout.pages_for(key + 1), place.page + u64::from(place.pages));
        }
    }
}
