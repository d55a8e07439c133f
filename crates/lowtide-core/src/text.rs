//! The texts of `memory.stat` and `memory.events`, with every key that the kernel prints, in its
//! order (`docs/kernel/memcg.md` §12.2, 13).
//!
//! Readers look keys up by name, and some require a key to be present. So keys for what does not
//! exist here are printed as 0: kernel memory, network buffers, NUMA, and pages mapped by a
//! processor's page tables (`file_mapped`; views reach pages through translations). The lines of
//! zswap are those of a driver that keeps pages compressed in memory; `pswpin` and `pswpout` count
//! these pages, too, as they do where the kernel swaps to zram. Sizes are in bytes.

use crate::stat::{MemcgEvents, MemoryStat, SwapEvents};
use std::fmt;

/// Where the value of a key comes from.
#[derive(Clone, Copy)]
enum Value {
    /// A size in base pages, printed in bytes.
    Pages(fn(&MemoryStat) -> u64),
    /// A size in bytes.
    Bytes(fn(&MemoryStat) -> u64),
    /// A count.
    Count(fn(&MemoryStat) -> u64),
    /// Does not exist here.
    Zero,
}

macro_rules! pages {
    ($name:ident) => {
        (stringify!($name), Value::Pages(|stat| stat.$name))
    };
}

macro_rules! count {
    ($name:ident) => {
        (stringify!($name), Value::Count(|stat| stat.events.$name))
    };
}

macro_rules! zswap {
    ($name:ident) => {
        (stringify!($name), Value::Count(|stat| stat.zswap_events.$name))
    };
}

macro_rules! zero {
    ($name:ident) => {
        (stringify!($name), Value::Zero)
    };
}

/// The lines of `memory.stat`. `hugetlb`, which the kernel prints only on request, is not among
/// them.
const STAT: &[(&str, Value)] = &[
    pages!(anon),
    pages!(file),
    zero!(kernel),
    zero!(kernel_stack),
    zero!(pagetables),
    zero!(sec_pagetables),
    zero!(percpu),
    zero!(sock),
    zero!(vmalloc),
    zero!(shmem),
    ("zswap", Value::Bytes(|stat| stat.zswap)),
    pages!(zswapped),
    pages!(zswap_incomp),
    zero!(file_mapped),
    pages!(file_dirty),
    pages!(file_writeback),
    pages!(swapcached),
    zero!(anon_thp),
    zero!(file_thp),
    zero!(shmem_thp),
    pages!(inactive_anon),
    pages!(active_anon),
    pages!(inactive_file),
    pages!(active_file),
    pages!(unevictable),
    zero!(slab_reclaimable),
    zero!(slab_unreclaimable),
    zero!(slab),
    count!(workingset_refault_anon),
    count!(workingset_refault_file),
    count!(workingset_activate_anon),
    count!(workingset_activate_file),
    count!(workingset_restore_anon),
    count!(workingset_restore_file),
    count!(workingset_nodereclaim),
    zero!(pgdemote_kswapd),
    zero!(pgdemote_direct),
    zero!(pgdemote_khugepaged),
    zero!(pgdemote_proactive),
    count!(pgsteal_kswapd),
    count!(pgsteal_direct),
    zero!(pgsteal_khugepaged),
    count!(pgsteal_proactive),
    count!(pgscan_kswapd),
    count!(pgscan_direct),
    zero!(pgscan_khugepaged),
    count!(pgscan_proactive),
    count!(pgrefill),
    zero!(pgpromote_success),
    count!(pgscan),
    count!(pgsteal),
    count!(pswpin),
    count!(pswpout),
    count!(pgfault),
    count!(pgmajfault),
    count!(pgactivate),
    count!(pgdeactivate),
    count!(pglazyfree),
    count!(pglazyfreed),
    zero!(swpin_zero),
    zero!(swpout_zero),
    zswap!(zswpin),
    zswap!(zswpout),
    zswap!(zswpwb),
    zero!(thp_fault_alloc),
    zero!(thp_collapse_alloc),
    zero!(thp_swpout),
    zero!(thp_swpout_fallback),
    zero!(numa_pages_migrated),
    zero!(numa_pte_updates),
    zero!(numa_hint_faults),
];

impl fmt::Display for MemoryStat {
    /// The text of `memory.stat`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        STAT.iter().try_for_each(|(key, value)| {
            let value = match value {
                Value::Pages(pages) => pages(self) * self.page_bytes,
                Value::Bytes(value) | Value::Count(value) => value(self),
                Value::Zero => 0,
            };
            writeln!(f, "{key} {value}")
        })
    }
}

impl fmt::Display for MemcgEvents {
    /// The text of `memory.events`. The engine kills no task: those keys are 0.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { low, high, max, oom } = self;
        writeln!(f, "low {low}\nhigh {high}\nmax {max}\noom {oom}")?;
        writeln!(f, "oom_kill 0\noom_group_kill 0\nsock_throttled 0")
    }
}

impl fmt::Display for SwapEvents {
    /// The text of `memory.swap.events`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { high, max, fail } = self;
        writeln!(f, "high {high}\nmax {max}\nfail {fail}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;
    use crate::stat::ZswapEvents;
    use crate::testing::filled;
    use crate::units::{LruType, MemcgId};

    /// `docs/kernel/memcg.md` §12.2 without `hugetlb`.
    #[test]
    fn memory_stat_has_seventy_one_keys_once_each() {
        let text = MemoryStat::default().to_string();
        let keys: std::collections::HashSet<_> =
            text.lines().filter_map(|l| l.split(' ').next()).collect();
        assert_eq!((text.lines().count(), keys.len()), (71, 71));
        assert!(
            text.starts_with("anon 0\nfile 0\nkernel 0\n")
                && text.ends_with("numa_hint_faults 0\n")
        );
    }

    #[test]
    fn zswap_is_in_bytes_by_group_and_what_it_was_stays_with_the_parent() {
        let mut engine = filled(Policy::MGLRU, 64, LruType::File);
        let [group, other] = [(); 2].map(|()| engine.create_group(MemcgId::ROOT).unwrap());
        engine.count_zswap(group, &ZswapEvents { zswpin: 1, zswpout: 5, zswpwb: 2 });
        engine.count_zswap(other, &ZswapEvents { zswpout: 1, ..ZswapEvents::default() });
        let mut stat = engine.stat(group);
        (stat.zswap, stat.zswapped, stat.zswap_incomp) = (100, 2, 1);
        let (text, page) = (stat.to_string(), stat.page_bytes);
        let sizes = format!("\nzswap 100\nzswapped {}\nzswap_incomp {page}\n", 2 * page);
        assert!(text.contains(&sizes) && text.contains("\nzswpin 1\nzswpout 5\nzswpwb 2\n"));
        engine.remove_group(group).unwrap();
        let text = engine.stat(MemcgId::ROOT).to_string();
        assert!(text.contains("\nzswpin 1\nzswpout 6\nzswpwb 2\n"), "{text}");
    }

    #[test]
    fn sizes_are_in_bytes_and_counts_are_not() {
        let mut engine = filled(Policy::MGLRU, 64, LruType::File);
        engine.count_fault(MemcgId::ROOT, true);
        let stat = engine.stat(MemcgId::ROOT);
        let text = stat.to_string();
        assert!(text.contains(&format!("\nfile {}\n", 64 * stat.page_bytes)));
        assert!(text.contains("\npgfault 1\npgmajfault 1\n"));
    }

    /// What is counted under a name of the kernel's file is printed there.
    #[test]
    fn every_counter_with_a_name_of_the_file_is_printed() {
        let ours = [
            "pgrotated",
            "nr_vmscan_immediate_reclaim",
            "nr_wakeup_flushers",
            "aging",
            "protected",
        ];
        let our_prefixes = ["nr_throttled_", "nr_shrink_"];
        let mut engine = filled(Policy::MGLRU, 64, LruType::File);
        engine.count_fault(MemcgId::ROOT, true);
        let stat = engine.stat(MemcgId::ROOT);
        let theirs = |name: &&str| {
            !ours.contains(name) && !our_prefixes.iter().any(|prefix| name.starts_with(prefix))
        };
        for name in stat.events.iter().map(|(name, _)| name).filter(theirs) {
            let counted =
                STAT.iter().any(|(key, value)| *key == name && matches!(value, Value::Count(_)));
            assert!(counted, "{name}");
        }
        for (name, _) in stat.sizes() {
            let counted =
                STAT.iter().any(|(key, value)| *key == name && matches!(value, Value::Pages(_)));
            assert!(counted, "{name}");
        }
    }

    #[test]
    fn memory_events_has_the_keys_of_the_kernel_in_order() {
        let events = MemcgEvents { low: 1, high: 2, max: 3, oom: 4 };
        let text = "low 1\nhigh 2\nmax 3\noom 4\noom_kill 0\noom_group_kill 0\nsock_throttled 0\n";
        assert_eq!(events.to_string(), text);
    }
}
