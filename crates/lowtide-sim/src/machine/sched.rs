//! Virtual time, CPUs, and the tasks that share them.
//!
//! ```text
//!                  ┌──────── slice used up, others wait ────────┐
//!                  ▼                                            │
//!   spawned ──► runnable ──► running ── spends CPU time ──► running ──► finished
//!                  ▲            │
//!                  └── woken ── blocked: sleeping, or waiting for a lock, a page, a frame
//! ```
//!
//! A task is a future that is polled when its time has come. While it runs, the CPU time it spends
//! is a *debt*: the task's own clock runs ahead of the machine's by it. The debt is paid (the
//! machine's clock catches up, others run meanwhile) when it exceeds [`QUANTUM_NS`], and always
//! before the task blocks. So short computations cost no event, and tasks on different CPUs see
//! each other's effects at most a quantum late.
//!
//! The scheduler is *fair*, as a kernel's is: of the runnable tasks that one gets a CPU which has
//! had least of it, so a task that computes for a whole slice is behind tasks that sleep after a
//! tenth of one, until these have had as much. Sleep saves nothing up. The *virtual time* is what
//! the tasks that run or are runnable have had on average; a task that blocks takes its lag behind
//! it along, two slices at most, and has that lag when it wakes, however far the others have come.
//! One that was ahead stays ahead until the virtual time has passed it. (Stoica and Abdel-Wahab,
//! *Earliest Eligible Virtual Deadline First*, 1995; Linux since 6.6.) A task that wakes preempts
//! no other, which keeps its CPU to the end of its slice. Weights, and queues of single CPUs, are
//! not modelled.
//!
//! Nothing here depends on the addresses, the hashes or the clock of the machine that runs it:
//! events at the same time happen in the order in which they were scheduled, and the
//! lowest-numbered idle CPU is taken.

use lowtide_core::Dirtier;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

/// Nanoseconds of CPU time a task may run ahead of the machine's clock, unless the machine is a
/// slow one.
pub(super) const QUANTUM_NS: u64 = 5_000;

/// The number of a task.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TaskId(pub u32);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Waits for a CPU.
    Runnable,
    /// Has a CPU.
    Running,
    /// Waits for something other than a CPU.
    Blocked,
    Finished,
}

/// Why a task returned from its poll.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parked {
    /// To pay its debt.
    Spending,
    /// Until it is woken.
    Blocked,
}

/// What the scheduler knows of a task.
#[derive(Debug)]
pub struct Task {
    state: State,
    pub cpu: u16,
    /// CPU time spent and not yet paid.
    pub debt: u64,
    /// CPU time since it was put on its CPU.
    ran: u64,
    /// Counts blocks, so that a wake-up that comes too late is recognised.
    epoch: u32,
    pub parked: Parked,
    /// CPU time in all.
    pub cpu_ns: u64,
    /// CPU time, and what it was put forward by when it woke.
    vruntime: u64,
    /// How far it was behind the virtual time when it blocked.
    lag: u64,
    /// What it has dirtied and not answered for.
    pub dirtier: Dirtier,
}

/// What happens at a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Event {
    /// A task has paid its debt.
    Paid(TaskId),
    /// A task's sleep is over, unless it was woken before.
    Timeout(TaskId, u32),
    /// A device has completed a request.
    Io(u32),
}

/// The scheduler. See the module documentation.
#[derive(Debug)]
pub struct Sched {
    pub now: u64,
    order: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    pub tasks: Vec<Task>,
    /// By virtual runtime, then in the order in which they became runnable.
    runnable: BTreeSet<(u64, u64, TaskId)>,
    /// Of the tasks that run or are runnable: their number, and the sum of their virtual runtimes.
    competing: u64,
    vruntimes: u128,
    /// The virtual time when the last of them blocked.
    last_virtual: u64,
    idle: BTreeSet<u16>,
    slice_ns: u64,
    switch_ns: u64,
    /// Nanoseconds of CPU time a task may run ahead of the machine's clock.
    pub quantum_ns: u64,
    /// Events handled.
    pub handled: u64,
    /// CPU time of all tasks.
    pub busy_ns: u64,
    /// Switches from one task to another.
    pub switches: u64,
}

impl Sched {
    pub fn new(cpus: u16, slice_ns: u64, switch_ns: u64) -> Self {
        Self {
            now: 0,
            order: 0,
            events: BinaryHeap::new(),
            tasks: Vec::new(),
            runnable: BTreeSet::new(),
            competing: 0,
            vruntimes: 0,
            last_virtual: 0,
            idle: (0..cpus).collect(),
            slice_ns,
            switch_ns,
            quantum_ns: QUANTUM_NS,
            handled: 0,
            busy_ns: 0,
            switches: 0,
        }
    }

    /// Adds a task, runnable now.
    pub fn spawn(&mut self) -> TaskId {
        let id = TaskId(self.tasks.len() as u32);
        self.tasks.push(Task {
            state: State::Runnable,
            cpu: 0,
            debt: 0,
            ran: 0,
            epoch: 0,
            parked: Parked::Blocked,
            cpu_ns: 0,
            vruntime: 0,
            lag: 0,
            dirtier: Dirtier::default(),
        });
        self.join(id);
        self.queue(id);
        id
    }

    pub fn task(&mut self, id: TaskId) -> &mut Task {
        &mut self.tasks[id.0 as usize]
    }

    /// What the tasks that run or are runnable have had of a CPU, on average.
    fn virtual_time(&self) -> u64 {
        match self.competing {
            0 => self.last_virtual,
            tasks => (self.vruntimes / u128::from(tasks)) as u64,
        }
    }

    /// A task begins to compete for the CPUs, as far behind the virtual time as when it left. That
    /// is an average with the task in it: of the distance from the others a part is lost.
    fn join(&mut self, id: TaskId) {
        let (now, others) = (self.virtual_time(), self.competing);
        let task = self.task(id);
        let behind = task.lag + task.lag.checked_div(others).unwrap_or(0);
        task.vruntime = task.vruntime.max(now.saturating_sub(behind));
        self.vruntimes += u128::from(self.tasks[id.0 as usize].vruntime);
        self.competing += 1;
    }

    /// A task no longer competes.
    fn leave(&mut self, id: TaskId) {
        let (now, limit) = (self.virtual_time(), 2 * self.slice_ns);
        let task = self.task(id);
        let vruntime = task.vruntime;
        task.lag = now.saturating_sub(vruntime).min(limit);
        self.last_virtual = now;
        self.vruntimes -= u128::from(vruntime);
        self.competing -= 1;
    }

    /// Makes a task wait for a CPU.
    fn queue(&mut self, id: TaskId) {
        self.order += 1;
        let order = self.order;
        let task = self.task(id);
        let place = (task.vruntime, order, id);
        self.runnable.insert(place);
    }

    /// The task's own time.
    pub fn local(&self, id: TaskId) -> u64 {
        self.now + self.tasks[id.0 as usize].debt
    }

    pub fn at(&mut self, time: u64, event: Event) {
        self.order += 1;
        self.events.push(Reverse((time.max(self.now), self.order, event)));
    }

    /// Blocks a task until it is woken, or for `nanos` at most.
    pub fn block(&mut self, id: TaskId, nanos: Option<u64>) {
        let task = self.task(id);
        debug_assert_eq!(task.debt, 0, "a task pays before it blocks");
        task.parked = Parked::Blocked;
        task.state = State::Blocked;
        task.epoch += 1;
        let epoch = task.epoch;
        self.leave(id);
        if let Some(nanos) = nanos {
            self.at(self.now.saturating_add(nanos), Event::Timeout(id, epoch));
        }
    }

    /// Makes a blocked task runnable. Tasks that are not blocked are left alone.
    pub fn wake(&mut self, id: TaskId) {
        let task = self.task(id);
        if task.state == State::Blocked {
            task.state = State::Runnable;
            self.join(id);
            self.queue(id);
        }
    }

    /// The next task that has a CPU and is to be polled now, or what happens next instead. `None`
    /// when nothing ever will.
    pub fn next(&mut self) -> Option<Happens> {
        loop {
            if let Some(task) = self.dispatch() {
                return Some(Happens::Run(task));
            }
            let Reverse((time, _, event)) = self.events.pop()?;
            debug_assert!(time >= self.now, "time does not go back");
            self.now = time;
            self.handled += 1;
            match event {
                Event::Io(request) => return Some(Happens::Io(request)),
                Event::Timeout(id, epoch) => {
                    if self.task(id).epoch == epoch {
                        self.wake(id);
                    }
                }
                Event::Paid(id) => {
                    let slice = self.slice_ns;
                    let next = self.runnable.first().map(|&(vruntime, ..)| vruntime);
                    let task = self.task(id);
                    task.debt = 0;
                    if task.ran >= slice && next.is_some_and(|next| next <= task.vruntime) {
                        task.state = State::Runnable;
                        let cpu = task.cpu;
                        self.queue(id);
                        self.idle.insert(cpu);
                        continue;
                    }
                    return Some(Happens::Run(id));
                }
            }
        }
    }

    /// Gives an idle CPU to the task that has had least.
    fn dispatch(&mut self) -> Option<TaskId> {
        if self.idle.is_empty() || self.runnable.is_empty() {
            return None;
        }
        let (_, _, id) = self.runnable.pop_first()?;
        let last = self.task(id).cpu;
        let cpu = if self.idle.remove(&last) { last } else { self.idle.pop_first()? };
        self.switches += 1;
        let switch_ns = self.switch_ns;
        let task = self.task(id);
        task.state = State::Running;
        task.cpu = cpu;
        task.ran = 0;
        task.debt = switch_ns;
        task.cpu_ns += switch_ns;
        self.busy_ns += switch_ns;
        Some(id)
    }

    /// Adds CPU time to a running task. Returns whether its debt is to be paid now.
    pub fn spend(&mut self, id: TaskId, nanos: u64) -> bool {
        self.busy_ns += nanos;
        self.vruntimes += u128::from(nanos);
        let quantum = self.quantum_ns;
        let task = self.task(id);
        task.debt += nanos;
        task.ran += nanos;
        task.cpu_ns += nanos;
        task.vruntime += nanos;
        task.debt >= quantum
    }

    /// How often a task can spend `nanos` until its debt is to be paid, the last time included.
    pub fn spends_until_due(&self, id: TaskId, nanos: u64) -> u64 {
        let left = self.quantum_ns.saturating_sub(self.tasks[id.0 as usize].debt);
        left.div_ceil(nanos.max(1)).max(1)
    }

    /// A running task keeps its CPU for another slice: it is about to spin with interrupts off.
    pub fn renew_slice(&mut self, id: TaskId) {
        self.task(id).ran = 0;
    }

    /// A task came back from its poll without having finished.
    pub fn parked(&mut self, id: TaskId) {
        let task = self.task(id);
        match task.parked {
            Parked::Spending => {
                let due = self.local(id);
                self.at(due, Event::Paid(id));
            }
            Parked::Blocked => {
                let cpu = task.cpu;
                self.idle.insert(cpu);
            }
        }
    }

    /// A task came back for the last time.
    pub fn finished(&mut self, id: TaskId) {
        self.leave(id);
        let task = self.task(id);
        task.state = State::Finished;
        let cpu = task.cpu;
        self.idle.insert(cpu);
    }
}

/// What happens next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Happens {
    /// A task goes on.
    Run(TaskId),
    /// A request to a device has completed.
    Io(u32),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One CPU, a task that computes without end, and three that sleep for no time at all after
    /// each tenth of a slice.
    #[test]
    fn a_task_that_never_sleeps_gets_no_more_than_those_that_do() {
        let mut sched = Sched::new(1, 3_000_000, 0);
        let tasks: Vec<_> = (0..4).map(|_| sched.spawn()).collect();
        while sched.now < 1_000_000_000 {
            let Some(Happens::Run(id)) = sched.next() else { panic!("tasks are runnable") };
            let sleeps = id != tasks[0] && sched.task(id).ran >= 300_000;
            if sleeps {
                sched.block(id, Some(0));
            } else {
                assert!(sched.spend(id, QUANTUM_NS));
                sched.task(id).parked = Parked::Spending;
            }
            sched.parked(id);
        }
        let shares: Vec<_> = tasks.iter().map(|&id| sched.task(id).cpu_ns / 1_000_000).collect();
        assert!(shares.iter().all(|share| (240..=260).contains(share)), "{shares:?} ms");
    }

    /// Two tasks compute on two CPUs while a third sleeps for a second. When it wakes and never
    /// sleeps again, it has its two thirds of a CPU from then on, and not the whole second first.
    #[test]
    fn a_task_that_slept_has_saved_nothing_up() {
        let mut sched = Sched::new(2, 3_000_000, 0);
        let tasks: Vec<_> = (0..3).map(|_| sched.spawn()).collect();
        while sched.now < 1_600_000_000 {
            let Some(Happens::Run(id)) = sched.next() else { panic!("tasks are runnable") };
            if id == tasks[2] && sched.now < 1_000_000_000 {
                sched.block(id, Some(1_000_000_000));
            } else {
                assert!(sched.spend(id, QUANTUM_NS));
                sched.task(id).parked = Parked::Spending;
            }
            sched.parked(id);
        }
        let late = sched.task(tasks[2]).cpu_ns / 1_000_000;
        assert!((390..=410).contains(&late), "{late} ms of 600");
    }
}
