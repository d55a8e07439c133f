//! Sequential writes in `lowtide bench`: a file several times the budget, written from start to end
//! and made durable.
//!
//! | file | concept |
//! |---|---|
//! | `fill` | one file to be written, the same for all systems: the loop, the clock, the check |
//! | `source` | the bytes to be written |
//! | `systems` | lowtide and its peers as writers |
//! | `run` | rounds, table and JSON of both workloads |
//! | `as_fast`, `dd_oom` | options of `fill`, and of `dd-oom` |

pub(crate) mod as_fast;
pub(crate) mod dd_oom;
mod fill;
mod run;
mod source;
mod systems;

pub(crate) use fill::Fill;
