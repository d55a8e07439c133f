//! The exact access sequences on which real kernels were measured.
//!
//! | file | holds |
//! |---|---|
//! | `sequence.rs` | [`Sequence`], [`Ops`]: the six generators, draw for draw |
//! | `case.rs` | [`Case`]: a sequence with its memory limits, parsed from one line of parameters |
//! | `public.rs` | [`PUBLIC`]: the cases with published kernel counters, and their fingerprints |

mod case;
mod public;
mod sequence;

pub use case::{ANON, Case, CaseError, FILE, Swap};
pub use public::{PUBLIC, PublicCase};
pub use sequence::{ANON_BIT, Ops, PAGE_MASK, Sequence, WRITE_BIT, op_hash};
