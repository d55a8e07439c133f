//! A thread's own way to the pages of a view: one at a time, at less cost.
//!
//! A guard finds a vacant hazard slot of its thread, in any order with other guards, and vacates it
//! when it is dropped. A reader has a slot of its own: the next page takes the place of the last
//! one in it. What a hit needs is in the reader itself, and no other thread or guard has a part in
//! it, so the processor overlaps more of the reads around it.

use super::View;
use super::guard::Page;
use super::hits::Alone;
use crate::error::Error;
use lowtide_pin::hazard::KeptSlot;
use lowtide_pin::sampling::Countdown;
use std::fmt;

/// Reads pages of a [`View`] one at a time; made by [`View::page_cursor`]. It does not leave its
/// thread.
///
/// The bytes that [`read`](PageCursor::page) returns are those of the page, and do not change while
/// they are borrowed. **The reader keeps the page that it has read last** until it reads another,
/// is [released](PageCursor::release) or dropped: until then the page is not evicted, and a store
/// of another thread to it waits, as for a guard. So release it before this thread waits for
/// anything else, or stores.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("data");
/// # std::fs::write(&path, vec![7; 3 * 4096])?;
/// # let pager = lowtide::Pager::builder().max(lowtide::Size::mib(8)).build()?;
/// let view = pager.open(&path)?;
/// let mut reader = view.page_cursor();
/// let mut sum = 0;
/// for page in [2, 0, 1, 2] {
///     sum += u64::from(reader.page(page)?[9]);
/// }
/// reader.release();                              // holds nothing now
/// assert_eq!(sum, 28);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct PageCursor<'view> {
    view: &'view View,
    hits: Alone,
    slot: KeptSlot,
    countdown: Countdown,
    /// Holds the page where the slot cannot; the next read is no fast hit then.
    guard: Option<Page<'view>>,
}

impl View {
    /// A reader of this view for this thread: for loops that read one page after the other.
    ///
    /// Cost: a search for a hazard slot; for a thread that has no vacant one, a lock.
    #[must_use]
    pub fn page_cursor(&self) -> PageCursor<'_> {
        PageCursor {
            view: self,
            hits: self.hits().alone(),
            slot: KeptSlot::take(),
            countdown: Countdown::new(),
            guard: None,
        }
    }
}

impl PageCursor<'_> {
    /// The bytes of a page: always a whole base page, as those of [`View::page`]. The access counts
    /// as one through a mapping.
    ///
    /// Cost: for a page that is resident and was used lately, about half of what
    /// [`View::page`] adds to a load. Otherwise as for `View::page`.
    ///
    /// # Errors
    /// As [`View::page`]. On error the cursor holds no page.
    #[inline(always)]
    pub fn page(&mut self, page: u64) -> Result<&[u8], Error> {
        let bytes = match self.hits.find(page, &self.slot) {
            Some(bytes) => {
                if !self.countdown.fast_hit() {
                    self.count();
                }
                bytes
            }
            None => self.read_slow(page)?,
        };
        // SAFETY: the frame is in the arena, which the view keeps alive, and has `page_bytes`
        // bytes, which were initialised before the translation was published. The slot announces
        // its page, and the entry was resident after that, or the guard holds it; so the frame
        // stays this page's, and its bytes what they are, until the slot announces something else
        // and the guard is dropped. All that does so takes the reader exclusively, and the slice
        // borrows it.
        #[expect(unsafe_code, reason = "this is where a frame becomes a slice")]
        Ok(unsafe { std::slice::from_raw_parts(bytes, self.hits.page_bytes()) })
    }

    /// Holds no page any more, until the next read.
    pub fn release(&mut self) {
        self.slot.rest();
        self.guard = None;
    }

    /// The sample of a block of hits stands for all of them.
    #[cold]
    #[inline(never)]
    fn count(&self) {
        if self.countdown.hit() {
            self.view.note_sample();
        }
    }

    /// Brings the page in by a guard, whose place the slot takes.
    #[cold]
    #[inline(never)]
    fn read_slow(&mut self, page: u64) -> Result<*const u8, Error> {
        // A thread that pays for its memory, or waits for room, must hold nothing.
        self.release();
        let guard = self.view.page(page)?;
        let bytes = guard.as_ptr();
        self.hits = self.view.hits().alone();
        if self.view.entry(page).and_then(|entry| entry.keep(&self.slot)).is_none() {
            // A thread has it locked, and waits for this guard, or for another of this thread. It
            // would not wait for the slot.
            self.slot.rest();
            self.guard = Some(guard);
            self.hits = self.hits.without_pages();
        }
        Ok(bytes)
    }
}

impl fmt::Debug for PageCursor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageCursor").field("view", self.view).finish_non_exhaustive()
    }
}
