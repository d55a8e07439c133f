//! Which resident pages read-ahead brought in for nothing so far.
//!
//! A page that was read ahead of a request is *used* by the first access to it, and *unused* if it
//! goes before that. The kernel keeps no such bit; it is an instrument.

use lowtide_core::FolioId;

/// Frames that read-ahead has filled and that nothing has used since, a bit a frame.
#[derive(Debug, Default)]
pub struct Unused {
    bits: Vec<u64>,
}

impl Unused {
    /// Notes a frame.
    pub(crate) fn set(&mut self, frame: FolioId) {
        let word = frame.index() / 64;
        if word >= self.bits.len() {
            self.bits.resize(word + 1, 0);
        }
        self.bits[word] |= 1 << (frame.index() % 64);
    }

    /// Forgets a frame. Returns whether it was noted.
    #[inline]
    pub(crate) fn take(&mut self, frame: FolioId) -> bool {
        let (word, bit) = (frame.index() / 64, 1 << (frame.index() % 64));
        match self.bits.get_mut(word) {
            Some(bits) if *bits & bit != 0 => {
                *bits &= !bit;
                true
            }
            _ => false,
        }
    }
}
