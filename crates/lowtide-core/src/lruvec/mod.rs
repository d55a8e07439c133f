//! A lruvec: the lists of one memory control group, and the code that decides about their order.
//!
//! [`Lruvec`] is the data. [`Locked`] is a lruvec whose lock is held, together with the things that
//! every list operation needs (folio table, counters, policy); the algorithms of this folder are
//! methods of it, one file for each concept:
//!
//! | file | concept | section |
//! |---|---|---|
//! | `generation.rs` | where a folio enters, how generations open and close | §2.1-2.5, 2.7 |
//! | `access.rs` | what an access does to a folio | §1.2, 1.3, 2.6 |
//! | `aging.rs`, `walk.rs` | the walk that makes a new generation | §2.5 |
//! | `bloom.rs` | which tables of translations are worth walking | §2.5 |
//! | `scan.rs` | scanning, sorting, isolating | §2.8 |
//! | `tier.rs` | refault feedback: which type, which tiers | §2.9 |
//! | `swappiness.rs` | which types may be evicted (free swap: `swap.rs`) | §2.2 |
//! | `classical.rs`, `cost.rs` | the active and inactive lists and their balance | §5 |
//! | `tide.rs`, `tide_hand.rs` | the queues of `tide`, and how pages change places | - |
//! | `levels.rs` | clocks and sizes that include the groups below | §5.2, 5.6 |
//! | `workingset.rs` | shadow entries and refaults | §6 |
//! | `locked.rs` | a lruvec, and a lruvec under its lock | - |

mod access;
mod aging;
mod bloom;
mod classical;
mod cost;
mod generation;
mod levels;
mod locked;
mod scan;
mod swappiness;
mod tide;
mod tide_hand;
mod tier;
mod walk;
mod workingset;

pub use access::{Facts, FolioState, References, Window};
pub(crate) use aging::AgeEnd;
pub use aging::AgeJob;
pub use workingset::Shadow;
pub(crate) use workingset::{EvictionClock, Sighting};

pub(crate) use classical::ClassicalLists;
pub(crate) use cost::{Balance, CostModel, Preparation, scan_targets};
pub(crate) use generation::{Generations, slot, waits_for_write};
pub(crate) use levels::{Levels, Published};
pub(crate) use locked::{Locked, Lruvec, NodeFlags};
pub(crate) use scan::Scan;
pub(crate) use tide::{Queue, TideLists};
pub(crate) use tide_hand::{Hand, Quota};
pub(crate) use tier::TierControl;
pub(crate) use walk::WalkState;
