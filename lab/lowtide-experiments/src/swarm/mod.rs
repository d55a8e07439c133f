//! The swarm: many small random machines, each with another plan, all of them checked.
//!
//! A seed makes a *plan*: a machine, a policy, threads with their habits, and what goes wrong and
//! when. The plan is carried out twice. The first time every invariant is checked as it goes, and a
//! model knows what every page should contain; the second time there are no checks, and the result
//! must be the same to the last counter. A seed that fails is reduced to the smallest plan that
//! fails in the same way, and that plan is one line of text which replays it.
//!
//! The checks do not depend on how the engine decides. They know what it must never do: lose a
//! write, free what is in use, forget a page that a task waits for, charge without end, or fail for
//! want of memory that is available. To show that the swarm would notice, bugs can be planted
//! (`sabotage.rs`).
//!
//! | file | holds |
//! |---|---|
//! | `plan.rs`, `text.rs`, `draw.rs` | plans; as text; drawn from a seed |
//! | `client.rs` | the threads of a run, and the faults |
//! | `checker.rs`, `checks.rs` | what must hold: when it is checked; each property |
//! | `contents.rs`, `medium.rs` | models: contents of pages; what a device keeps in a power cut |
//! | `promises.rs`, `progress.rs` | what syncs must report; whether a run makes progress |
//! | `run.rs`, `quiet.rs` | carrying out a plan twice; panics as results |
//! | `shrink.rs` | making a failing plan small |
//! | `seeds.rs` | many seeds on several CPUs |
//! | `coverage.rs`, `cover.rs` | what a swarm has been through; the rows that a run fills |
//! | `sabotage.rs` | planted bugs |
//!
//! A power cut ends a machine in the middle of whatever it does. Of each page the device then has
//! what was durable, or something newer that it was given, each page for itself; the threads go on
//! with what is left of their operations on a new machine that begins with these files.
//!
//! A machine has one size of base page, which a plan draws. The simulated page cache has folios of
//! several pages only for files that are neither mapped nor made shorter, and it stores to their
//! pages one by one, where a kernel has the folio locked. So a plan has them where its threads only
//! read. The engine's property tests draw the orders of all others
//! (`lowtide-core/tests/properties.rs`).
//!
//! A file ends with a page or in the middle of one. Its size is durable as soon as it is changed:
//! of what a power cut leaves, nothing is behind it.
//!
//! Not checked: swap; groups (a plan has one budget); the quality of the policy's choices, which is
//! `tests/fidelity.rs`'s affair.

mod checker;
mod checks;
mod client;
mod contents;
mod cover;
mod coverage;
mod draw;
mod medium;
mod plan;
mod progress;
mod promises;
mod quiet;
mod run;
mod sabotage;
mod seeds;
mod shrink;
mod text;

pub use coverage::Coverage;
pub use plan::{Fault, Pattern, Plan, PlanError, SpacePlan, ThreadPlan};
pub use run::{Violation, examine};
pub use sabotage::{Bug, UnknownBug};
pub use seeds::{SwarmConfig, SwarmFailure, SwarmReport, replay, run};
