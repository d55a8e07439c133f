//! Maps where page tables cannot be scanned: without /proc, in a sandbox, on an older kernel. The
//! kernel's mapping is watched through `mincore(2)` then, and kept within its budget all the same.

#![expect(unsafe_code, reason = "mapping is unsafe, and so are filters")]

use crate::common::mapped::{PAGE, await_cached, file, pager, random, word};
use crate::common::scene::{PAGEMAP_SCAN, SKIPPED, assert_well, child, hide, ioctl, refuse};
use lowtide::Pager;
use lowtide::map::{MapError, MapMode, MapOptions};
use std::fs::File;

const PAGES: usize = 4096;

fn refused(pager: &Pager, file: &File, options: &MapOptions, private: bool) -> String {
    let error = if private {
        // SAFETY: nothing changes the file.
        unsafe { options.map_copy(pager, file) }.map(drop).unwrap_err()
    } else {
        // SAFETY: as above.
        unsafe { options.map(pager, file) }.map(drop).unwrap_err()
    };
    assert!(matches!(error, MapError::Mode { .. } | MapError::Kernel { .. }), "{error:?}");
    error.to_string()
}

/// What works, and what does not, once page tables cannot be scanned; a refusal says `word_of_it`.
fn kept_by_mincore(file: &File, pager: &Pager, word_of_it: &str) {
    let way = |way| MapOptions::new().mode(way);
    let userfault = refused(pager, file, &way(MapMode::Userfault), false);
    assert!(userfault.contains(word_of_it) || userfault.contains("userfaultfd"), "{userfault}");
    let copies = refused(pager, file, &way(MapMode::PageCache), true);
    assert!(copies.contains(word_of_it), "{copies}");
    // SAFETY: nothing changes the file.
    let map = unsafe { way(MapMode::Auto).map(pager, file) }.unwrap();
    assert_eq!(map.report().mode, MapMode::PageCache);
    assert!(map.report().how.contains("not what is touched"), "{}", map.report());
    let mut state = 5;
    while pager.stat().memory.events.pgsteal < 8000 {
        let offset = random(&mut state) % (map.len() / 8) * 8;
        assert_eq!(word(&map, offset), offset as u64);
    }
    // In order, too: nothing is read ahead, and nothing is lost.
    (0..PAGES).for_each(|page| assert_eq!(word(&map, page * PAGE), (page * PAGE) as u64));
    assert_eq!(pager.stat().io.ahead_pages, 0);
    await_cached(file, (2 << 20) + (2 << 20) / 8);
    drop(map);
    pager.validate().unwrap();
    assert_eq!(pager.stat().memory.file, 0);
}

#[test]
fn without_proc_a_mapping_of_the_kernel_is_kept_by_what_is_cached_and_a_mirror_is_refused() {
    let played = child(|| {
        let file = file(PAGES);
        // Threads of pagers have the mounts of the one that starts the first of them.
        if !hide(c"/proc") {
            eprintln!("this user cannot mount: {}", std::io::Error::last_os_error());
            return SKIPPED;
        }
        let pager = pager("2M");
        kept_by_mincore(file.as_file(), &pager, "/proc/self/pagemap");
        let view = pager.open(file.path()).unwrap();
        assert_eq!(word(&view.page(2).unwrap(), 0), 2 * PAGE as u64, "views need no /proc");
        0
    });
    played.iter().for_each(assert_well);
}

#[test]
fn a_sandbox_or_kernel_that_does_not_scan_page_tables_leaves_what_is_cached() {
    let played = child(|| {
        let (file, pager) = (file(PAGES), pager("2M"));
        // As a kernel before 6.7 answers.
        if !refuse(&[ioctl(PAGEMAP_SCAN)], libc::ENOTTY) {
            eprintln!("this kernel takes no seccomp filter");
            return SKIPPED;
        }
        kept_by_mincore(file.as_file(), &pager, "PAGEMAP_SCAN");
        0
    });
    played.iter().for_each(assert_well);
}

#[test]
fn a_file_that_others_own_is_refused_since_the_kernel_hides_what_is_cached_of_it() {
    let played = child(|| {
        let (named, pager) = (file(16), pager("1M"));
        let file = File::open(named.path()).unwrap();
        drop(named);
        let other = 65_534;
        // SAFETY: the call takes numbers.
        if unsafe { libc::setresuid(other, other, other) } != 0
            || !refuse(&[ioctl(PAGEMAP_SCAN)], libc::ENOTTY)
        {
            eprintln!("this user cannot become another");
            return SKIPPED;
        }
        let options = MapOptions::new().mode(MapMode::PageCache);
        let text = refused(&pager, &file, &options, false);
        assert!(text.contains("/proc/self/pagemap") || text.contains("PAGEMAP_SCAN"), "{text}");
        0
    });
    played.iter().for_each(assert_well);
}
