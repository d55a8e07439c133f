//! Skewed popularity: rank `k` (counted from 1) is drawn in proportion to `k^-theta`.
//!
//! | file | holds | for |
//! |---|---|---|
//! | `table.rs` | [`ZipfTable`], [`permutation`] | ground-truth sequences: exact, in integers |
//! | `gray.rs` | [`Zipfian`], [`zeta`] | any number of items in constant memory and time |
//! | `bijection.rs` | [`Bijection`] | scattering popular ranks without collisions or a table |
//! | `scrambled.rs` | [`ScrambledZipfian`] | YCSB's key chooser, collisions included |

mod bijection;
mod gray;
mod scrambled;
mod table;

pub use bijection::Bijection;
pub use gray::{Zipfian, zeta};
pub use scrambled::{ScrambledZipfian, YCSB_DOMAIN, YCSB_THETA, YCSB_ZETA, fnv64};
pub use table::{ZipfTable, permutation};
