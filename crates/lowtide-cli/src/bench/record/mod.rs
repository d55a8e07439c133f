//! `--record`: what the threads of a real run did, as a trace.
//!
//! Recording costs time: two clock readings and a lock for every operation. So it never happens
//! during a round. The first lowtide row plays one more turn after the last round, through doors
//! with a [`Tap`](tap::Tap), and that turn counts nowhere; all others run the same instructions
//! with and without `--record`.
//!
//! ```text
//! player 0 ─ tap ─┐  lock: read the clock   ┌───────┐  a few chunks   ┌───────────────┐
//! player 1 ─ tap ─┼─────────────────────────▶ notes ├─────────────────▶ writer thread ├─▶ FILE
//! player n ─ tap ─┘                         └───────┘                 └───────────────┘
//! ```
//!
//! The time is read under the same lock that puts the note in its place, so the order of the trace
//! is the order of time, without any merging. A writer that is slower than the players stops them
//! at the lock; memory is bounded. The writer may fail (a full disk): then the next note fails, its
//! operation with it, and the turn ends.
//!
//! | file | concept |
//! |---|---|
//! | `log.rs` | the notes and the writer thread |
//! | `tap.rs` | a access that notes what goes through it |
//! | `turn.rs` | the extra turn |

mod log;
mod tap;
mod turn;

pub(crate) use turn::Recorder;
