//! Which clean pages of files stay in memory compressed when they are evicted, and how many.
//!
//! All of it that needs no page: a driver has the pages, compresses them, and measures what that
//! costs. The runtime and the simulator ask the same values here.
//!
//! | file | concept |
//! |---|---|
//! | `governor.rs` | how much of a budget is compressed |
//! | `trial.rs` | whether another size was better |
//! | `intake.rs` | which evicted pages are stored or tried, and when the size is decided |
//! | `barren.rs` | regions of files that do not compress |
//! | `room.rs` | the memory that stored pages take |

mod barren;
mod governor;
mod intake;
mod room;
mod trial;

pub use governor::{Costs, Governor, Measured, hash, is_sampled};
pub use intake::{Intake, TIMED};
pub use room::{DROPPED, ROUNDS, Tries, footprint, is_over_share, make_room};
pub use trial::Counts;
