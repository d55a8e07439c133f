//! Elements of plain types instead of bytes.
//!
//! An element must lie within one page, so its size divides that of a page or it is reached by
//! copying. Which types may be read from any bytes, and written as bytes, is what
//! [`bytemuck::Pod`] says.

use super::{PageMut, Region};
use crate::error::Error;
use crate::view::guard::Page;
use bytemuck::Pod;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};

/// Neighbouring elements within one page, held by a guard: a [`Page`] or a [`PageMut`].
#[must_use = "the page is held only while the guard lives"]
pub struct Elements<G, T> {
    page: G,
    bytes: Range<usize>,
    of: PhantomData<T>,
}

impl<G: Deref<Target = [u8]>, T: Pod> Deref for Elements<G, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        bytemuck::cast_slice(&self.page[self.bytes.clone()])
    }
}

impl<G: DerefMut<Target = [u8]>, T: Pod> DerefMut for Elements<G, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(&mut self.page[self.bytes.clone()])
    }
}

impl<G: Deref<Target = [u8]>, T: Pod + fmt::Debug> fmt::Debug for Elements<G, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Region {
    /// The region as elements of a type: those from `index` on that are in the same page. Pins the
    /// page for reading.
    ///
    /// ```
    /// # use lowtide::{Size, Pager, SwapOptions};
    /// # let swap = SwapOptions::compressed(Size::mib(1));
    /// # let pager = Pager::builder().max(Size::mib(4)).swap(swap).build()?;
    /// let heap = pager.root().region(1 << 20)?;
    /// heap.elements_mut::<u64>(1000)?[0] = 7;
    /// assert_eq!(heap.elements::<u64>(1000)?.len(), 24);          // 1000..1024, the page's last
    /// assert_eq!(heap.load::<u64>(1000)?, 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`page`](Region::page).
    ///
    /// # Panics
    /// When the size of `T` does not divide that of a page.
    pub fn elements<T: Pod>(&self, index: u64) -> Result<Elements<Page<'_>, T>, Error> {
        let (page, bytes) = self.place::<T>(index)?;
        Ok(Elements { page: self.page(page)?, bytes, of: PhantomData })
    }

    /// The same for storing: the page is this thread's while the guard lives.
    ///
    /// # Errors
    /// As [`page_mut`](Region::page_mut).
    ///
    /// # Panics
    /// As [`elements`](Region::elements).
    pub fn elements_mut<T: Pod>(&self, index: u64) -> Result<Elements<PageMut<'_>, T>, Error> {
        let (page, bytes) = self.place::<T>(index)?;
        Ok(Elements { page: self.page_mut(page)?, bytes, of: PhantomData })
    }

    /// Copies one element, of any size, out of the region.
    ///
    /// # Errors
    /// As [`read_at`](Region::read_at).
    pub fn load<T: Pod>(&self, index: u64) -> Result<T, Error> {
        let mut value = T::zeroed();
        self.read_at(offset_of::<T>(index), bytemuck::bytes_of_mut(&mut value))?;
        Ok(value)
    }

    /// Copies one element, of any size, into the region.
    ///
    /// # Errors
    /// As [`write_at`](Region::write_at).
    pub fn store<T: Pod>(&self, index: u64, value: T) -> Result<(), Error> {
        self.write_at(offset_of::<T>(index), bytemuck::bytes_of(&value))
    }

    /// Copies elements out of the region, beginning with one.
    ///
    /// # Errors
    /// As [`read_at`](Region::read_at).
    pub(crate) fn load_slice<T: Pod>(&self, index: u64, to: &mut [T]) -> Result<(), Error> {
        self.read_at(offset_of::<T>(index), bytemuck::cast_slice_mut(to))
    }

    /// Copies elements into the region, beginning with one.
    ///
    /// # Errors
    /// As [`write_at`](Region::write_at).
    pub(crate) fn store_slice<T: Pod>(&self, index: u64, from: &[T]) -> Result<(), Error> {
        self.write_at(offset_of::<T>(index), bytemuck::cast_slice(from))
    }

    /// The page of an element, and the bytes of it and its successors in that page.
    fn place<T: Pod>(&self, index: u64) -> Result<(u64, Range<usize>), Error> {
        let (size, page_bytes) = (size_of::<T>(), self.page_size());
        assert!(
            size > 0 && page_bytes.is_multiple_of(size) && align_of::<T>() <= page_bytes,
            "elements of {size} bytes do not lie within pages of {page_bytes}: copy them"
        );
        let offset = offset_of::<T>(index);
        super::access::check_range(&self.space, offset, size as u64)?;
        let page = offset / page_bytes as u64;
        let start = (offset % page_bytes as u64) as usize;
        let page_end = (page + 1) * page_bytes as u64;
        let behind = page_end.saturating_sub(self.len()) as usize;
        let end = page_bytes - behind.next_multiple_of(size);
        Ok((page, start..end))
    }
}

/// Where an element begins; far behind any region if that is no number.
const fn offset_of<T>(index: u64) -> u64 {
    index.saturating_mul(size_of::<T>() as u64)
}
