//! Writing `memory.max`: the task that lowers the budget evicts what is above it, in its own time
//! (`docs/kernel/reclaim.md` §7.2).

use super::ctx::Ctx;
use lowtide_core::{ConfigError, MemcgId, Reason, Reclaim};

/// Fruitless invocations after which it gives up. The kernel then starts to kill; here charges fail
/// until there is room.
const TRIES: u32 = 16;

impl Ctx {
    /// Sets the budget to `pages` and reclaims until usage is within it. Returns whether it is.
    ///
    /// # Errors
    /// [`ConfigError`] when the budget is impossible.
    pub async fn set_max(&self, pages: u64) -> Result<bool, ConfigError> {
        self.w().pool.engine.set_max(MemcgId::ROOT, pages)?;
        let mut tries = TRIES;
        loop {
            let reclaim = {
                let world = self.w();
                let engine = &world.pool.engine;
                // Another task may have written another limit meanwhile.
                let above = engine.usage(MemcgId::ROOT).saturating_sub(engine.max(MemcgId::ROOT));
                if above == 0 {
                    return Ok(true);
                }
                if tries == 0 {
                    return Ok(false);
                }
                Reclaim::new(
                    MemcgId::ROOT,
                    above,
                    Reason::Direct,
                    world.engine_task(self.id, false),
                )
            };
            if self.reclaim(reclaim).await == 0 {
                tries -= 1;
            }
        }
    }
}
