//! A disk that fails on purpose, and the power cut.
//!
//! [`FaultyDisk`] stands between a pager and the kernel (it is an
//! [`Inject`](lowtide::instruments::Inject)). It makes requests fail, stop short, come late or
//! hang, as a [`Plan`] says, and it remembers what a disk could still lose, so that it can say at
//! any moment what a cut of the power would have left ([`FaultyDisk::image`]). Who wants to know
//! whether a program keeps its promises lets it run on such a disk, cuts, and opens the image.
//!
//! | file | concept |
//! |---|---|
//! | `plan` | which request suffers what |
//! | `undo` | what is durable, what may be lost, and one of the possible outcomes |
//! | `faulty` | the disk: requests, switches, the cut |

mod faulty;
mod plan;
mod undo;

pub use faulty::{FaultyDisk, PowerError};
pub use plan::{Fault, Plan};
pub use undo::Cut;
