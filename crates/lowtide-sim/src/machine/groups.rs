//! Groups: which task is charged for what, how long it was stalled, and how it pays for being over
//! a limit.
//!
//! A task charges the group that it is a member of; the pages of a heap belong to the group of its
//! address space, those of a file to the group of the task that brings them in. The debt for pages
//! charged above `high`, or for having waited for pages that a limit had evicted, is paid when the
//! task would return to its program: at the end of a fault, of a read or write, where it holds no
//! lock. Only
//!
//! A stall is the time between the beginning and the end of waiting for a page that came back, and
//! of direct reclaim; it goes to the pressure of the groups, and, if a limit was the cause, to the
//! task's debts. There, a wait counts until the whole read-ahead window has been served that the
//! task had submitted with the page: a batch costs what it costs. Source: `docs/kernel/memcg.md`
//! §6, 8, 14.

use super::ctx::Ctx;
use super::files::FileId;
use super::io_max::IoLimits;
use super::sched::TaskId;
use super::world::World;
use crate::memory::ObjectId;
use lowtide_core::high::stall_debt::TaskDebt;
use lowtide_core::high::{HighNext, Payer, Payment, Refaulted};
use lowtide_core::psi::{Change, TaskPsi};
use lowtide_core::{FolioId, MemcgId};
use std::collections::BTreeMap;

/// Ticks a second of the simulated kernel.
const HZ: u64 = 1000;
/// Pages over a limit that a task may accumulate before it pays in the middle of what it does.
const BATCH: u64 = 64;
/// A debt below this is not worth looking at.
const NOT_WORTH_NS: u64 = lowtide_core::high::handler::NOT_WORTH_NS;

/// A task as a member of its group.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub memcg: MemcgId,
    /// Pages charged over a limit, not answered for.
    over_high: u64,
    debt: TaskDebt,
    psi: TaskPsi,
    paying: bool,
    /// Reads that it has submitted since it last waited.
    reads: Reads,
}

impl Default for Member {
    fn default() -> Self {
        Self {
            memcg: MemcgId::ROOT,
            over_high: 0,
            debt: TaskDebt::default(),
            psi: TaskPsi::new(0),
            paying: false,
            reads: Reads::default(),
        }
    }
}

/// Reads that a task has submitted, one after another.
#[derive(Clone, Copy, Debug, Default)]
struct Reads {
    /// When the first was submitted; `None` without any.
    from: Option<u64>,
    /// When the last will have been served.
    until: u64,
    bytes: u64,
}

/// The members of all groups, and refaults whose contents are on their way.
#[derive(Debug, Default)]
pub struct Groups {
    members: Vec<Member>,
    pub io_max: IoLimits,
    refaults: BTreeMap<FolioId, Refaulted>,
}

impl Groups {
    fn member(&mut self, id: TaskId) -> &mut Member {
        let index = id.0 as usize;
        if index >= self.members.len() {
            self.members.resize_with(index + 1, Member::default);
        }
        &mut self.members[index]
    }
}

impl World {
    /// The group that a task charges.
    pub fn memcg(&self, id: TaskId) -> MemcgId {
        self.groups.members.get(id.0 as usize).map_or(MemcgId::ROOT, |member| member.memcg)
    }

    /// Makes a task a member of a group. What it charged before stays where it is.
    pub fn join(&mut self, id: TaskId, memcg: MemcgId) {
        self.groups.member(id).memcg = memcg;
    }

    /// Submits a read for a task, and remembers how long it keeps the device. Returns the CPU
    /// nanoseconds that the device takes of the task.
    pub fn submit_read_of(
        &mut self,
        id: TaskId,
        file: FileId,
        first: u64,
        frames: Vec<FolioId>,
    ) -> u64 {
        let now = self.sched.local(id);
        let bytes = frames.len() as u64 * self.page_bytes;
        let start = self.groups.io_max.admit(self.memcg(id), now, bytes);
        let reads = &mut self.groups.member(id).reads;
        reads.from.get_or_insert(now);
        reads.bytes += bytes;
        if start > now {
            self.hold_read(start, id, file, first, frames);
            return 0;
        }
        let (until, copied) = self.submit_read(now, file, first, frames);
        self.served(id, until);
        copied
    }

    /// The last read of a task will have been served by then.
    pub fn served(&mut self, id: TaskId, until: u64) {
        self.groups.member(id).reads.until = until;
    }

    /// A page that came back is on its way.
    pub fn note_refault(&mut self, frame: FolioId, refaulted: Option<Refaulted>) {
        if let Some(refaulted) = refaulted {
            self.groups.refaults.insert(frame, refaulted);
        }
    }

    /// A page's contents have arrived, or never will.
    pub fn forget_refault(&mut self, frame: FolioId) {
        self.groups.refaults.remove(&frame);
    }

    /// Whether a page that is on its way came back.
    fn refault_of(&self, object: ObjectId, page: u64) -> Option<Refaulted> {
        let frame = self.pool.frame(object, page)?;
        self.groups.refaults.get(&frame).copied()
    }

    fn psi(&mut self, id: TaskId, now: u64, change: impl FnOnce(&mut TaskPsi) -> Change) {
        let member = self.groups.member(id);
        let (memcg, change) = (member.memcg, change(&mut member.psi));
        self.pool.engine.psi_change(memcg, change, now);
    }
}

/// A wait that is to be booked when it is over.
#[derive(Debug)]
pub(super) struct Wait {
    refaulted: Refaulted,
    began: u64,
}

impl Ctx {
    /// The group that this task charges.
    pub fn memcg(&self) -> MemcgId {
        self.w().memcg(self.id)
    }

    /// Notes pages that were charged over a limit, and pays if it is too much already.
    pub(super) async fn charged_over(&self, pages: u64) {
        if pages == 0 {
            return;
        }
        let much = {
            let mut world = self.w();
            let member = world.groups.member(self.id);
            member.over_high += pages;
            member.over_high > BATCH && !member.paying
        };
        if much {
            self.pay().await;
        }
    }

    /// Begins to wait for a page: as a stall, if it is one that came back.
    pub(super) fn wait_begins(&self, object: ObjectId, page: u64) -> Option<Wait> {
        let began = self.now();
        let mut world = self.w();
        let refaulted = world.refault_of(object, page)?;
        if refaulted.recent {
            world.psi(self.id, began, TaskPsi::enter_stall);
        }
        Some(Wait { refaulted, began })
    }

    /// Ends such a wait: books it.
    pub(super) fn wait_ends(&self, wait: Option<&Wait>) {
        let now = self.now();
        let world = &mut *self.w();
        let reads = std::mem::take(&mut world.groups.member(self.id).reads);
        let Some(&Wait { refaulted, began }) = wait else { return };
        if refaulted.recent {
            world.psi(self.id, now, TaskPsi::leave_stall);
        }
        let member = world.groups.member(self.id);
        let bytes = reads.bytes.max(world.page_bytes);
        // The first reads of a window are served while the last are still being submitted, and the
        // last when the requested page is there: they cost the others the same, whichever task
        // waits for them.
        let stall_ns = reads.until.max(now) - reads.from.map_or(began, |from| from.min(began));
        world.pool.engine.stalled(member.memcg, &refaulted, stall_ns, bytes, &mut member.debt, now);
    }

    /// Direct reclaim begins, or ends: a stall.
    pub(super) fn reclaim_stall(&self, begins: bool) {
        let now = self.now();
        self.w().psi(
            self.id,
            now,
            if begins { TaskPsi::enter_stall } else { TaskPsi::leave_stall },
        );
    }

    /// Pays what is owed before the task returns to its program. It must hold nothing.
    pub async fn settle_limits(&self) {
        let owes = {
            let world = &mut *self.w();
            let now = world.sched.local(self.id);
            let member = world.groups.member(self.id);
            // Reads in advance, which no task waits for, end with the operation.
            member.reads = Reads::default();
            let over = member.over_high > 0;
            over || world.pool.engine.owes(member.memcg, &member.debt, now) > NOT_WORTH_NS
        };
        if owes {
            self.pay().await;
        }
    }

    async fn pay(&self) {
        let mut payment = {
            let world = &mut *self.w();
            let member = world.groups.member(self.id);
            member.paying = true;
            Payment::new(&world.pool.engine, member.memcg, &mut member.over_high)
        };
        let mut reclaimed = None;
        loop {
            let next = {
                let world = &mut *self.w();
                let now = world.sched.local(self.id);
                let task = world.engine_task(self.id, false);
                let member = world.groups.member(self.id);
                let number = u64::from(self.id.0);
                let mut payer =
                    Payer { task, debt: &mut member.debt, number, hz: HZ, dying: false };
                payment.next(&mut world.pool.engine, &mut payer, now, reclaimed.take())
            };
            match next {
                HighNext::Reclaim(reclaim) => {
                    self.reclaim_stall(true);
                    reclaimed = Some(self.reclaim(*reclaim).await);
                    self.reclaim_stall(false);
                }
                HighNext::Sleep { ns, .. } => {
                    let now = self.now();
                    {
                        let mut world = self.w();
                        world.counts.high_sleeps += 1;
                        world.counts.high_sleep_ns += ns;
                        world.psi(self.id, now, TaskPsi::enter_throttle);
                    }
                    self.sleep(ns).await;
                    let now = self.now();
                    self.w().psi(self.id, now, TaskPsi::leave_throttle);
                }
                HighNext::Done => break,
            }
        }
        self.w().groups.member(self.id).paying = false;
    }
}
