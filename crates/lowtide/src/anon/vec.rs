//! A vector that may be larger than its tenant's budget.
//!
//! Elements lie in a region, one after the other. The last ones, up to a page of them, are in a
//! buffer on the heap until it is full: a store into a region costs about as much for one element
//! as for a page of them.

use super::Region;
use crate::error::Error;
use crate::tenant::Tenant;
use crate::view::Flow;
use bytemuck::Pod;
use std::fmt;

/// Bytes that a vector grows by, at least.
const GROWTH: u64 = 1 << 20;
/// Bytes that are buffered, and copied at a time.
const BUFFER: usize = 4096;

/// A vector of plain elements whose memory is charged to a tenant, and may be larger than the
/// tenant's budget.
///
/// Every access may find that there is no room, so it returns a [`Result`]; an element is copied,
/// never referred to. Up to 4 KiB of the last elements are on the heap, in addition to the budget.
///
/// ```
/// use lowtide::{Size, Pager, SwapOptions, TenantVec};
///
/// let swap = SwapOptions::compressed(Size::mib(1));
/// let pager = Pager::builder().max(Size::mib(4)).swap(swap).build()?;
/// let tenant = pager.tenant("sort").max(Size::mib(1)).create()?;
///
/// let mut hundreds = TenantVec::<u64>::new(&tenant)?;
/// for n in 0..500_000 {                                   // 4 MB, which compress well
///     hundreds.push(n / 100)?;
/// }
/// assert_eq!(hundreds.get(12_345)?, Some(123));
/// let mut sum = 0;
/// hundreds.for_each_chunk(|chunk| sum += chunk.iter().sum::<u64>())?;
/// assert_eq!(sum, 100 * (0..5000).sum::<u64>());
/// assert!(tenant.usage()? <= 1 << 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TenantVec<T> {
    region: Region,
    /// Elements in the region.
    stored: u64,
    /// Those behind them.
    tail: Vec<T>,
}

impl<T> fmt::Debug for TenantVec<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TenantVec").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl<T> TenantVec<T> {
    /// Elements of the vector.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.stored + self.tail.len() as u64
    }

    /// Whether there is no element.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The region that the elements are in.
    #[must_use]
    pub const fn region(&self) -> &Region {
        &self.region
    }
}

impl<T: Pod> TenantVec<T> {
    /// Elements of the buffer. Elements without bytes do not compile: they need no memory.
    const BUFFERED: usize = BUFFER.div_ceil(size_of::<T>());

    /// An empty vector.
    ///
    /// # Errors
    /// As [`RegionOptions::create`](crate::RegionOptions::create).
    pub fn new(tenant: &Tenant) -> Result<Self, Error> {
        Ok(Self { region: tenant.region(0)?, stored: 0, tail: Vec::new() })
    }

    /// Appends an element.
    ///
    /// # Errors
    /// As [`Region::write_at`] and [`Region::grow`]; the element is not added.
    pub fn push(&mut self, value: T) -> Result<(), Error> {
        if self.tail.len() >= Self::BUFFERED {
            self.store_tail()?;
        }
        self.tail.push(value);
        Ok(())
    }

    /// Appends elements.
    ///
    /// # Errors
    /// As [`push`](TenantVec::push), for the first element that could not be appended; those before
    /// it are there.
    pub fn extend_from_slice(&mut self, values: &[T]) -> Result<(), Error> {
        for part in values.chunks(Self::BUFFERED) {
            if self.tail.len() + part.len() > Self::BUFFERED {
                self.store_tail()?;
            }
            self.tail.extend_from_slice(part);
        }
        Ok(())
    }

    /// Moves the buffered elements into the region.
    fn store_tail(&mut self) -> Result<(), Error> {
        let needed = self.len() * size_of::<T>() as u64;
        let has = self.region.len();
        if needed > has {
            self.region.grow((needed - has).max(GROWTH).max(has / 2))?;
        }
        self.region.store_slice(self.stored, &self.tail)?;
        self.stored += self.tail.len() as u64;
        self.tail.clear();
        Ok(())
    }

    /// Takes the last element out.
    ///
    /// # Errors
    /// As [`Region::read_at`].
    pub fn pop(&mut self) -> Result<Option<T>, Error> {
        if let Some(value) = self.tail.pop() {
            return Ok(Some(value));
        }
        let Some(last) = self.stored.checked_sub(1) else { return Ok(None) };
        let value = self.region.load(last)?;
        self.stored = last;
        Ok(Some(value))
    }

    /// Copies an element; `None` past the last.
    ///
    /// # Errors
    /// As [`Region::read_at`].
    pub fn get(&self, index: u64) -> Result<Option<T>, Error> {
        match index.checked_sub(self.stored) {
            None => self.region.load(index).map(Some),
            Some(at) => Ok(self.tail.get(at as usize).copied()),
        }
    }

    /// Replaces an element.
    ///
    /// # Errors
    /// As [`Region::write_at`]; the element is unchanged.
    ///
    /// # Panics
    /// An index past the last element.
    #[track_caller]
    pub fn set(&mut self, index: u64, value: T) -> Result<(), Error> {
        let len = self.len();
        assert!(index < len, "element {index} of a vector of {len}");
        match index.checked_sub(self.stored) {
            None => self.region.store(index, value),
            Some(at) => {
                self.tail[at as usize] = value;
                Ok(())
            }
        }
    }

    /// Shortens the vector to `len` elements, if it has more, and gives up the pages behind.
    ///
    /// # Errors
    /// As [`Region::clear`]; the vector is shorter all the same.
    pub fn truncate(&mut self, len: u64) -> Result<(), Error> {
        if len >= self.stored {
            self.tail.truncate((len - self.stored) as usize);
            return Ok(());
        }
        self.tail.clear();
        self.stored = len;
        self.region.clear(len * size_of::<T>() as u64..self.region.len())
    }

    /// Calls `each` with all elements in order, up to a page of them at a time. They are copied
    /// before, so that `each` may use other regions. It may end the call early, as in
    /// [`get_many`](crate::View::get_many).
    ///
    /// # Errors
    /// As [`Region::read_at`].
    pub fn for_each_chunk<F: Flow>(&self, mut each: impl FnMut(&[T]) -> F) -> Result<(), Error> {
        let mut buffer = vec![T::zeroed(); Self::BUFFERED];
        let mut at = 0;
        while at < self.stored {
            let count = (self.stored - at).min(buffer.len() as u64) as usize;
            self.region.load_slice(at, &mut buffer[..count])?;
            if each(&buffer[..count]).is_break() {
                return Ok(());
            }
            at += count as u64;
        }
        if !self.tail.is_empty() {
            each(&self.tail);
        }
        Ok(())
    }
}
