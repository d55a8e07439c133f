//! The texts of `memory.stat` and `memory.events`, with every key that the kernel prints, in its
//! order (`docs/kernel/memcg.md` §12.2, 13).
//!
//! Readers look keys up by name, and some require a key to be present. So keys for what does not
//! exist here are printed as 0: kernel memory, network buffers, NUMA, and pages mapped by a
//! processor's page tables (`file_mapped`; views reach pages through translations). The lines of
//! zswap are those of a driver that keeps pages compressed in memory; `pswpin` and `pswpout` count
//! these pages, too, as they do where the kernel swaps to zram. `hugetlb`, which the kernel prints
//! only on request, is not among them. Sizes are in bytes.

use super::table::{Numbers, Unit};
use super::{MemcgEvents, MemoryStat, SwapEvents};
use std::fmt;

/// The lines that a structure has in a file of the kernel's, with those that follow each.
fn lines(of: &impl Numbers, page_bytes: u64, to: &mut dyn FnMut(&'static str, u64)) {
    of.each(&mut |counter, value| {
        if !counter.is_kernels {
            return;
        }
        let is_size = counter.unit == Unit::Pages && !counter.grows;
        to(counter.name, value.whole() * if is_size { page_bytes } else { 1 });
        counter.followed_by.iter().for_each(|absent| to(absent, 0));
    });
}

/// The lines as text.
fn print(
    f: &mut fmt::Formatter<'_>,
    all: impl FnOnce(&mut dyn FnMut(&'static str, u64)),
) -> fmt::Result {
    let mut written = Ok(());
    all(&mut |key, value| written = written.and_then(|()| writeln!(f, "{key} {value}")));
    written
}

impl MemoryStat {
    /// Calls with each line of `memory.stat`: a key and its value, sizes in bytes.
    pub fn lines(&self, mut to: impl FnMut(&'static str, u64)) {
        lines(self, self.page_bytes, &mut to);
    }
}

impl fmt::Display for MemoryStat {
    /// The text of `memory.stat`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print(f, |to| self.lines(to))
    }
}

impl fmt::Display for MemcgEvents {
    /// The text of `memory.events`. The engine kills no task: those keys are 0.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print(f, |to| lines(self, 1, to))
    }
}

impl fmt::Display for SwapEvents {
    /// The text of `memory.swap.events`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print(f, |to| lines(self, 1, to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::ZswapEvents;
    use crate::policy::Policy;
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
        engine.count_zswap(other, &ZswapEvents::stored(1));
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
        let text = stat.to_string();
        let theirs = |name: &&str| {
            !ours.contains(name) && !our_prefixes.iter().any(|prefix| name.starts_with(prefix))
        };
        for name in stat.events.iter().map(|(name, _)| name).filter(theirs) {
            assert!(text.contains(&format!("\n{name} ")), "{name}");
        }
        for (name, _) in stat.sizes() {
            assert!(format!("\n{text}").contains(&format!("\n{name} ")), "{name}");
        }
    }

    #[test]
    fn memory_events_has_the_keys_of_the_kernel_in_order() {
        let events = MemcgEvents { low: 1, high: 2, max: 3, oom: 4 };
        let text = "low 1\nhigh 2\nmax 3\noom 4\noom_kill 0\noom_group_kill 0\nsock_throttled 0\n";
        assert_eq!(events.to_string(), text);
    }
}
