//! What ends under a mapping: the file, the descriptors, the device.

use super::{Map, PAGE, READ};
use std::fs::File;
use std::io::Write;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::{env, slice, thread};

/// Whether a child that touches a page is ended by SIGBUS.
pub(super) fn touch_is_sigbus(map: Map, page: usize) -> bool {
    // SAFETY: the child reads memory, and ends.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        std::hint::black_box(map.words()[page * PAGE / 8]);
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: the child is ours.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGBUS
}

/// Whether the kernel can read a page of a mapping.
pub(super) fn is_readable(map: Map, page: usize) -> bool {
    let (_reader, mut writer) = std::io::pipe().unwrap();
    // SAFETY: as `words`; where the page cannot come in, the kernel says so.
    let bytes: &[u8] = unsafe { slice::from_raw_parts(map.part(page, 1).start, 8) };
    match writer.write(bytes) {
        Ok(written) => written == bytes.len(),
        Err(error) => {
            assert_eq!(error.raw_os_error(), Some(libc::EFAULT), "{error}");
            false
        }
    }
}

pub(super) fn cut(file: &File, path: &str) {
    let (map, private) =
        (Map::whole(file, READ, libc::MAP_SHARED), Map::whole(file, READ, libc::MAP_PRIVATE));
    map.check();
    private.check();
    let half = map.pages() / 2;
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for seed in 0..8 {
            let done = &done;
            scope.spawn(move || {
                while !done.load(Relaxed) {
                    map.part(0, half).sum(50, seed, |_| {});
                    private.part(0, half).sum(50, seed, |_| {});
                }
            });
        }
        let own = env::current_exe().unwrap();
        let trimmed = Command::new(own).args(["trim", path, &half.to_string()]).status();
        assert!(trimmed.unwrap().success());
        for map in [map, private] {
            for page in [half, half + 1, map.pages() - 1] {
                assert!(!is_readable(map, page), "page {page} is past the end");
                assert!(touch_is_sigbus(map, page), "page {page} is past the end");
            }
            map.part(0, half).check();
        }
        done.store(true, Relaxed);
    });
    map.unmap();
    private.unmap();
    println!("cut to {half} pages");
}

pub(super) fn hoard(file: &File) {
    let len = file.metadata().unwrap().len() as usize;
    let all: Vec<Map> = (0..64)
        .map(|n| Map::new(file, n % 8 * (len / 8), len / 8, READ, libc::MAP_SHARED))
        .collect();
    all.iter().for_each(|map| map.check());
    all.iter().for_each(|map| assert_ne!(map.sum(200, 3, |_| {}), 0));
    all.into_iter().for_each(Map::unmap);
    println!("hoarded");
}

/// Limits its addresses to what it has and room for six more mappings, and makes those.
pub(super) fn limits(file: &File) {
    let whole = || Map::whole(file, READ, libc::MAP_SHARED);
    let first = whole();
    first.check();
    let text = std::fs::read_to_string("/proc/self/statm").expect("the size of this process");
    let pages: u64 = text.split(' ').next().and_then(|n| n.parse().ok()).expect("a number");
    let room = 11 * first.len as u64;
    let limit =
        libc::rlimit { rlim_cur: pages * PAGE as u64 + room, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the call reads a limit.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
    let more: Vec<Map> = (0..6).map(|_| whole()).collect();
    more.iter().for_each(|map| map.check());
    first.check();
    more.into_iter().for_each(Map::unmap);
    println!("within limits");
}

/// A call of the kernel in this thread.
fn call(number: libc::c_long, args: [usize; 3]) -> libc::c_long {
    // SAFETY: calls about rights; structures are there, of the size that is said.
    unsafe { libc::syscall(number, args[0], args[1], args[2]) }
}

/// Gives rights up as programs with one thread do: by capabilities that are kept, another user and
/// another group, and then none. No thread of the process has any left.
pub(super) fn rights(file: &File) {
    /// The third version of `capset(2)`: two structures of three words.
    const VERSION: u32 = 0x2008_0522;
    let map = Map::whole(file, READ, libc::MAP_SHARED);
    map.check();
    let header = [VERSION, 0];
    let header = (&raw const header).expose_provenance();
    // SAFETY: takes a number, in this thread.
    if unsafe { libc::geteuid() } == 0 {
        // SAFETY: as above.
        assert_eq!(unsafe { libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0) }, 0);
        // SAFETY: takes numbers.
        assert_eq!(unsafe { libc::setresuid(1000, 1000, 1000) }, 0);
        let mut sets = [0_u32; 6];
        let into = (&raw mut sets).expose_provenance();
        assert_eq!(call(libc::SYS_capget, [header, into, 0]), 0);
        let [_, may, _, _, may_more, _] = sets;
        let wanted = [may, may, 0, may_more, may_more, 0];
        let from = (&raw const wanted).expose_provenance();
        assert_eq!(call(libc::SYS_capset, [header, from, 0]), 0);
        // The C library ends a process whose threads do not agree whether this may be.
        // SAFETY: as above.
        assert_eq!(unsafe { libc::setresgid(1000, 1000, 1000) }, 0);
    }
    let none = [0_u32; 6];
    assert_eq!(call(libc::SYS_capset, [header, (&raw const none).expose_provenance(), 0]), 0);
    for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let status = std::fs::read_to_string(task.path().join("status")).unwrap();
        let rights = status.lines().find(|line| line.starts_with("CapEff:")).unwrap();
        assert!(rights.ends_with("\t0000000000000000"), "{status}");
    }
    // SAFETY: this process has one thread.
    assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNS) }, -1);
    map.check();
    map.unmap();
    println!("no rights");
}

pub(super) fn broken(file: &File, touches: bool) {
    let map = Map::whole(file, READ, libc::MAP_SHARED);
    // Page by page: of a large folio the kernel reads all or nothing.
    // SAFETY: advice about our own mapping.
    unsafe { libc::madvise(map.start.cast(), map.len, libc::MADV_RANDOM) };
    let mut bad = Vec::new();
    for round in 0..2 {
        bad = (0..map.pages()).filter(|page| !is_readable(map, *page)).collect();
        for page in (0..map.pages()).filter(|page| bad.binary_search(page).is_err()) {
            map.part(page, 1).check();
        }
        println!("{} of {} pages cannot be read in round {round}", bad.len(), map.pages());
    }
    assert!(touch_is_sigbus(map, bad[0]), "a child");
    if touches {
        std::hint::black_box(map.words()[bad[0] * PAGE / 8]);
    }
}

pub(super) fn shrink(file: &File) {
    let map = Map::whole(file, READ, libc::MAP_SHARED);
    let pages = map.pages();
    map.check();
    for left in [pages / 2, pages / 8, pages / 16] {
        file.set_len((left * PAGE) as u64).unwrap();
        map.part(0, left).check();
        let behind = [left, pages / 2 + 1, pages - 1];
        assert!(behind.into_iter().all(|page| touch_is_sigbus(map, page)), "{left} pages are left");
        map.part(0, left).check();
    }
    // Longer again: zeroes, and not what was there.
    file.set_len(map.len as u64).unwrap();
    map.part(0, pages / 16).check();
    assert!(map.part(pages / 16, pages - pages / 16).words().iter().all(|word| *word == 0));
    map.unmap();
    println!("shrunk from {pages} pages");
}
