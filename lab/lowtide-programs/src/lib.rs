//! Programs drawn at random, played with and without `lowtide run`: they must say the same.
//!
//! `lowtide run` promises that a program does under it what it does alone. A *plan* is a program of
//! some dozen operations: mappings, allocations, reads, children, threads, signals, limits, ways to
//! end. A *player*, a small program in C that knows nothing of lowtide (`player/`), plays it: alone
//! once, and then in each mode. It knows what every byte of its memory must be. What it says, how
//! it ends and what files it leaves must be equal, and a play that does not end is a difference.
//!
//! A plan that differs is made smaller as long as it differs, and printed with the command that
//! plays it again.
//!
//! | file | concept |
//! |---|---|
//! | [`catalogue`] | the operations, and what their arguments may be |
//! | [`plan`] | a program as data, and as a line of text |
//! | [`draw`] | a plan from a seed |
//! | [`mode`] | the modes in which `lowtide run` keeps a program |
//! | [`known`] | what is known to differ, and is not played |
//! | [`stage`] | the player, its file, and the command under test |
//! | [`play`] | one process that plays a plan: what came of it |
//! | [`difference`] | what must be equal |
//! | [`shrink`] | a smaller plan that differs as well |
//! | [`campaign`] | many plans, several at a time |
//! | `examples/` | programs with a purpose each, for the tests of `lowtide run` |
//!
//! ```text
//! cargo run --release -p lowtide-programs -- --programs 100000 --seed 1
//! cargo run --release -p lowtide-programs -- --mode userfault --plan 'max=1M threshold=64K: ...'
//! ```

#![forbid(unsafe_code)]

pub mod campaign;
pub mod catalogue;
pub mod difference;
pub mod draw;
pub mod known;
pub mod mode;
pub mod plan;
pub mod play;
pub mod shrink;
pub mod stage;
