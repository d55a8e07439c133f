//! Address spaces: what is mapped in them, and mapping and unmapping while the machine runs.
//!
//! ```text
//!   mmap    mmap lock, writing ─ the mapping is made ─ released
//!   munmap  mmap lock, writing ─ the VMA's lock, writing ─ every entry dropped ─ both released
//!                                   │                          └ young: the page was accessed
//!                                   └ waits for the faults that hold it, and all other faults
//!                                     that need the mmap lock wait meanwhile
//! ```
//!
//! A mapping that is gone leaves its number to a later one, so a program that maps and unmaps
//! forever takes no more memory. Source: `docs/kernel/fault-and-writeback.md` A2;
//! `docs/kernel/reclaim.md` §1.2; `docs/kernel/workloads.md` §9.

use super::ctx::Ctx;
use super::files::OpenId;
use super::lock::Contention;
use super::world::{AddressSpace, MappingId, World};

impl AddressSpace {
    /// What waiting for its lock has cost.
    pub fn mmap_lock(self, world: &World) -> Contention {
        world.rwsems[self.mmap_lock.0 as usize].contention
    }

    /// Maps a file that the task has open: `mmap`.
    pub async fn mmap(self, ctx: &Ctx, open: OpenId) -> MappingId {
        ctx.take(self.mmap_lock, true).await;
        let (id, cost) = {
            let mut world = ctx.w();
            (world.map_file(self, open), world.costs.syscall_ns + world.costs.mmap_ns)
        };
        ctx.spend(cost).await;
        ctx.w().release(self.mmap_lock, true);
        id
    }

    /// Removes a mapping of a file: `munmap`. No other task may use it any more.
    pub async fn munmap(self, ctx: &Ctx, id: MappingId) {
        let vma_lock = ctx.w().mappings[id.0 as usize].vma_lock;
        ctx.take(self.mmap_lock, true).await;
        ctx.take(vma_lock, true).await;
        let cost = {
            let world = &mut *ctx.w();
            let entries = self.zap(world, ctx, id);
            let costs = &world.costs;
            let flush = if entries > 0 { costs.tlb_flush_ns } else { 0 };
            costs.syscall_ns + costs.mmap_ns + entries * costs.zap_ns + flush
        };
        ctx.spend(cost).await;
        let mut world = ctx.w();
        world.release(vma_lock, true);
        world.release(self.mmap_lock, true);
        world.free_mappings.push(id);
    }

    /// Drops all entries of a mapping, and the mapping. Pages whose entries are young have been
    /// accessed, as if through the descriptor. Returns how many entries there were.
    fn zap(self, world: &mut World, ctx: &Ctx, id: MappingId) -> u64 {
        let mapping = world.mappings[id.0 as usize];
        let recency = world.has_recency(mapping);
        let task = world.engine_task(ctx.id, false);
        let zapped = world.pool.memory.unmap_object(self.space, mapping.vma);
        for frame in zapped.young.into_iter().filter(|_| recency) {
            world.pool.mark_accessed(frame, task);
        }
        zapped.entries
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Machine, MachineConfig};
    use crate::spec::MachineSpec;
    use lowtide_core::{MemcgId, Policy};
    use std::sync::atomic::AtomicBool;

    const PAGES: u64 = 4_096;

    fn machine(policy: Policy) -> Machine {
        let spec = MachineSpec::load("laptop").unwrap();
        let config = MachineConfig { spec, policy, max: Some(4 * PAGES * 4096), seed: 1 };
        Machine::new(&config).unwrap()
    }

    /// `docs/kernel/workloads.md` §9: 150 to 300 µs for 4,096 pages, under the lock.
    #[test]
    fn a_mapping_that_goes_takes_its_entries_along_and_a_lock_as_long_as_that_takes() {
        let mut m = machine(Policy::MGLRU);
        let (space, open) = {
            let mut world = m.world();
            let file = world.add_sparse_file(PAGES);
            (world.add_address_space(MemcgId::ROOT), world.open(file))
        };
        m.client(async move |ctx| {
            for _ in 0..3 {
                let mapping = space.mmap(&ctx, open).await;
                ctx.sweep(mapping, 0, PAGES, false).await?;
                ctx.settle().await;
                let began = ctx.now();
                space.munmap(&ctx, mapping).await;
                let took = ctx.now() - began;
                assert!((150_000..=300_000).contains(&took), "{took} ns");
            }
            Ok(())
        });
        m.run(&AtomicBool::new(false), &mut || ()).unwrap();
        let world = m.world();
        assert_eq!((world.mappings.len(), world.pool.memory.vmas.len()), (1, 1), "one for all");
        assert!(world.pool.memory.objects.iter().all(|object| object.vmas.is_empty()));
        assert_eq!(world.counts.missing + world.counts.readahead, PAGES, "they stay in the cache");
        assert_eq!(world.device.counts.reads, 0, "a hole is no work for a device");
    }

    /// A reader that faults under the mmap lock waits for a task that unmaps.
    #[test]
    fn faults_wait_for_a_task_that_unmaps_where_they_need_its_lock() {
        let mut m = machine(Policy::MGLRU);
        let (space, opens) = {
            let mut world = m.world();
            let files = [0, 1].map(|_| world.add_sparse_file(PAGES));
            (world.add_address_space(MemcgId::ROOT), files.map(|file| world.open(file)))
        };
        for open in opens {
            m.client(async move |ctx| {
                for _ in 0..20 {
                    let mapping = space.mmap(&ctx, open).await;
                    ctx.sweep(mapping, 0, PAGES, false).await?;
                    space.munmap(&ctx, mapping).await;
                }
                Ok(())
            });
        }
        m.run(&AtomicBool::new(false), &mut || ()).unwrap();
        let world = m.world();
        let lock = world.rwsems[space.mmap_lock.0 as usize].contention;
        assert!(lock.contended > 0 && lock.waited_ns > 10_000, "{lock:?}");
        assert!(world.rwsems.iter().all(super::super::lock::RwSem::is_free));
    }

    /// `docs/kernel/reclaim.md` §1.2: an entry that goes and was young is an access.
    #[test]
    fn a_page_that_was_mapped_young_is_accessed_when_its_mapping_goes() {
        use lowtide_core::Flags;
        for recency in [true, false] {
            let mut m = machine(Policy::LRU);
            let (space, open, object) = {
                let mut world = m.world();
                let file = world.add_sparse_file(PAGES);
                let object = world.file(file).object;
                (world.add_address_space(MemcgId::ROOT), world.open(file), object)
            };
            m.client(async move |ctx| {
                let mapping = space.mmap(&ctx, open).await;
                if !recency {
                    ctx.w().advise_mapping_random(mapping);
                }
                ctx.access(mapping, 7, 1, false).await?;
                space.munmap(&ctx, mapping).await;
                Ok(())
            });
            m.run(&AtomicBool::new(false), &mut || ()).unwrap();
            let world = m.world();
            let frame = world.pool.frame(object, 7).expect("nothing evicts it");
            let flags = world.pool.engine.folio(frame).expect("it is resident").flags();
            let accessed = flags.intersects(Flags::REFERENCED | Flags::ACTIVE);
            assert_eq!(accessed, recency, "{flags:?}");
        }
    }
}
