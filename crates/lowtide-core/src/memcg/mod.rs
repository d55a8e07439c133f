//! Memory control groups: which group is charged, what its budget is, and which groups are
//! protected.
//!
//! Groups form a tree. A page is charged to one group and, through it, to all of its ancestors; a
//! limit at any of them holds. The root is the pool itself: its counter is exact to the page at
//! every instant. Below it a charge takes a *batch* of 64 pages and keeps the rest in a stock for
//! the next ones, as the kernel does, so that most charges touch the root only.
//!
//! | file | concept | section of `docs/kernel/memcg.md` |
//! |---|---|---|
//! | `group.rs` | one group: counters, lists, statistics | - |
//! | `counter.rs` | usage, limits, watermarks, and the protection that children claim | §1 |
//! | `tree.rs` | parents, children, places and names | - |
//! | `control.rs` | creating, moving and removing groups; setting limits | §3, 4 |
//! | `stock.rs` | charges taken in advance | §2.1 |
//! | `protection.rs` | effective `min` and `low` | §5 |
//! | `lru.rs` | the order of groups when a machine is reclaimed | `kernel/reclaim.md` §2.11 |
//! | `reparent.rs` | what a removed group leaves to its parent | §3 |
//! | `queries.rs` | queries about a group and the groups below it | §6.2, 11-13 |
//! | `cursor.rs` | the order of groups in a subtree | §10.1, `kernel/reclaim.md` §3.6 |
//!
//! Charging itself is in `charge.rs`; what happens above `high` in `high/`.

mod control;
mod counter;
mod cursor;
mod group;
mod lru;
mod protection;
mod queries;
mod reparent;
mod stock;
mod tree;

pub use control::{GroupError, Limits};
pub(crate) use counter::{Counter, UNLIMITED};
pub(crate) use cursor::Cursor;
pub(crate) use group::Memcg;
pub(crate) use lru::{MemcgLru, Requeue, Round};
pub(crate) use protection::Protection;
pub(crate) use stock::{CHARGE_BATCH, Stocks};
pub(crate) use tree::MemcgTree;
