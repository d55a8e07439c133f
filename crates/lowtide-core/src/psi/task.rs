//! What one task is doing, and the changes that are reported to groups.
//!
//! A driver keeps a [`TaskPsi`] for each task and calls a method at each change; the [`Change`]
//! that it returns goes to the task's group and to each of its ancestors
//! ([`Psi::apply`](super::Psi::apply)). Stalls nest: reclaim during a read of a working-set page is
//! one stall, and a change to the same state costs the groups nothing. Source:
//! `docs/kernel/memcg.md` §14.1, 14.2.

bitflags::bitflags! {
    /// What a task is doing.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct TaskState: u8 {
        /// It runs or could run.
        const RUNNABLE = 1;
        /// It is the current task of its CPU.
        const ON_CPU = 2;
        /// It waits for I/O.
        const IO_WAIT = 4;
        /// It is in a memory stall: reclaims, or waits for memory, or for a page that it had
        /// before.
        const MEM_STALL = 8;
        /// Its memory stall is a sleep that a limit imposed.
        const THROTTLE = 16;
    }
}

/// A task went from one state, or CPU, to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Change {
    /// CPU and state that the task leaves.
    pub from: (u16, TaskState),
    /// CPU and state that it is in now.
    pub to: (u16, TaskState),
}

/// One task. A blocked task counts on its last CPU; a driver without CPUs uses CPU 0 and calls only
/// the methods for events that it sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TaskPsi {
    cpu: u16,
    state: TaskState,
    depth: u16,
    sleeps: u16,
}

impl TaskPsi {
    /// A task that does nothing yet.
    #[must_use]
    pub const fn new(cpu: u16) -> Self {
        Self { cpu, state: TaskState::empty(), depth: 0, sleeps: 0 }
    }

    /// What it is doing.
    #[must_use]
    pub const fn state(&self) -> TaskState {
        self.state
    }

    /// It becomes the current task of a CPU.
    pub fn run(&mut self, cpu: u16) -> Change {
        let running = TaskState::RUNNABLE | TaskState::ON_CPU;
        self.change(cpu, (self.state - TaskState::IO_WAIT) | running)
    }

    /// It wants to run, on this CPU, but another task does.
    pub fn wait_for_cpu(&mut self, cpu: u16) -> Change {
        let off = TaskState::IO_WAIT | TaskState::ON_CPU;
        self.change(cpu, (self.state - off) | TaskState::RUNNABLE)
    }

    /// It waits for something other than a CPU.
    pub fn block(&mut self, for_io: bool) -> Change {
        let mut state = self.state - (TaskState::RUNNABLE | TaskState::ON_CPU);
        state.set(TaskState::IO_WAIT, for_io);
        self.change(self.cpu, state)
    }

    /// It enters a memory stall.
    pub fn enter_stall(&mut self) -> Change {
        self.depth = self.depth.saturating_add(1);
        self.change(self.cpu, self.stalled())
    }

    /// It leaves a memory stall. Ignored if it is in none.
    pub fn leave_stall(&mut self) -> Change {
        self.depth = self.depth.saturating_sub(1);
        self.change(self.cpu, self.stalled())
    }

    /// It goes to sleep because of a limit: a memory stall, but one that must not drive a
    /// controller.
    pub fn enter_throttle(&mut self) -> Change {
        self.depth = self.depth.saturating_add(1);
        self.sleeps = self.sleeps.saturating_add(1);
        self.change(self.cpu, self.stalled())
    }

    /// It wakes from such a sleep.
    pub fn leave_throttle(&mut self) -> Change {
        self.depth = self.depth.saturating_sub(1);
        self.sleeps = self.sleeps.saturating_sub(1);
        self.change(self.cpu, self.stalled())
    }

    /// It ends, or moves to another group, which then gets [`TaskPsi::arrive`].
    pub fn leave(&self) -> Change {
        Change { from: (self.cpu, self.state), to: (self.cpu, TaskState::empty()) }
    }

    /// The change for a group that the task comes to.
    pub fn arrive(&self) -> Change {
        Change { from: (self.cpu, TaskState::empty()), to: (self.cpu, self.state) }
    }

    fn stalled(&self) -> TaskState {
        let mut state = self.state;
        state.set(TaskState::MEM_STALL, self.depth > 0);
        state.set(TaskState::THROTTLE, self.sleeps > 0);
        state
    }

    fn change(&mut self, cpu: u16, state: TaskState) -> Change {
        let from = (self.cpu, self.state);
        (self.cpu, self.state) = (cpu, state);
        Change { from, to: (cpu, state) }
    }
}
