//! `lowtide-lab bench` with tenants: throttling, protection and fairness, on real memory.
//!
//! The simulator has workloads of the same names, with the same names in their JSON
//! (`lab/lowtide-experiments/src/client/`).
//!
//! | file | concept |
//! |---|---|
//! | `equals` | many tenants of equal demand |
//! | `mix` | a file and a heap in one budget |
//! | `cost` | the cost of a program whose answer changes nothing |
//! | `host` | common options, head and tail of the result |
//! | `device` | the device, second by second |
//! | `loaders` | threads that load pages, and the loads |

pub(crate) mod cost;
pub(crate) mod device;
pub(crate) mod host;
pub(crate) mod loaders;
