//! Frames whose pages are in the live sample of accesses (`looks.rs`), and what is known of them
//! between two looks.

use lowtide_core::reuse::{Kind, Reuse};
use lowtide_core::{MemcgId, SpaceId};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A bit for each frame.
#[derive(Debug)]
struct Bits(Box<[AtomicU64]>);

impl Bits {
    fn new(frames: u32) -> Self {
        Self((0..frames.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    #[inline]
    fn get(&self, frame: u32) -> bool {
        self.0[frame as usize / 64].load(Relaxed) >> (frame % 64) & 1 != 0
    }

    fn set(&self, frame: u32) {
        self.0[frame as usize / 64].fetch_or(1 << (frame % 64), Relaxed);
    }

    fn take(&self, frame: u32) -> bool {
        self.get(frame) && {
            let bit = 1 << (frame % 64);
            self.0[frame as usize / 64].fetch_and(!bit, Relaxed) & bit != 0
        }
    }
}

/// What is known of frames whose pages are in the sample.
#[derive(Debug)]
pub(crate) struct SampleMarks {
    sampled: Bits,
    touched: Bits,
    /// Young bits that a look has taken from the policy.
    young: Bits,
}

impl SampleMarks {
    pub(crate) fn new(frames: u32) -> Self {
        Self { sampled: Bits::new(frames), touched: Bits::new(frames), young: Bits::new(frames) }
    }

    /// Bytes of memory that the marks take.
    pub(crate) fn bytes(&self) -> usize {
        3 * size_of_val(&*self.sampled.0)
    }

    /// Whether the page of a frame is in the sample.
    #[inline]
    pub(crate) fn has(&self, frame: u32) -> bool {
        self.sampled.get(frame)
    }

    /// Notes an access that sets no young bit. Cost: one load, mostly.
    #[inline]
    pub(crate) fn touch(&self, frame: u32) {
        if self.has(frame) && !self.touched.get(frame) {
            self.touched.set(frame);
        }
    }

    /// Whether a look has taken the young bit of a frame's page, which is given back with that.
    #[inline]
    pub(crate) fn take_young(&self, frame: u32) -> bool {
        self.sampled.get(frame) && self.young.take(frame)
    }

    /// The same, without giving it back.
    #[inline]
    pub(crate) fn is_young(&self, frame: u32) -> bool {
        self.sampled.get(frame) && self.young.get(frame)
    }

    /// A folio is placed in frames. Returns whether its page is in the sample.
    pub(crate) fn place(&self, reuse: &Reuse, new: &Placed) -> bool {
        let sampled = reuse.samples(new.space, new.page);
        for frame in new.frame..new.frame + (1 << new.order) {
            self.begin(frame, sampled);
        }
        sampled
    }

    /// Takes the note of an access that sets no young bit.
    pub(super) fn take_touch(&self, frame: u32) -> bool {
        if !self.sampled.get(frame) {
            // It came in while the rate was another.
            self.begin(frame, true);
        }
        self.touched.take(frame)
    }

    /// Keeps a young bit that was taken from the policy.
    pub(super) fn keep_young(&self, frame: u32) {
        self.young.set(frame);
    }

    /// A frame gets a page.
    fn begin(&self, frame: u32, sampled: bool) {
        for bits in [&self.sampled, &self.touched, &self.young] {
            bits.take(frame);
        }
        if sampled {
            self.sampled.set(frame);
        }
    }
}

/// A folio that comes in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    pub(crate) space: SpaceId,
    /// The first page of a folio of the largest order that the file has.
    pub(crate) page: u64,
    pub(crate) kind: Kind,
    pub(crate) payer: MemcgId,
    pub(crate) frame: u32,
    pub(crate) order: u8,
    /// It is accessed now.
    pub(crate) touched: bool,
    /// It is read.
    pub(crate) missed: bool,
}

impl Placed {
    /// Notes a page of the sample. `parent` has the group above each.
    pub(crate) fn note(
        &self,
        reuse: &mut Reuse,
        now_ns: u64,
        parent: impl Fn(MemcgId) -> Option<MemcgId>,
    ) {
        let Self { kind, payer, missed, .. } = *self;
        let page = (self.space, self.page);
        // Behind a pointer a page that was read ahead may be gone before its first touch is seen.
        // So it counts as accessed now, and that touch does not (`readahead.rs`).
        if !self.touched && !kind.dear {
            reuse.expect(page, kind, payer);
        } else if !reuse.note(page, kind, payer, missed) {
            reuse.end_interval(now_ns, parent);
            let _ = reuse.note(page, kind, payer, missed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_outside_of_the_sample_has_no_marks_and_a_new_page_none_of_the_old_one() {
        let marks = SampleMarks::new(100);
        marks.touch(70);
        assert!(!marks.touched.get(70));
        marks.begin(70, true);
        marks.touch(70);
        marks.young.set(70);
        assert!(marks.is_young(70) && marks.take_young(70) && !marks.take_young(70));
        assert!(marks.touched.take(70) && !marks.touched.take(70));
        marks.young.set(70);
        marks.begin(70, false);
        assert!(!marks.is_young(70) && !marks.sampled.get(70));
    }
}
