//! Which frames hold a page that was read ahead and has not been used: one bit a frame.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Which frames were read ahead and not used yet.
#[derive(Debug)]
pub(crate) struct Unused(Box<[AtomicU64]>);

impl Unused {
    pub(crate) fn new(frames: u32) -> Self {
        Self((0..frames.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    pub(crate) fn set(&self, frame: u32) {
        self.0[frame as usize / 64].fetch_or(1 << (frame % 64), Relaxed);
    }

    /// Whether the bit of a frame is set.
    pub(crate) fn is_set(&self, frame: u32) -> bool {
        self.0[frame as usize / 64].load(Relaxed) & 1 << (frame % 64) != 0
    }

    /// Clears the bit of a frame, and returns whether it was set. Cost: one load, unless it was.
    #[inline]
    pub(crate) fn take(&self, frame: u32) -> bool {
        let (word, bit) = (&self.0[frame as usize / 64], 1 << (frame % 64));
        word.load(Relaxed) & bit != 0 && word.fetch_and(!bit, Relaxed) & bit != 0
    }
}
