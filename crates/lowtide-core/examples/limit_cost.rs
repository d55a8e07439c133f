//! What the throttle policies cost: nanoseconds for one event of each kind.
//!
//! A refault that stalled books a debt, computes what is owed, and notes its distance; a task that
//! stalls updates its group and each ancestor; an idle group costs nothing. Times of events
//! advance as they would, so that sums age.
//!
//! `cargo run --release -p lowtide-core --example limit_cost`
#![expect(clippy::print_stdout, reason = "it is a report")]

use lowtide_core::high::advice::MissingMemory;
use lowtide_core::high::handler::{HighPolicy, LevelView, OverLimit, TaskFacts};
use lowtide_core::high::stall_debt::{EvictedFor, LevelStall, Refault, StallDebt, TaskDebt, book};
use lowtide_core::hooks::{NO_LIMIT, ThrottleAnswer};
use lowtide_core::psi::{Psi, TaskPsi};
use std::hint::black_box;
use std::time::Instant;

const EVENTS: u64 = 2_000_000;
/// Nanoseconds between two events.
const PACE: u64 = 250_000;

/// Prints the mean time of an event; `event` gets the time.
fn measure(name: &str, mut event: impl FnMut(u64)) {
    let begun = Instant::now();
    for n in 0..EVENTS {
        event(n * PACE);
    }
    println!("{:>8.1} ns  {name}", begun.elapsed().as_nanos() as f64 / EVENTS as f64);
}

fn main() {
    let policy = StallDebt::default();
    let refault = Refault {
        level: 1,
        depth: 1,
        evicted_for: EvictedFor::High,
        working_set: true,
        stall_ns: PACE / 2,
        bytes: 4096,
    };
    let (mut level, mut task) = (LevelStall::default(), TaskDebt::default());
    measure("a refault is booked", |now| {
        level.note_usage(100, 100, now);
        book(&policy, &mut level, &mut task, black_box(&refault), now);
    });
    measure("what a task owes, one level", |now| {
        let now = EVENTS * PACE + now / 1000;
        black_box(task.owed(&[(1, level.price(&policy, now))], now));
    });
    let clear = TaskDebt::default();
    measure("what a task without debts owes", |now| {
        black_box(clear.owed(&[(1, level.price(&policy, now))], now));
    });
    let mut missing = MissingMemory::default();
    measure("a distance is noted for advice", |now| {
        missing.note(black_box(now % 100_003), PACE, now);
    });
    let (mut psi, mut stalling) = (Psi::new(1000, 0), TaskPsi::new(0));
    psi.apply(stalling.run(0), 0);
    measure("a stall begins and ends, pressure of one group", |now| {
        psi.apply(stalling.enter_stall(), now);
        psi.apply(stalling.leave_stall(), now + PACE / 2);
    });
    let view = LevelView {
        id: 1,
        usage: 110,
        high: 100,
        swap_usage: 0,
        swap_high: NO_LIMIT,
        is_auto: false,
    };
    let facts = TaskFacts { dying: false, hz: 1000, since_refault_ns: u64::MAX, owed_ns: 0 };
    measure("a step of the over-limit handler", |_| {
        let mut over = OverLimit::new(HighPolicy::StallDebt, &mut 64);
        black_box(over.next(&[view], &facts, None, |_| ThrottleAnswer::Default));
    });
    println!(
        "bytes: {} a task's debts, {} a level, {} advice, {} pressure of an idle group",
        size_of::<TaskDebt>(),
        size_of::<LevelStall>(),
        size_of::<MissingMemory>(),
        size_of::<Psi>()
    );
}
