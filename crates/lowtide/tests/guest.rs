//! What belongs to the program stays the program's: signals, locks, descriptors, leases, its end.

#![expect(unsafe_code, reason = "maps are made, and the kernel says what threads have")]

use crate::common::mapped::{PAGE, file, or_skip, pager, word};
use crate::common::scene::alone;
use lowtide::instruments::{Inject, Request, Verdict};
use lowtide::map::{MapMode, MapOptions};
use lowtide::{OpenOptions, Pager, Size};
use lowtide_sys::room;
use lowtide_sys::shared::{Rights, SharedMapping, Sharing};
use rustix::fs::FlockOperation;
use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A line of `status` of each thread but the calling one, with the thread's name.
fn of_threads(line: &str) -> Vec<(String, String)> {
    // SAFETY: the call has no conditions.
    let own = unsafe { libc::gettid() }.to_string();
    let mut found = Vec::new();
    for task in fs::read_dir("/proc/self/task").unwrap().flatten() {
        if task.file_name().to_str() == Some(&own) {
            continue;
        }
        let Ok(status) = fs::read_to_string(task.path().join("status")) else { continue };
        let value = |name: &str| {
            let mut lines = status.lines();
            lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t")).unwrap().to_owned()
        };
        found.push((value("Name"), value(line)));
    }
    found
}

/// Uses a pager in every way that starts threads, and calls this meanwhile.
fn with_all_threads(pager: &Pager, meanwhile: impl FnOnce()) {
    let file = file(512);
    let view = OpenOptions::new().write(true).open(pager, file.path()).unwrap();
    view.write_at(0, &[1; 4096]).unwrap();
    view.flush().unwrap();
    (0..256).for_each(|page| drop(view.page(page).unwrap()));
    drop(view);
    let maps = [MapMode::Userfault, MapMode::PageCache].map(|mode| {
        // SAFETY: nothing changes the file.
        let map = unsafe { MapOptions::new().mode(mode).map(pager, file.as_file()) };
        map.inspect(|map| assert_eq!(word(map, 4096), 4096))
    });
    meanwhile();
    drop(maps);
}

#[test]
fn no_signal_of_the_program_is_delivered_to_a_thread_of_a_pager() {
    alone(|| {
        let before = of_threads("SigBlk").len();
        let pager = pager("1M");
        with_all_threads(&pager, || {
            let all = of_threads("SigBlk");
            assert!(all.len() > before + 1, "{all:?}");
            let ours = all.iter().filter(|(name, _)| name.starts_with("lowtide"));
            assert!(ours.clone().count() > 1, "{all:?}");
            for (name, blocked) in ours {
                let blocked = u64::from_str_radix(blocked, 16).unwrap();
                // Two belong to the C library, and two cannot be blocked.
                let free = !blocked & !(1 << 31 | 1 << 32 | 1 << 33);
                let never = 1 << (libc::SIGKILL - 1) | 1 << (libc::SIGSTOP - 1);
                assert_eq!(free & !never, 0, "{name} takes signals: {free:x}");
            }
        });
    });
}

/// Whether the program has its lock still. It is another's than that of an open file.
fn has_lock(file: &File) -> bool {
    lowtide_sys::locks::is_locked(file, 0..1 << 40).unwrap()
}

#[test]
fn a_lock_of_the_program_outlives_maps_adoptions_and_views_of_its_file() {
    let (named, pager) = (file(64), pager("1M"));
    let file = File::options().read(true).write(true).open(named.path()).unwrap();
    // The file is locked by a record, not as a whole (`flock`).
    rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
    for mode in [MapMode::Userfault, MapMode::PageCache] {
        // SAFETY: nothing changes the file.
        let Ok(map) = (unsafe { MapOptions::new().mode(mode).map(&pager, &file) }) else {
            continue;
        };
        assert_eq!(word(&map, 4096), 4096);
        assert!(has_lock(&file), "{mode:?}");
        drop(map);
        assert!(has_lock(&file), "{mode:?}");
    }
    let len = 64 * PAGE;
    let own = SharedMapping::map(&file, 0, len, Rights::Read, Sharing::Shared, false).unwrap();
    // SAFETY: a mapping of the file, which is forgotten before it goes.
    let adopted = unsafe { MapOptions::new().adopt(&pager, file.as_fd(), own.as_ptr(), len) };
    let adopted = adopted.unwrap();
    assert!(has_lock(&file));
    drop(adopted);
    assert!(has_lock(&file));
    let views = [
        pager.open(named.path()),
        OpenOptions::new().open_file(&pager, file.try_clone().unwrap()),
        OpenOptions::new().write(true).open(&pager, named.path()),
    ];
    for view in views {
        drop(view.unwrap());
        assert!(has_lock(&file));
    }
    drop(pager);
    assert!(has_lock(&file));
}

#[test]
fn maps_take_no_descriptor_of_the_program() {
    alone(|| {
        let pager = pager("1M");
        let numbers = || fs::read_dir("/proc/self/fd").unwrap().count();
        for mode in [MapMode::Userfault, MapMode::PageCache] {
            let map = |file: &File| {
                // SAFETY: nothing changes the file.
                unsafe { MapOptions::new().mode(mode).map(&pager, file) }.ok()
            };
            let (first, other) = (file(4), file(4));
            let _first = map(first.as_file());
            let before = numbers();
            let maps: Vec<_> = (0..20).filter_map(|_| map(other.as_file())).collect();
            assert!(maps.iter().all(|map| word(map, 4096) == 4096));
            assert_eq!(numbers(), before, "{mode:?}");
        }
    });
}

/// Counts requests, and those for which it was called in a thread of the room.
#[derive(Default)]
struct Caller {
    requests: AtomicU64,
    inside: AtomicU64,
}

impl Caller {
    fn note(&self) {
        self.inside.fetch_add(u64::from(room::is_inside()), Relaxed);
    }
}

impl Inject for Caller {
    fn before(&self, _: &Request<'_>) -> Verdict {
        self.requests.fetch_add(1, Relaxed);
        self.note();
        Verdict::Pass
    }

    fn after(&self, _: &Request<'_>, _: Result<(), i32>) {
        self.note();
    }
}

#[test]
fn a_disk_of_the_programs_is_called_with_the_programs_descriptors() {
    let (file, caller) = (file(64), Arc::new(Caller::default()));
    let builder = Pager::builder().max(Size::mib(1)).inject(Arc::<Caller>::clone(&caller));
    let pager = builder.build().unwrap();
    // SAFETY: nothing changes the file.
    let map = unsafe { MapOptions::new().mode(MapMode::Userfault).map(&pager, file.as_file()) };
    let Some(map) = or_skip(map) else { return };
    (0..64).for_each(|page| assert_eq!(word(&map, page * PAGE), (page * PAGE) as u64));
    assert!(caller.requests.load(Relaxed) > 0, "pages come in by requests");
    assert_eq!(caller.inside.load(Relaxed), 0);
}

#[test]
fn a_map_for_reading_does_not_open_its_file_for_writing() {
    let (named, pager) = (file(4), pager("1M"));
    let file = File::open(named.path()).unwrap();
    let (_, path) = named.keep().unwrap();
    for mode in [MapMode::Userfault, MapMode::PageCache] {
        // SAFETY: nothing changes the file.
        let map = unsafe { MapOptions::new().mode(mode).map(&pager, &file) };
        let Ok(map) = map else { continue };
        assert_eq!(word(&map, 4096), 4096);
        // A lease for reading is refused while anything has the file open for writing.
        // SAFETY: takes a number.
        let lease = |kind: i32| unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) };
        assert_eq!(lease(libc::F_RDLCK), 0, "{mode:?}: {}", std::io::Error::last_os_error());
        assert_eq!(lease(libc::F_UNLCK), 0);
    }
    fs::remove_file(path).unwrap();
}

#[test]
fn the_process_ends_with_the_last_thread_of_the_program() {
    alone(|| {
        // SAFETY: the child has one thread, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let pager = pager("1M");
            let file = file(16);
            // SAFETY: nothing changes the file.
            let map = unsafe { MapOptions::new().map(&pager, file.as_file()) };
            std::mem::forget((pager, map));
            drop(file);
            // SAFETY: ends the calling thread, the first one.
            unsafe { libc::syscall(libc::SYS_exit, 0) };
        }
        let began = Instant::now();
        let mut status = -1;
        // SAFETY: the child is this process's.
        while unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == 0 {
            if began.elapsed() > Duration::from_secs(60) {
                // SAFETY: as above.
                unsafe { libc::kill(child, libc::SIGKILL) };
                panic!("it lives on");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(status, 0);
    });
}
