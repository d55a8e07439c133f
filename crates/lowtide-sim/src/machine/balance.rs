//! Dirty throttling: a task that has dirtied enough answers for it, before it goes on.
//!
//! The engine decides how long the task sleeps and which flusher is woken
//! ([`Engine::balance_dirty`](lowtide_core::Engine::balance_dirty)); this file carries it out. A
//! throttled task holds no lock and no page. The engine sees group statistics as they were last
//! published, up to two seconds ago, so that a small group may be full of dirty pages before any
//! task is throttled (`docs/kernel/fault-and-writeback.md` B3, B12).

use super::ctx::Ctx;
use super::files::FileId;

impl Ctx {
    /// A task answers for what it has dirtied of a file.
    pub async fn balance_dirty(&self, file: FileId) {
        loop {
            let balance = {
                let world = &mut *self.w();
                let now = world.sched.local(self.id);
                let space = world.files[file.0 as usize].space();
                let dirtier = &mut world.sched.task(self.id).dirtier;
                let balance = world.pool.engine.balance_dirty(dirtier, space, now);
                if balance.wake_flusher {
                    world.rouse_flusher();
                }
                let pause_ns = balance.pause_ns.unwrap_or(0);
                world.counts.dirty_pauses += u64::from(pause_ns > 0);
                world.counts.dirty_throttled_ns += pause_ns;
                balance
            };
            let Some(pause_ns) = balance.pause_ns else { return };
            self.sleep(pause_ns).await;
            if !balance.again {
                return;
            }
        }
    }
}
