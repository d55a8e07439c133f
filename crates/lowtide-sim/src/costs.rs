//! The costs of the simulated machine's CPU: every such number is in this file.
//!
//! ## The model
//!
//! A simulated task takes time in three ways: it computes, it waits (for a device, a lock, a CPU),
//! and it pays for the kernel's work on its behalf. This table is the third. Waiting is not in it:
//! it comes out of the simulation, so a cost is that of the *uncontended* step, and a step that
//! sleeps has the price of going to sleep and being woken, not of the sleep.
//!
//! Costs are *parts*, made to be added:
//!
//! ```text
//! first touch of anonymous memory  minor_fault + alloc_page + clear_page + charge + insert
//!                                  = 2,100 (measured)
//! fault on pages that are cached   fault_around (up to 16 pages are mapped), or minor_fault for
//!                                  a single one
//! fault that reads                 minor_fault + major_fault_cpu
//!                                  + (alloc_page + charge + insert) for each page read
//!                                  + submit_io + complete_io for each command
//!                                  + io_page for each page of it
//!                                  + context_switch + wakeup where the device takes its time
//! read(), pages cached             syscall + (lookup + copy_page) for each page
//! freeing one page by reclaim      scan_folio + judge + (look + unmap) for each translation
//!                                  + free_page
//!                                  + batch_lock and tlb_flush shared by the batch
//! a page of a heap to zram         all of that + compress + zram_io + swap_slot, and tlb_flush for
//!                                  itself if it was stored to
//! ```
//!
//! ## How far to trust them
//!
//! Each number has its source: a section of `docs/kernel/workloads.md` with that page's own word
//! for it (*measured*, *derived* from published figures, *assumed*), or the word *guess*, which
//! means the usual order of magnitude of a server at 2.5 GHz and no more. The sums of the guesses
//! are known better than each of them: the tests of this file check the sums. A result that changes
//! its sign when a guess is doubled is no result; `[costs]` in a machine's file changes any of
//! them.

use serde::{Deserialize, Serialize};

use crate::spec::{BadValue, Compressor, Limit, Unit, Whole};

/// What one cost may be, in nanoseconds.
const fn limit(key: &'static str) -> Limit {
    Limit {
        key,
        least: 0,
        most: 1_000_000_000,
        unit: Unit::Nanoseconds,
        below: "nothing gives time back",
        above: "a step that takes more than a second is a wait and no cost",
    }
}

/// Declares the table: documentation, name and default of each cost, once.
macro_rules! costs {
    ($($(#[$doc:meta])* $name:ident: $default:literal,)*) => {
        /// Every CPU cost of the simulated kernel, in nanoseconds. The fields say what is included.
        ///
        /// Costs of moving bytes are those of 4 KiB; a machine with other base pages scales them by
        /// the size.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize)]
        pub struct Costs {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Default for Costs {
            fn default() -> Self {
                Self { $($name: $default,)* }
            }
        }

        impl Costs {
            /// All costs by name, in the order of declaration.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }

            /// All costs, multiplied.
            pub const fn times(&self, times: u64) -> Self {
                Self { $($name: self.$name * times,)* }
            }

            /// Bringing in a page that is read: allocated, charged, inserted, part of a command.
            pub(crate) const fn read_page(&self) -> u64 {
                self.alloc_page_ns + self.charge_ns + self.insert_ns + self.io_page_ns
            }

            /// Making a page that has no contents yet, for a write of all of it.
            pub(crate) const fn new_page(&self) -> u64 {
                self.alloc_page_ns + self.charge_ns + self.insert_ns
            }

            /// What a fault that maps several cached pages costs more than one that maps its own.
            pub(crate) const fn around_ns(&self) -> u64 {
                self.fault_around_ns.saturating_sub(self.minor_fault_ns)
            }

            /// Making a page of a heap, or of a hole in a file, on top of the fault.
            pub(crate) const fn zero_page(&self) -> u64 {
                self.new_page() + self.clear_page_ns
            }

            /// Compressing a page.
            #[must_use]
            pub const fn compress(&self, compressor: Compressor) -> u64 {
                match compressor {
                    Compressor::LzoRle => self.compress_ns,
                    Compressor::Lz4 => self.compress_lz4_ns,
                    Compressor::Zstd => self.compress_zstd_ns,
                }
            }

            /// Decompressing one.
            #[must_use]
            pub const fn decompress(&self, compressor: Compressor) -> u64 {
                match compressor {
                    Compressor::LzoRle => self.decompress_ns,
                    Compressor::Lz4 => self.decompress_lz4_ns,
                    Compressor::Zstd => self.decompress_zstd_ns,
                }
            }

            /// The costs of a machine on which a page stands for `pages` pages: all that is paid
            /// for pages, tables, batches and commands is as many times as much. What does not come
            /// with pages stays: switches, wake-ups and ticks.
            #[must_use]
            pub fn coarse(&self, pages: f64) -> Self {
                let times = |ns: u64| (ns as f64 * pages).round() as u64;
                Self {
                    context_switch_ns: self.context_switch_ns,
                    wakeup_ns: self.wakeup_ns,
                    tick_ns: self.tick_ns,
                    ..Self { $($name: times(self.$name),)* }
                }
            }

            /// Checks that every cost can be charged.
            ///
            /// # Errors
            /// [`BadValue`] for the first cost of more than a second.
            pub fn validate(&self) -> Result<(), BadValue> {
                $(limit(concat!("costs.", stringify!($name))).check(self.$name.into())?;)*
                Ok(())
            }
        }

        /// The `[costs]` table of a machine's file: any of the costs.
        #[derive(Debug, Default, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub(crate) struct CostsFile {
            $($name: Option<Whole>,)*
        }

        impl CostsFile {
            /// The base's costs with those of the file in their place.
            ///
            /// # Errors
            /// [`BadValue`] for a cost that cannot be charged.
            pub(crate) fn over(self, base: &Costs) -> Result<Costs, BadValue> {
                Ok(Costs {
                    $($name: limit(concat!("costs.", stringify!($name)))
                        .take(self.$name, base.$name)?,)*
                })
            }
        }
    };
}

costs! {
    // Accesses.

    /// One load or store of a mapped page that the caches do not hold. `docs/kernel/workloads.md`
    /// §0.4, assumed.
    touch_ns: 100,
    /// The same where the neighbour was touched before, so that the hardware has fetched ahead.
    /// `docs/kernel/workloads.md` §0.4, assumed.
    touch_sequential_ns: 30,
    /// Copy of one page between user memory and the cache. `docs/kernel/workloads.md` §0.4,
    /// assumed.
    copy_page_ns: 250,
    /// Into a system call and out of it, with finding the open file. Guess.
    syscall_ns: 200,
    /// Finding one page in the index of a file's cached pages. Guess.
    lookup_ns: 80,
    /// Marking one clean page dirty: tag in the index, counters, the dirty limit's poll. Guess.
    mark_dirty_ns: 150,

    // Faults.

    /// A fault that maps one page which is there: exception, VMA, walk to the entry, setting it,
    /// return. Guess, so that a first touch of anonymous memory adds up to 2,100
    /// (`docs/kernel/workloads.md` §0.4, measured).
    minor_fault_ns: 1_000,
    /// A whole fault that maps up to 16 cached pages, in place of `minor_fault_ns`.
    /// `docs/kernel/workloads.md` §0.4, assumed.
    fault_around_ns: 1_500,
    /// What a fault that must read pays on top of `minor_fault_ns`: choosing the window, dropping
    /// the lock, the second attempt. Guess, so that a miss of fio on a ramdisk adds up
    /// (`docs/kernel/workloads.md` §6, derived).
    major_fault_cpu_ns: 1_500,
    /// Taking one page from the allocator's per-CPU list. Guess.
    alloc_page_ns: 200,
    /// Filling one page with zeros. Guess.
    clear_page_ns: 350,
    /// Charging one page to its group. Guess.
    charge_ns: 250,
    /// Inserting one page: index or reverse map, and the batch of additions to the LRU. Guess.
    insert_ns: 300,

    // Address spaces.

    /// Making or removing one mapping, apart from its pages: time under the mmap_lock held for
    /// writing. Guess.
    mmap_ns: 1_500,
    /// Dropping one translation of a range that goes as a whole (munmap, exit). Measured on a
    /// virtual machine with two cores, for a large batch; `docs/kernel/workloads.md` §9 derives 37
    /// to 73.
    zap_ns: 57,

    // Reclaim.

    /// One pass of reclaim over a group, besides the folios it looks at: finding the group, its
    /// sizes and its budget, draining the CPU's batches, the shrinkers. Guess.
    reclaim_pass_ns: 1_000,
    /// Looking at one folio of a list, and taking it off or moving it: under the lruvec lock.
    /// Guess.
    scan_folio_ns: 60,
    /// Judging one isolated folio, without the lruvec lock: its own lock, dirty, young. Guess.
    judge_ns: 150,
    /// Looking at one translation of a folio that is judged, found by way of the reverse map: each
    /// is in another process's table. Measured on a classical kernel (Linux 6.18, a virtual machine
    /// with two cores): `docs/design/fidelity.md`.
    look_ns: 180,
    /// Dropping one translation of a victim, found by way of the reverse map. Guess; several times
    /// `zap_ns`, as each is in another table.
    unmap_ns: 300,
    /// Freeing one page: out of the index, a shadow in its place, uncharged, back to the allocator.
    /// Guess.
    free_page_ns: 500,
    /// Taking and releasing the lruvec lock once without contention. Guess.
    batch_lock_ns: 200,
    /// Requesting that the other CPUs flush translations, until all have answered: once for a
    /// batch, and once for each page of a heap that was stored to. Guess.
    tlb_flush_ns: 3_000,
    /// Aging: entering one page table of at most 512 entries. Guess.
    walk_table_ns: 300,
    /// Aging: one entry of a table that is entered. Guess.
    walk_entry_ns: 5,
    /// Aging: what an entry that is young costs more: clearing it, finding its folio, moving that
    /// to the new generation. Guess.
    walk_young_ns: 60,

    // Input and output.

    /// Building and submitting one command: file system, block layer, driver. Guess.
    submit_io_ns: 1_500,
    /// Completing one command: interrupt, block layer. Guess.
    complete_io_ns: 700,
    /// What each page of a command costs: adding it, and making it up to date or clean at the end.
    /// A write pays it for each folio. Guess.
    io_page_ns: 150,
    /// What each folio costs the flusher besides: finding it dirty, tagging it, write-protecting
    /// it. Guess.
    writeback_page_ns: 250,

    // Swap.

    /// Taking or returning one swap slot, with its entry in the swap cache, in the cluster of this
    /// CPU. Measured on Linux 6.18, a virtual machine with two cores:
    /// `docs/design/fidelity.md`.
    swap_slot_ns: 570,
    /// Taking a cluster of 512 slots, under a lock that all CPUs share. Guess.
    swap_cluster_ns: 1_000,
    /// Finding that a page holds nothing but zeros, which takes the place of compressing it: a page
    /// is read. Guess.
    find_zeros_ns: 150,
    /// Storing or loading one compressed page besides compressing it: the request, room for it,
    /// copying. Measured, as `swap_slot_ns`.
    zram_io_ns: 1_400,
    /// Compressing one page for zram with lzo-rle. `docs/kernel/workloads.md` §0.4, assumed.
    compress_ns: 2_500,
    /// Decompressing one page of zram with lzo-rle. `docs/kernel/workloads.md` §0.4, assumed.
    decompress_ns: 1_000,
    /// Compressing one page with lz4: `compress_ns`, times a measured ratio of 1.00
    /// (`spec/compressor.rs`).
    compress_lz4_ns: 2_500,
    /// Decompressing one page of lz4: `decompress_ns`, times a measured ratio of .47.
    decompress_lz4_ns: 470,
    /// Compressing one page with zstd, level 3: `compress_ns`, times a measured ratio of 2.45.
    compress_zstd_ns: 6_100,
    /// Decompressing one page of zstd: `decompress_ns`, times a measured ratio of 1.23.
    decompress_zstd_ns: 1_230,

    // The scheduler.

    /// From one task to another on the same CPU, with what the caches forget. Guess.
    context_switch_ns: 1_500,
    /// Making a sleeping task runnable, paid by the waker. Guess.
    wakeup_ns: 1_000,
    /// The timer interrupt of a busy CPU, once a tick. Guess.
    tick_ns: 1_000,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::DeviceSpec;

    /// `docs/kernel/workloads.md` §0.4, measured: system time by minor faults of 626 compiler runs.
    #[test]
    fn a_first_touch_of_anonymous_memory_costs_what_was_measured() {
        let costs = Costs::default();
        let sum = costs.minor_fault_ns
            + costs.alloc_page_ns
            + costs.clear_page_ns
            + costs.charge_ns
            + costs.insert_ns;
        assert_eq!(sum, 2_100);
    }

    /// `docs/kernel/workloads.md` §6, derived: 8.5 to 9 µs with 16 jobs, of which an unknown part
    /// is waiting for locks.
    #[test]
    fn a_miss_on_a_ramdisk_costs_most_of_what_fio_shows() {
        let costs = Costs::default();
        let device = DeviceSpec::preset("ramdisk").unwrap();
        assert!(device.synchronous);
        let batch = 32;
        let reclaim = costs.scan_folio_ns
            + costs.judge_ns
            + costs.look_ns
            + costs.unmap_ns
            + costs.free_page_ns
            + (costs.batch_lock_ns + costs.tlb_flush_ns) / batch;
        let fault =
            costs.minor_fault_ns + costs.major_fault_cpu_ns + costs.alloc_page_ns + costs.charge_ns;
        let io = costs.submit_io_ns + costs.complete_io_ns + costs.io_page_ns + device.read_ns;
        let hit = 550;
        let sum = hit + fault + costs.insert_ns + io + reclaim;
        assert!((7_500..=9_000).contains(&sum), "{sum} ns");
    }

    /// `docs/kernel/workloads.md` §9: munmap of 4,096 mapped pages takes 150 to 300 µs.
    #[test]
    fn unmapping_sixteen_mebibytes_costs_what_the_retry_storm_shows() {
        let costs = Costs::default();
        assert!((150_000..=300_000).contains(&(costs.mmap_ns + 4_096 * costs.zap_ns)));
    }

    #[test]
    fn the_names_are_those_of_the_fields() {
        let costs = Costs::default();
        assert!(costs.iter().any(|cost| cost == ("compress_ns", 2_500)));
        assert!(costs.iter().all(|(name, ns)| name.ends_with("_ns") && ns > 0));
    }
}
