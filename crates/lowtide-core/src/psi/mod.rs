//! Pressure stall information of one group: how much time is lost for want of memory.
//!
//! Each CPU of a group is, at any time, in some of these states:
//!
//! | state | when |
//! |---|---|
//! | some | at least one task is in a memory stall |
//! | full | so, and no task outside a stall could run, or the current task is itself stalled |
//! | throttle | tasks are stalled, and all of them sleep because of a limit |
//! | non-idle | any task runs, waits for I/O or is stalled |
//!
//! The time of a state in the group is the mean over its CPUs, weighted by how long each was not
//! idle. Sums go into totals and into averages (`averages.rs`) once a period. In `memory.pressure`
//! a sleep that a limit imposes is a memory stall like others. *Throttle* is what a controller
//! subtracts from *some* so as not to feed on its own output, and the difference is exact: the time
//! in which some task stalled for another reason.
//!
//! **No call is due at a given time.** The kernel has a worker that samples busy groups every
//! period and leaves idle ones alone. Here the next call takes the samples that such a worker would
//! have taken since the last one, at the times at which they were due: between two calls nothing
//! changed. So an idle group costs nothing, 10,000 of them cost their few hundred bytes, and the
//! times and the number of reads make no difference.
//!
//! One departure: the kernel forgets the stall of a CPU that was busy for less than a tick between
//! two collections (its weight is rounded to 0). Here it stays for the next one, so that frequent
//! reads lose no time.
//!
//! The caller keeps the hierarchy: it applies each change to the group and to each ancestor.
//! Source: `docs/kernel/memcg.md` §14.

mod averages;
mod task;

use crate::units::NS_PER_SEC;
use averages::{Averages, STATES};
use std::fmt;
use std::time::Duration;
pub use task::{Change, TaskPsi, TaskState};

const SOME: usize = 0;
const FULL: usize = 1;
const THROTTLE: usize = 2;
/// Samples of one unchanging state after which the averages do not move any more.
const SETTLED: u64 = 4096;

/// Pressure stall information of one group. O(1) a change, O(CPUs) a period; CPUs are added as
/// tasks come to them.
#[derive(Clone, Debug)]
pub struct Psi {
    cpus: Vec<Cpu>,
    tick: u64,
    enabled: bool,
    totals: [u64; STATES],
    averages: Averages,
}

/// Tasks of the group on one CPU, and the times since they were last collected.
#[derive(Clone, Debug, Default)]
struct Cpu {
    runnable: u32,
    io_wait: u32,
    stalled: u32,
    stalled_runnable: u32,
    stalled_current: u32,
    throttled: u32,
    since: u64,
    times: [u64; STATES],
    busy: u64,
}

/// The contents of `memory.pressure`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Pressure {
    /// Some task was stalled.
    pub some: PressureLine,
    /// All tasks were.
    pub full: PressureLine,
    /// All stalled tasks slept because of a limit. Part of `some`; not in the text.
    pub throttle: PressureLine,
}

/// One kind of pressure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct PressureLine {
    /// Averages over 10, 60 and 300 seconds in hundredths of a percent.
    pub averages: [u32; 3],
    /// All of it since the beginning.
    pub total: Duration,
}

impl Psi {
    /// A group that begins now. `hz` is the number of ticks in a second: a sample is taken every
    /// `2·hz + 1`.
    #[must_use]
    pub fn new(hz: u64, now_ns: u64) -> Self {
        Self {
            cpus: Vec::new(),
            tick: (NS_PER_SEC / hz.max(1)).max(1),
            enabled: true,
            totals: [0; STATES],
            averages: Averages::new(hz, now_ns),
        }
    }

    /// A task of the group, or of a descendant, changed. O(1) but for the sample that may be due.
    ///
    /// A task that leaves a state that no task is in is a mistake of the driver; the count stays at
    /// 0.
    pub fn apply(&mut self, change: Change, now_ns: u64) {
        if change.from == change.to {
            return;
        }
        self.catch_up(now_ns);
        let ((from, before), (to, after)) = (change.from, change.to);
        self.cpu(from, now_ns).count(before, -1);
        self.cpu(to, now_ns).count(after, 1);
    }

    /// Turns accounting off or on (`cgroup.pressure`). Tasks are followed all the same.
    pub fn set_enabled(&mut self, enabled: bool, now_ns: u64) {
        self.catch_up(now_ns);
        self.settle(now_ns);
        self.enabled = enabled;
    }

    /// The pressure until now. O(CPUs).
    pub fn read(&mut self, now_ns: u64) -> Pressure {
        self.catch_up(now_ns);
        self.collect(now_ns);
        let line = |state| PressureLine {
            averages: self.averages.hundredths(state),
            total: Duration::from_nanos(self.totals[state]),
        };
        Pressure { some: line(SOME), full: line(FULL), throttle: line(THROTTLE) }
    }

    /// The CPU, with its times brought up to now.
    fn cpu(&mut self, cpu: u16, now: u64) -> &mut Cpu {
        let index = usize::from(cpu);
        if index >= self.cpus.len() {
            self.cpus.resize(index + 1, Cpu { since: now, ..Cpu::default() });
        }
        let cpu = &mut self.cpus[index];
        cpu.settle(now, self.enabled);
        cpu
    }

    fn settle(&mut self, now: u64) {
        for cpu in &mut self.cpus {
            cpu.settle(now, self.enabled);
        }
    }

    /// Takes the samples that were due before `now`.
    fn catch_up(&mut self, now: u64) {
        let now = now.min(u64::MAX - 2 * self.averages.period);
        while now >= self.averages.next {
            let (next, period) = (self.averages.next, self.averages.period);
            let missed = (now - next) / period;
            if self.is_idle() {
                self.averages.sample(self.totals, next + missed * period);
            } else if missed > SETTLED {
                let at = next + (missed - SETTLED) * period;
                self.collect(at);
                self.averages.skip_to(self.totals, at);
            } else {
                self.collect(next);
                self.averages.sample(self.totals, next);
            }
        }
    }

    fn is_idle(&self) -> bool {
        self.cpus.iter().all(|cpu| (!self.enabled || !cpu.is_busy()) && cpu.busy < self.tick)
    }

    /// Adds the times of all CPUs to the totals.
    fn collect(&mut self, now: u64) {
        self.settle(now);
        let mut weighted = [0u128; STATES];
        let mut weights = 0u128;
        for cpu in &mut self.cpus {
            let weight = cpu.busy / self.tick;
            if weight == 0 {
                continue;
            }
            weights += u128::from(weight);
            for (sum, time) in weighted.iter_mut().zip(&mut cpu.times) {
                *sum += u128::from(std::mem::take(time)) * u128::from(weight);
            }
            cpu.busy = 0;
        }
        for (total, sum) in self.totals.iter_mut().zip(weighted) {
            *total += (sum / weights.max(1)) as u64;
        }
    }
}

impl Cpu {
    fn is_busy(&self) -> bool {
        self.runnable > 0 || self.io_wait > 0 || self.stalled > 0
    }

    fn settle(&mut self, now: u64, enabled: bool) {
        let spent = now.saturating_sub(self.since);
        self.since = self.since.max(now);
        if !enabled || !self.is_busy() {
            return;
        }
        self.busy += spent;
        if self.stalled == 0 {
            return;
        }
        self.times[SOME] += spent;
        if self.runnable == self.stalled_runnable || self.stalled_current > 0 {
            self.times[FULL] += spent;
        }
        if self.stalled == self.throttled {
            self.times[THROTTLE] += spent;
        }
    }

    fn count(&mut self, state: TaskState, by: i32) {
        let stall = TaskState::MEM_STALL;
        let counts = [
            (&mut self.runnable, TaskState::RUNNABLE),
            (&mut self.io_wait, TaskState::IO_WAIT),
            (&mut self.stalled, stall),
            (&mut self.stalled_runnable, TaskState::RUNNABLE | stall),
            (&mut self.stalled_current, TaskState::ON_CPU | stall),
            (&mut self.throttled, TaskState::THROTTLE | stall),
        ];
        for (count, bits) in counts {
            if state.contains(bits) {
                *count = count.saturating_add_signed(by);
            }
        }
    }
}

impl fmt::Display for Pressure {
    /// The two lines of `memory.pressure`, each with its end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "some {}", self.some)?;
        writeln!(f, "full {}", self.full)
    }
}

impl fmt::Display for PressureLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (window, value) in [10, 60, 300].into_iter().zip(self.averages) {
            write!(f, "avg{window}={}.{:02} ", value / 100, value % 100)?;
        }
        write!(f, "total={}", self.total.as_micros())
    }
}

#[cfg(test)]
mod tests;
