//! Which frames hold a page that was read ahead and has not been used: two bits a frame.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A page that was read ahead, and whose first use was not seen yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Ahead {
    /// Its first use will be seen.
    Seen = 1,
    /// The same, and it stands for all pages of its part of a window (`map/sample.rs`).
    Sample = 2,
    /// Its first use may come unseen. When it leaves, that says nothing.
    Unseen = 3,
}

/// Which frames were read ahead and not used yet.
#[derive(Debug)]
pub(crate) struct Unused(Box<[AtomicU64]>);

/// The word of a frame, and where its bits are.
const fn place(frame: u32) -> (usize, u32) {
    (frame as usize / 32, frame % 32 * 2)
}

impl Unused {
    pub(crate) fn new(frames: u32) -> Self {
        Self((0..frames.div_ceil(32)).map(|_| AtomicU64::new(0)).collect())
    }

    /// Notes that a frame has a page that was read ahead. It has none yet.
    pub(crate) fn set(&self, frame: u32, ahead: Ahead) {
        let (word, shift) = place(frame);
        self.0[word].fetch_or((ahead as u64) << shift, Relaxed);
    }

    /// Whether a frame has such a page.
    pub(crate) fn is_set(&self, frame: u32) -> bool {
        let (word, shift) = place(frame);
        self.0[word].load(Relaxed) >> shift & 3 != 0
    }

    /// Forgets the page of a frame, and returns it. Cost: one load, unless there was one.
    #[inline]
    pub(crate) fn take(&self, frame: u32) -> Option<Ahead> {
        let (word, shift) = place(frame);
        let word = &self.0[word];
        if word.load(Relaxed) >> shift & 3 == 0 {
            return None;
        }
        match word.fetch_and(!(3 << shift), Relaxed) >> shift & 3 {
            1 => Some(Ahead::Seen),
            2 => Some(Ahead::Sample),
            3 => Some(Ahead::Unseen),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_of_one_frame_and_taken_once() {
        let unused = Unused::new(100);
        let notes = [(0, Ahead::Sample), (31, Ahead::Unseen), (32, Ahead::Seen), (99, Ahead::Seen)];
        for (frame, ahead) in notes {
            assert!(!unused.is_set(frame));
            unused.set(frame, ahead);
        }
        assert_eq!((0..100).filter(|&frame| unused.is_set(frame)).count(), notes.len());
        for (frame, ahead) in notes {
            assert_eq!(unused.take(frame), Some(ahead));
            assert_eq!(unused.take(frame), None);
        }
    }
}
