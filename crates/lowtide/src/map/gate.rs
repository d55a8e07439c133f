//! Keeping server threads out of a memory for a moment (`frozen.rs`).

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Time between two looks whether server threads have left.
const LOOK: Duration = Duration::from_micros(20);

const CLOSED: u32 = 1 << 31;

/// Lets server threads into a memory, or keeps them out.
#[derive(Debug, Default)]
pub(super) struct Gate(AtomicU32);

impl Gate {
    /// Goes in, unless it is closed.
    pub(super) fn enter(&self) -> Option<Inside<'_>> {
        let go = |word: u32| (word & CLOSED == 0).then_some(word + 1);
        let gone = self.0.fetch_update(Ordering::Acquire, Ordering::Relaxed, go);
        gone.is_ok().then(|| Inside(self))
    }

    /// Whether a thread waits for those inside to leave.
    pub(super) fn is_closed(&self) -> bool {
        self.0.load(Ordering::Relaxed) & CLOSED != 0
    }

    /// Closes it, and waits until nothing is inside. False if it is closed already.
    pub(super) fn close(&self) -> bool {
        if self.0.fetch_or(CLOSED, Ordering::AcqRel) & CLOSED != 0 {
            return false;
        }
        while self.0.load(Ordering::Acquire) != CLOSED {
            std::thread::sleep(LOOK);
        }
        true
    }

    /// Lets them in again.
    pub(super) fn open(&self) {
        self.0.fetch_and(!CLOSED, Ordering::Release);
    }
}

/// A thread is inside while this lives.
#[derive(Debug)]
pub(super) struct Inside<'a>(&'a Gate);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_lets_threads_in_until_it_is_closed_and_waits_for_those_inside() {
        let gate = Gate::default();
        let inside = gate.enter().expect("open");
        std::thread::scope(|scope| {
            let closing = scope.spawn(|| gate.close());
            while !gate.is_closed() {
                std::thread::yield_now();
            }
            assert!(gate.enter().is_none());
            assert!(!closing.is_finished(), "a thread is inside");
            drop(inside);
            assert!(closing.join().expect("it closes"));
        });
        assert!(!gate.close(), "it is closed");
        gate.open();
        assert!(gate.enter().is_some());
    }
}
