//! `--record`: the accesses of a real run, as a trace.
//!
//! Recording costs time: two clock readings and a lock for every operation. So it never happens
//! during a round. After the last round, the first lowtide row plays an extra turn through a
//! [`Tap`](tap::Tap), which counts nowhere; all other turns run the same instructions with and
//! without `--record`.
//!
//! ```text
//! player 0 ─ tap ─┐  lock: read the clock   ┌───────┐  a few chunks   ┌───────────────┐
//! player 1 ─ tap ─┼─────────────────────────▶ notes ├─────────────────▶ writer thread ├─▶ FILE
//! player n ─ tap ─┘                         └───────┘                 └───────────────┘
//! ```
//!
//! The clock is read under the lock that orders the notes, so the trace is in order of time without
//! a merge. A slow writer blocks the players at the lock, so memory is bounded. If the writer fails
//! (a full disk), the next note and its operation fail, and the turn ends.
//!
//! | file | concept |
//! |---|---|
//! | `log.rs` | the notes and the writer thread |
//! | `tap.rs` | a wrapper that records accesses |
//! | `turn.rs` | the extra turn |

pub(crate) mod log;
pub(crate) mod tap;
pub(crate) mod turn;

pub(crate) use turn::Recorder;
