//! `lowtide bench`: real files, real memory, a real device, and every byte verified.
//!
//! | file | concept |
//! |---|---|
//! | `args`, `options`, `plan` | what can be said; what each option may be; defaults filled in |
//! | `content`, `datafile` | what data files hold; making, locking and keeping them |
//! | `door`, `play`, `crew` | a thread's way to its data; operations; threads |
//! | `system`, `peer` | lowtide under a policy; what it is compared with |
//! | `record` | an extra turn whose accesses become a trace |
//! | `tally`, `rounds` | what is counted; turns and ratios |
//! | `workload`, `depth`, `scan`, `hit` | the four kinds of benchmark of one system, from plan to result |
//! | `write` | sequential writing: `fill` beside `dd`, `dd-oom` on a slowed device |
//! | `slow` | a device that is slower than it is |
//! | `tenancy` | benchmarks with tenants: limits, laws, programs, protection |
//! | `proof` | killed, cut off and lied to, without losing a flushed byte |
//! | `machine`, `table`, `json`, `error` | what is shown and written |

pub(crate) mod args;
mod content;
mod crew;
mod datafile;
mod depth;
mod door;
pub(crate) mod error;
mod hit;
mod json;
mod machine;
mod options;
pub(crate) mod peer;
mod plan;
mod play;
pub(crate) mod proof;
mod record;
mod rounds;
mod scan;
mod slow;
mod system;
mod table;
mod tally;
pub(crate) mod tenancy;
mod workload;
pub(crate) mod write;

use lowtide_workload::Workload;
pub(crate) use rounds::Spread;

use args::{BenchArgs, Target};
use error::BenchError;

use crate::{names, out};

/// Runs what was asked for.
///
/// # Errors
/// Why there is no result, or none that can be trusted.
pub(crate) fn run(args: &BenchArgs) -> Result<(), BenchError> {
    crate::json::check_path(args.json.as_deref())?;
    options::refuse_none_beside_peers(args)?;
    names::once(args.policy.as_deref().unwrap_or_default(), ToString::to_string, out::note);
    names::once(args.against.as_deref().unwrap_or_default(), |&peer| peer.name(), out::note);
    match (args.workload, &args.depth) {
        (Target::Hit, _) => hit::run(args),
        (Target::Writing(writing), _) => writing.run(args),
        (Target::Tenancy(tenancy), _) => tenancy.run(args),
        (Target::Proof(proof), _) => proof.run(args),
        (Target::Workload(Workload::RandomRead), Some(depths)) => depth::run(args, depths),
        (Target::Workload(workload), _) => match &args.op {
            Some(ops) => scan::run(args, ops),
            None => workload::run(args, workload),
        },
    }
}
