//! `lowtide sim`: workloads and traces on machines that one does not have, in virtual time.
//!
//! | file | concept |
//! |---|---|
//! | `args`, `count`, `options` | what can be said; what each option may be |
//! | `database`, `compare` | the published experiment; ratios, published rows, the verdict |
//! | `dd_oom` | the throttling OOM |
//! | `fill`, `mixed` | writing a file from start to end; reads beside checkpoints |
//! | `high_thrash` | a task that thrashes above its limit, and what it pays |
//! | `noisy` | tenants with working sets, and one that scans |
//! | `tenants` | programs of equal demand that share a machine |
//! | `mix` | the aging OOM |
//! | `pages`, `stream` | streams of single pages |
//! | `trace` | recorded streams |
//! | `swarm` | random plans, every invariant checked |
//! | `full` | operation streams on a full machine |
//! | `host`, `jobs`, `clock` | what this machine can carry; rows side by side; how long they took |
//! | `row`, `columns`, `show`, `error` | what is shown and written |

pub(crate) mod args;
mod clock;
mod columns;
mod compare;
mod count;
mod database;
mod dd_oom;
pub(crate) mod error;
mod fill;
mod full;
mod high_thrash;
mod host;
mod jobs;
mod mix;
mod mixed;
mod noisy;
mod options;
mod pages;
pub(crate) mod row;
mod show;
mod stream;
mod swarm;
mod tenants;
mod trace;

use args::{Output, SimArgs, Target};
use error::SimError;

use crate::json::check_path;
use crate::{names, out};

/// Runs what was asked for.
///
/// # Errors
/// Why there is no result, or one with gaps.
pub(crate) fn run(args: &SimArgs) -> Result<(), SimError> {
    if let Output::Both(path) = args.output() {
        check_path(Some(path))?;
    }
    options::refuse_misplaced(args)?;
    names::once(args.policy.as_deref().unwrap_or_default(), ToString::to_string, out::note);
    if let Some(seeds) = args.swarm {
        return swarm::run(args, seeds);
    }
    if let Some(plan) = &args.swarm_plan {
        return swarm::replay_plan(args, plan);
    }
    match args.workload {
        Some(Target::Database(letter)) => database::run(args, letter),
        Some(Target::Tenants) => tenants::run(args),
        Some(Target::Mix) => mix::run(args),
        Some(Target::DdOom) => dd_oom::run(args),
        Some(Target::Fill) => fill::run(args),
        Some(Target::Mixed) => mixed::run(args),
        Some(Target::NoisyNeighbour) => noisy::run(args),
        Some(Target::HighThrash) => high_thrash::run(args),
        Some(Target::Pages(pattern)) => pages::run(args, pattern),
        None => trace::run(args),
    }
}
