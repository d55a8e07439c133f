//! The kernel's files: their texts, read by a parser that was written for the kernel's.

use crate::common::{Dir, byte_at};
use lowtide::{DirtyLimits, DirtyShare, OpenOptions, Pager, Size, Tenant, TenantFile};
use procfs_core::{FromRead, MemoryPressure, VmStat};
use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

const PAGE: u64 = 4096;

/// `docs/kernel/memcg.md` §12.2, without `hugetlb`.
const STAT_KEYS: &str = "anon file kernel kernel_stack pagetables sec_pagetables percpu sock \
    vmalloc shmem zswap zswapped zswap_incomp \
    file_mapped file_dirty file_writeback swapcached anon_thp file_thp shmem_thp inactive_anon \
    active_anon inactive_file active_file \
    unevictable slab_reclaimable slab_unreclaimable slab workingset_refault_anon \
    workingset_refault_file workingset_activate_anon \
    workingset_activate_file workingset_restore_anon workingset_restore_file \
    workingset_nodereclaim pgdemote_kswapd pgdemote_direct \
    pgdemote_khugepaged pgdemote_proactive pgsteal_kswapd pgsteal_direct pgsteal_khugepaged \
    pgsteal_proactive pgscan_kswapd pgscan_direct \
    pgscan_khugepaged pgscan_proactive pgrefill pgpromote_success pgscan pgsteal pswpin pswpout \
    pgfault pgmajfault pgactivate pgdeactivate \
    pglazyfree pglazyfreed swpin_zero swpout_zero zswpin zswpout zswpwb thp_fault_alloc \
    thp_collapse_alloc thp_swpout thp_swpout_fallback \
    numa_pages_migrated numa_pte_updates numa_hint_faults";
const EVENT_KEYS: &str = "low high max oom oom_kill oom_group_kill sock_throttled";

fn pages(n: u64) -> Size {
    Size::new(n * PAGE)
}

fn file(dir: &Dir, name: &str, n: u64) -> PathBuf {
    let path = dir.path().join(name);
    fs::write(&path, (0..n * PAGE).map(byte_at).collect::<Vec<_>>()).unwrap();
    path
}

/// The figures of a text of keys and values, as a parser of `/proc/vmstat`, which has the same
/// form, reads them.
fn figures(text: &str) -> HashMap<String, u64> {
    let VmStat(figures) = VmStat::from_read(text.as_bytes()).unwrap();
    figures.into_iter().map(|(key, value)| (key, value.try_into().unwrap())).collect()
}

fn keys(text: &str) -> Vec<&str> {
    assert!(text.ends_with('\n'));
    text.lines().map(|line| line.split_once(' ').unwrap().0).collect()
}

/// A file of one number.
fn number(text: &str) -> u64 {
    text.strip_suffix('\n').unwrap().parse().unwrap()
}

/// Runs a tenant with a child through reads, writes and limits.
fn busy(dir: &Dir, pager: &Pager) -> (Tenant, Tenant, Vec<Box<dyn std::any::Any>>) {
    let top = pager.tenant("top").low(pages(3)).high(pages(150)).create().unwrap();
    let child = top.child("child").max(pages(100)).create().unwrap();
    let view = child.open(file(dir, "one", 300)).unwrap();
    for page in (0..300).chain(200..300) {
        drop(view.page(page).unwrap());
    }
    let reserved = child.reserve(pages(7)).unwrap();
    child.reclaim(pages(5)).unwrap();
    assert!(child.reserve(pages(200)).is_err());
    let written = OpenOptions::new()
        .create_with_len(50 * PAGE)
        .tenant(&top)
        .open(pager, dir.path().join("two"))
        .unwrap();
    for page in 0..20 {
        written.write_at(page * PAGE, b"dirty").unwrap();
    }
    (top, child, vec![Box::new(view), Box::new(written), Box::new(reserved)])
}

fn pager(max: u64) -> Pager {
    // What is written stays dirty until it is flushed.
    let dirty = DirtyLimits::new(DirtyShare::Percent(90), DirtyShare::Percent(100));
    Pager::builder()
        .max(pages(max))
        .background(false)
        .memory_timeout(Duration::from_millis(30))
        .dirty_limits(dirty)
        .build()
        .unwrap()
}

#[test]
fn memory_stat_has_the_kernels_keys_order_and_units() {
    let (dir, pager) = (Dir::new(), pager(512));
    let (top, child, _open) = busy(&dir, &pager);
    let text = top.text(TenantFile::Stat).unwrap();
    assert_eq!(keys(&text), STAT_KEYS.split_whitespace().collect::<Vec<_>>());
    let (f, stat, below) =
        (figures(&text), top.stat().unwrap(), figures(&child.text(TenantFile::Stat).unwrap()));
    assert_eq!((f["anon"], below["anon"]), (7 * PAGE, 7 * PAGE), "the reservation, in bytes");
    assert_eq!(f["file"], stat.file * PAGE);
    assert_eq!((f["file_dirty"], below["file_dirty"]), (20 * PAGE, 0));
    let listed = f["inactive_file"] + f["active_file"] + f["unevictable"];
    assert!(
        (f["file"] - 31 * PAGE..=f["file"]).contains(&listed),
        "at most a batch waits for its place"
    );
    assert!(
        f["pgmajfault"] >= 300 && f["pgfault"] >= f["pgmajfault"] + 20,
        "a writer to a hole reads nothing"
    );
    assert!(f["pgfault"] >= below["pgfault"] + 20);
    assert!(f["pgsteal_proactive"] >= 5 && f["pgsteal_direct"] > 0);
    assert_eq!(
        f["pgsteal"],
        f["pgsteal_kswapd"]
            + f["pgsteal_direct"]
            + f["pgsteal_proactive"]
            + f["pgsteal_khugepaged"]
    );
    assert_eq!(
        f["pgscan"],
        f["pgscan_kswapd"] + f["pgscan_direct"] + f["pgscan_proactive"] + f["pgscan_khugepaged"]
    );
    let exists = [
        "anon",
        "file",
        "file_dirty",
        "file_writeback",
        "swapcached",
        "inactive_",
        "active_",
        "unevictable",
        "workingset",
        "pg",
        "pswp",
    ];
    for (key, value) in f.iter().filter(|(key, _)| !exists.iter().any(|e| key.starts_with(e))) {
        assert_eq!(*value, 0, "{key} cannot exist here");
    }
}

#[test]
fn memory_events_counts_below_and_memory_events_local_does_not() {
    let (dir, pager) = (Dir::new(), pager(512));
    let (top, child, _open) = busy(&dir, &pager);
    let text = |t: &Tenant, file| t.text(file).unwrap();
    let (all, local) = (text(&top, TenantFile::Events), text(&top, TenantFile::EventsLocal));
    for text in [&all, &local] {
        assert_eq!(keys(text), EVENT_KEYS.split_whitespace().collect::<Vec<_>>());
    }
    let (all, local) = (figures(&all), figures(&local));
    let below = figures(&text(&child, TenantFile::Events));
    assert!(below["max"] > 0 && below["oom"] == 1);
    assert_eq!((local["max"], local["oom"]), (0, 0));
    assert_eq!((all["max"], all["oom"]), (below["max"], 1));
    assert_eq!(all["oom_kill"], 0, "no process is killed");
    assert_eq!(figures(&text(&pager.root(), TenantFile::Events)), all);
}

#[test]
fn files_of_one_number_are_in_bytes_or_say_max() {
    let (dir, pager) = (Dir::new(), pager(512));
    let (top, child, open) = busy(&dir, &pager);
    let text = |t: &Tenant, file| t.text(file).unwrap();
    assert_eq!(number(&text(&top, TenantFile::Current)), top.usage().unwrap());
    drop(open);
    let (now, peak) =
        (number(&text(&top, TenantFile::Current)), number(&text(&top, TenantFile::Peak)));
    assert!(now < peak && peak == top.peak().unwrap());
    assert_eq!(number(&text(&top, TenantFile::Low)), 3 * PAGE);
    assert_eq!(number(&text(&top, TenantFile::High)), 150 * PAGE);
    assert_eq!(number(&text(&child, TenantFile::Max)), 100 * PAGE);
    assert_eq!(text(&top, TenantFile::Min), "0\n");
    assert_eq!(
        (text(&top, TenantFile::Max), text(&top, TenantFile::SwapMax)),
        ("max\n".into(), "max\n".into())
    );
}

#[test]
fn memory_pressure_is_read_by_a_parser_for_the_kernels() {
    let pager = pager(64);
    let text = pager.root().text(TenantFile::Pressure).unwrap();
    let pressure = MemoryPressure::from_read(text.as_bytes()).unwrap();
    for record in [&pressure.some, &pressure.full] {
        assert!((0.0..=100.0).contains(&record.avg10) && (0.0..=100.0).contains(&record.avg300));
    }
    assert!(pressure.full.total <= pressure.some.total);
}
