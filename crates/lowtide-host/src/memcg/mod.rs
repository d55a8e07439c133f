//! Memory cgroups: a group of processes with a limit on memory, as the kernel enforces it.
//!
//! lowtide keeps its own budgets and needs no cgroup to do it. It uses one to limit the other side
//! of a comparison to the same size, which is the only fair comparison with the page cache.
//!
//! # Two hierarchies
//!
//! | | version 1 | version 2 |
//! |---|---|---|
//! | mounted as | `cgroup`, option `memory` | `cgroup2` |
//! | limit | `memory.limit_in_bytes` | `memory.max` |
//! | usage | `memory.usage_in_bytes` | `memory.current` |
//! | no swap | `memory.swappiness` = 0 | `memory.swap.max` = 0 |
//! | take everything back | `memory.force_empty` | `memory.reclaim` |
//! | a group with processes may have children | yes | no, except the root |
//!
//! A machine has the `memory` controller in one of them. `/proc/self/mountinfo` shows where, and
//! `/proc/self/cgroup` shows the group of this process. In version 1 the new group becomes a child
//! of that group, so every limit that already binds this process stays in force. In version 2 that
//! is usually impossible (the last row of the table), and the group becomes a child of the nearest
//! ancestor that hands the controller down, or can be made to: a sibling of this process's group,
//! bound by everything above but not by limits of that group itself.
//!
//! # What is charged where
//!
//! A page is charged to the group of the process that first touches it, and stays there. So a
//! process must be moved in *before* it faults the memory that is to be limited, and page cache
//! that others have read before is free for it: drop the cache first (see
//! [`drop_page_cache`](crate::file::drop_page_cache)).

mod error;
mod group;
mod locate;

pub use error::{MemcgError, Obstacle};
pub use group::Memcg;
pub use locate::{Offer, Version, offered, own_limit, own_limit_or_high};
