//! A task's handle on the world: the world, and the task's own number in it.
//!
//! Kernel paths are `async` methods of [`Ctx`], so a fault that waits for a lock, then for a
//! device, then reclaims and sleeps, reads from top to bottom. The world is borrowed between two
//! awaits only; clippy refuses a borrow that is held across one.

use super::sched::{Parked, TaskId};
use super::world::World;
use std::cell::{RefCell, RefMut};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// A task's view of the machine.
#[derive(Clone, Debug)]
pub struct Ctx {
    pub(super) world: Rc<RefCell<World>>,
    pub id: TaskId,
}

impl Ctx {
    /// The world, until the next await.
    pub fn w(&self) -> RefMut<'_, World> {
        self.world.borrow_mut()
    }

    /// The task's own time.
    pub fn now(&self) -> u64 {
        self.w().sched.local(self.id)
    }

    /// Spends CPU time.
    pub const fn spend(&self, nanos: u64) -> Spend<'_> {
        Spend { ctx: self, nanos, until_zero: false, parked: false }
    }

    /// Pays all CPU time spent so far: the machine's time is the task's own afterwards.
    pub const fn settle(&self) -> Spend<'_> {
        Spend { ctx: self, nanos: 0, until_zero: true, parked: false }
    }

    /// Sleeps.
    pub async fn sleep(&self, nanos: u64) {
        self.settle().await;
        Block { ctx: self, nanos: Some(nanos), parked: false }.await;
    }

    /// Blocks until woken, or for `nanos` at most. Before this call, the task has to be where its
    /// waker will find it, and its debt has to be paid.
    pub const fn block(&self, nanos: Option<u64>) -> Block<'_> {
        Block { ctx: self, nanos, parked: false }
    }
}

/// See [`Ctx::spend`].
#[must_use]
#[derive(Debug)]
pub struct Spend<'a> {
    ctx: &'a Ctx,
    nanos: u64,
    until_zero: bool,
    parked: bool,
}

impl Future for Spend<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.parked && !self.until_zero {
            return Poll::Ready(());
        }
        let mut world = self.ctx.w();
        let sched = &mut world.sched;
        let pay = !self.parked && sched.spend(self.ctx.id, self.nanos);
        let task = sched.task(self.ctx.id);
        // A task that lost its CPU while it paid comes back with the cost of the switch as a new
        // debt.
        if pay || (self.until_zero && task.debt > 0) {
            task.parked = Parked::Spending;
            drop(world);
            self.parked = true;
            return Poll::Pending;
        }
        Poll::Ready(())
    }
}

/// See [`Ctx::block`].
#[must_use]
#[derive(Debug)]
pub struct Block<'a> {
    ctx: &'a Ctx,
    nanos: Option<u64>,
    parked: bool,
}

impl Future for Block<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.parked {
            return Poll::Ready(());
        }
        let nanos = self.nanos;
        self.ctx.w().sched.block(self.ctx.id, nanos);
        self.parked = true;
        Poll::Pending
    }
}
