//! Sandboxes that refuse a call, and limits on addresses: a pager does without what it can do
//! without, and names what it cannot.

#![allow(unsafe_code)]

use lowtide::{IoMode, Pager, Size};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::common::Dir;
use crate::common::scene::{Call, SKIPPED, assert_well, child, refuse};

const PAGE: usize = 4096;

fn advice(advice: i32) -> Call {
    (libc::SYS_madvise, Some((2, advice.cast_unsigned())))
}

/// Installs the filter; false with the reason, if the kernel takes none.
fn is_refused(calls: &[Call], errno: i32) -> bool {
    let done = refuse(calls, errno);
    if !done {
        eprintln!("this kernel takes no seccomp filter");
    }
    done
}

fn pager() -> Pager {
    Pager::builder().max(Size::mib(4)).build().unwrap()
}

/// A file of this size, all zeroes but for a byte.
fn file(dir: &Dir, bytes: usize) -> std::path::PathBuf {
    let path = dir.path().join("data");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(bytes as u64).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[7], bytes as u64 - 1).unwrap();
    path
}

#[test]
fn a_sandbox_that_refuses_the_advice_that_frames_need_is_named() {
    let scene = || {
        if !is_refused(&[advice(libc::MADV_DONTFORK)], libc::EPERM) {
            return SKIPPED;
        }
        let error = Pager::builder().max(Size::mib(4)).build().unwrap_err().to_string();
        assert!(error.contains("MADV_DONTFORK") && error.contains("seccomp"), "{error}");
        assert!(!error.contains("smaller budget"), "{error}");
        0
    };
    let played = child(scene);
    played.iter().for_each(assert_well);
}

#[test]
fn advice_that_only_helps_is_done_without() {
    let scene = || {
        let helps = [libc::MADV_HUGEPAGE, libc::MADV_POPULATE_WRITE, libc::MADV_DONTDUMP];
        if !is_refused(&helps.map(advice), libc::EPERM) {
            return SKIPPED;
        }
        let dir = Dir::new();
        let path = file(&dir, 64 * PAGE);
        let view = pager().open(&path).unwrap();
        assert_eq!(view.page(63).unwrap()[PAGE - 1], 7);
        let populated = Pager::builder().max(Size::mib(4)).populate(true).build();
        assert!(populated.is_ok(), "{}", populated.unwrap_err());
        0
    };
    child(scene).iter().for_each(assert_well);
}

/// A file is opened, and most addresses are left to the program.
#[test]
fn room_to_grow_takes_a_part_of_limited_addresses() {
    let scene = || {
        let dir = Dir::new();
        let path = file(&dir, 64 << 20);
        let limit = Some(2 << 30);
        setrlimit(Resource::As, Rlimit { current: limit, maximum: limit }).unwrap();
        let pager = pager();
        let view = pager.open(&path).unwrap();
        assert_eq!(view.page((64 << 20) / PAGE as u64 - 1).unwrap()[PAGE - 1], 7);
        let len = 1 << 30;
        let none = std::ptr::null_mut();
        // SAFETY: The kernel chooses where, so nothing is replaced.
        let own = unsafe { mmap_anonymous(none, len, ProtFlags::empty(), MapFlags::PRIVATE) };
        let own = own.expect("half of the addresses are the program's");
        // SAFETY: The mapping above, which nothing touches.
        unsafe { munmap(own, len) }.unwrap();
        drop(view);
        // It may grow, too.
        let options = lowtide::OpenOptions::new().write(true);
        let view = options.open(&pager, &path).unwrap();
        view.write_at(1 << 30, &[9]).unwrap();
        assert_eq!(view.len(), (1 << 30) + 1);
        0
    };
    child(scene).iter().for_each(assert_well);
}

#[test]
fn a_file_that_takes_no_direct_io_is_named_as_it_was() {
    let scene = || {
        let direct =
            libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_DIRECT;
        if !is_refused(&[(libc::SYS_openat, Some((2, direct.cast_unsigned())))], libc::EINVAL) {
            return SKIPPED;
        }
        let dir = Dir::new();
        let path = file(&dir, 64 * PAGE);
        let builder = Pager::builder().max(Size::new(4 << 20)).direct(IoMode::Direct);
        let error = builder.build().unwrap().open(&path).unwrap_err().to_string();
        assert!(error.contains(path.to_str().unwrap()), "{error}");
        assert!(!error.contains("/proc/"), "{error}");
        // As it likes, it is read through the page cache.
        let pager = pager();
        let view = pager.open(&path).unwrap();
        assert_eq!(view.page(63).unwrap()[PAGE - 1], 7);
        let report = pager.report();
        assert!(report.contains("buffered") && !report.contains("/proc/"), "{report}");
        0
    };
    child(scene).iter().for_each(assert_well);
}
