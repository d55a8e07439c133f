//! When the statistics of groups are published.
//!
//! Each CPU counts for itself. What classical reclaim and the limits of dirty data read is the sum
//! at the last *publication* ([`lowtide_core::Engine::publish`]), of which there are two kinds:
//!
//! * a timer, every two seconds, whatever has happened;
//! * a program that reads a group's statistics, if more than 64 updates for each CPU have gathered.
//!   So who watches a group changes what happens in it, and with two CPUs sooner than with 96.
//!
//! An update is an event here; a kernel also counts those of sizes, so that the bound is reached a
//! little sooner there. Source: `docs/kernel/reclaim.md` §5.6.

use lowtide_core::{Engine, MemcgId, MemoryStat};

/// Updates for each CPU below which a reader gets what is published.
const UPDATES: u64 = 64;

/// See the module documentation.
#[derive(Debug)]
pub struct Published {
    cpus: u64,
    /// Updates until the last publication.
    updates: u64,
}

impl Published {
    pub(super) fn new(cpus: u16) -> Self {
        Self { cpus: cpus.into(), updates: 0 }
    }

    /// The time has come.
    pub(super) fn publish(&mut self, engine: &mut Engine) {
        self.updates = updates(engine);
        engine.publish();
    }

    /// A program reads a group's statistics.
    pub fn read(&mut self, engine: &mut Engine, group: MemcgId) -> MemoryStat {
        if updates(engine) - self.updates > UPDATES * self.cpus {
            self.publish(engine);
        }
        engine.stat(group)
    }
}

fn updates(engine: &Engine) -> u64 {
    engine.stat(MemcgId::ROOT).events.iter().map(|(_, times)| times).sum()
}

#[cfg(test)]
mod tests {
    use super::super::world::World;
    use super::super::{Machine, MachineConfig};
    use super::*;
    use crate::spec::MachineSpec;
    use std::sync::atomic::AtomicBool;

    /// Whether a reader gets fresh figures after 300 faults.
    fn is_fresh(cpus: u32) -> bool {
        let laptop = MachineSpec::load("laptop").expect("a preset");
        let spec = MachineSpec { cpus, memory: 8 << 20, kernel: 0, swap: None, ..laptop };
        let policy = "mglru-7.1".parse().expect("a policy");
        let config = MachineConfig { spec, policy, max: Some(4 << 20), seed: 1 };
        let mut machine = Machine::new(&config).expect("valid");
        let heap = {
            let mut world = machine.world();
            let process = world.add_address_space(MemcgId::ROOT);
            world.map_heap(process, 300)
        };
        machine.client(async move |ctx| ctx.access(heap, 0, 300, true).await.map(drop));
        machine.run(&AtomicBool::new(false), &mut || {}).expect("there is room");
        let mut guard = machine.world();
        let World { published, pool, .. } = &mut *guard;
        assert!(updates(&pool.engine) >= 300 && published.updates == 0);
        let stat = published.read(&mut pool.engine, MemcgId::ROOT);
        assert_eq!(stat.anon, 300, "what is read is exact");
        published.updates > 0
    }

    #[test]
    fn a_reader_has_figures_published_after_64_updates_for_each_cpu() {
        assert!(is_fresh(2));
        assert!(!is_fresh(96));
    }
}
