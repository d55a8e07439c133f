//! `lowtide bench` with tenants: who pays, who is spared, and who gets how much, on real memory.
//!
//! The simulator has workloads of the same names, with the same names in their JSON
//! (`crates/lowtide-sim/src/client/`).
//!
//! | file | concept |
//! |---|---|
//! | `equals` | many tenants of equal demand |
//! | `mix` | a file and a heap in one budget |
//! | `cost` | what a program costs whose answer changes nothing |
//! | `host` | options of all, head and tail of the result |
//! | `device` | the device, second by second |
//! | `crowd` | threads that load pages, and the loads |

pub(crate) mod cost;
pub(crate) mod crowd;
pub(crate) mod device;
pub(crate) mod equals;
pub(crate) mod host;
pub(crate) mod mix;
