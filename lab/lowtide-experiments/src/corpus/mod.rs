//! The corpus: the traces that judge a policy.
//!
//! A policy that is tuned on the traces it is judged by is judged too well. So the corpus has two
//! halves, fixed before any tuning: within each family, traces alternate between *tuning* and
//! *aside*. Experiments look at the first half only; figures that are reported are those of the
//! second.
//!
//! Nothing large is stored. Generators make their traces again from a seed; the recorded ones are
//! page numbers in the compact format, up to 200 KiB each.
//!
//! | file | holds |
//! |---|---|
//! | `table.rs` | [`TRACES`], [`Trace`], [`Half`]: every trace, in one table |
//! | `generate.rs` | [`Model`]: the generators that no ground-truth sequence covers |
//! | `distance.rs` | [`Distances`]: streams made from stack distances |
//! | `judge.rs` | [`judge`], [`Judgement`]: every policy at every budget, against the best |

mod distance;
mod generate;
mod judge;
mod table;

pub use distance::Distances;
pub use generate::Model;
pub use judge::{
    BEST_OF, Case, Comparison, JudgeError, Judgement, Score, Subject, TOLERANCE, UnknownSubject,
    budgets, judge,
};
pub use table::{Half, Source, TRACES, Trace, TraceDamaged, UnknownHalf};
