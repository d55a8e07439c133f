//! `lowtide sim --trace FILE`: a recorded stream, on the plain machine or on a full one.
//!
//! A trace may be larger than memory and is read as it is played. The plain machine needs one pass;
//! so that `--max` has a default, and for a full machine, whose files must exist before the first
//! operation, another pass comes first.
//!
//! | file | concept |
//! |---|---|
//! | `source` | which trace; one pass over it, to know what it touches |
//! | `paging` | how large its pages are |
//! | `footprint` | which pages have been touched |
//! | `plain` | one reader, and a plain machine for each policy |
//! | `curves` | miss-ratio curves and advice |
//! | `deal` | the operations of each thread, from one reader |
//! | `full` | a full machine for each policy |

mod curves;
mod deal;
mod footprint;
mod full;
mod paging;
mod plain;
mod source;

use super::args::SimArgs;
use super::error::SimError;
use super::options;
use source::Source;

/// What rows of a trace call their workload, as in `lowtide bench`.
const WORKLOAD: &str = "replay";

/// Plays the trace under every policy and prints the rows.
///
/// # Errors
/// Any [`SimError`].
pub(crate) fn run(args: &SimArgs) -> Result<(), SimError> {
    let Some(source) = Source::of(args) else {
        return Err(SimError::usage(
            "there is nothing to simulate",
            "name a workload, or a trace with --trace FILE",
        ));
    };
    if args.wants_curves() {
        return curves::run(args, &source);
    }
    match options::machine(args)? {
        Some(machine) => full::run(args, source, &machine),
        None => plain::run(args, &source),
    }
}
