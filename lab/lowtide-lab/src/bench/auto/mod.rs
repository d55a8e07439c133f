//! `lowtide-lab bench auto`: a limit that sets itself, and fixed budgets.
//!
//! One thread reads pages of a file at random places, and computes for a moment between two reads.
//! What it reads changes from phase to phase:
//!
//! | load | phases |
//! |---|---|
//! | `phases` | Zipf over a small part of the file, a large one, nothing, the small part again |
//! | `scan` | the whole file in order, again and again: more than any limit |
//! | `loop` | a part in order, a quarter more than the small budget |
//!
//! A fixed budget is a tenant with that `max`, which throttles as the kernel does. The time of each
//! read of a page that is not in memory is waiting, whatever it is for.
//!
//! | file | concept |
//! |---|---|
//! | `load.rs` | what is read, phase by phase |
//! | `play.rs` | a load under a budget, and its timeline |
//! | `run.rs` | budgets, table, JSON |

mod load;
mod play;
mod run;

pub(crate) use run::{ABOUT, AutoArgs, NAME, run};
