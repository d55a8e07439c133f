//! Work whose result serves all threads that requested it before it began.
//!
//! A store that meets a resident page has to know what all readers do, which takes a barrier that
//! interrupts every processor of the process, and which the kernel gives to one thread of the
//! machine at a time. Where many threads store at once, one barrier can serve all that arrived
//! before it began, as one sync of a disk serves all threads that wrote before it. So the work is
//! done in *rounds*:
//!
//! ```text
//!   round k   ├──────────────┤
//!   A joins     ├─ waits ─────┼── runs round k + 1 ──┤
//!   B joins           ├─ waits ┼── waits ─────────────┤ takes the result of round k + 1
//! ```
//!
//! A thread that joins while a round runs cannot use it, because it began too early. It waits for
//! the next one, which one of the waiters runs for all. A thread that finds no round running runs
//! one at once. So no thread waits for longer than one round that is not its own.

use crate::sync::{GlobalCondvar, GlobalMutex};
use std::sync::{Arc, PoisonError};

/// See the module documentation.
pub struct Rounds<T> {
    turn: GlobalMutex<Turn<T>>,
    over: GlobalCondvar,
}

struct Turn<T> {
    /// Rounds that have begun.
    begun: u64,
    /// The last of them has not ended.
    running: bool,
    waiting: u32,
    /// The last round that ended, and its result.
    ended: Option<(u64, Arc<T>)>,
}

impl<T> Default for Rounds<T> {
    fn default() -> Self {
        let turn = Turn { begun: 0, running: false, waiting: 0, ended: None };
        Self { turn: GlobalMutex::new(turn), over: GlobalCondvar::new() }
    }
}

impl<T> Rounds<T> {
    /// The result of a round that began after this call did: `run`'s, or another caller's. `run`
    /// must not panic.
    ///
    /// Cost: without others two locks and `run`.
    pub fn join(&self, run: impl FnOnce() -> T) -> Arc<T> {
        let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mine = turn.begun + 1;
        while turn.running {
            turn.waiting += 1;
            turn = self.over.wait(turn).unwrap_or_else(PoisonError::into_inner);
            turn.waiting -= 1;
            if let Some((number, result)) = &turn.ended
                && *number >= mine
            {
                return Arc::clone(result);
            }
        }
        turn.running = true;
        turn.begun += 1;
        let number = turn.begun;
        drop(turn);
        let result = Arc::new(run());
        let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        turn.running = false;
        turn.ended = Some((number, Arc::clone(&result)));
        if turn.waiting > 0 {
            self.over.notify_all();
        }
        result
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

    #[test]
    fn those_who_ask_while_a_round_runs_share_the_next_one() {
        const THREADS: u64 = 8;
        let (rounds, runs, joined) = (Rounds::default(), AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let first = rounds.join(|| {
                for _ in 0..THREADS {
                    scope.spawn(|| {
                        joined.fetch_add(1, SeqCst);
                        let seen = rounds.join(|| runs.fetch_add(1, SeqCst) + 1);
                        assert!(*seen > 0, "the round that was running began too early");
                    });
                }
                // All are waiting before the first round ends.
                while joined.load(SeqCst) < THREADS
                    || rounds.turn.lock().unwrap().waiting < THREADS as u32
                {
                    std::thread::yield_now();
                }
                0
            });
            assert_eq!(*first, 0);
        });
        assert_eq!(runs.load(SeqCst), 1, "one round served all of them");
    }
}
