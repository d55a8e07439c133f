//! `lowtide-lab bench` as a proof: no durable byte is lost when writers are killed, or when a disk
//! loses power or lies.
//!
//! | file | concept |
//! |---|---|
//! | `crash`, `victim` | killed processes, and the file that they leave |
//! | `cut` | pagers on a disk that loses power |
//! | `report` | the size of a proof, and its result as text and JSON |
//! | `coverage` | its coverage, as tables and as rows of the JSON |
//!
//! The guarantees, the checks and the disk are in [`lowtide_proof`]. This module has the parts of
//! the command: options, the processes to kill, progress and tables.

use lowtide::map::MapMode;
use lowtide_host::maps::Maps;

mod coverage;
pub(crate) mod crash;
pub(crate) mod cut;
mod report;
pub(crate) mod victim;

/// The ways in which files can be mapped here.
fn ways_of_maps() -> Vec<MapMode> {
    let maps = Maps::ask();
    let cached = maps.scan.is_ok().then_some(MapMode::PageCache);
    let served = (maps.scan.is_ok() && maps.served.is_ok()).then_some(MapMode::Userfault);
    cached.into_iter().chain(served).collect()
}
