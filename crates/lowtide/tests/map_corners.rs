//! The corners of maps: children, sandboxes, files that shrink, devices that fail, budgets that are
//! full, tenants and pagers that go.
//!
//! Where a signal would end the process, or a sandbox would stay, the test starts itself again, and
//! the child plays the scene (`child`).

#![expect(unsafe_code, reason = "mapping is unsafe, and so are fork, handlers and filters")]

use crate::common::mapped::{PAGE, await_cached, file, pager, random, word};
use crate::common::scene::{NEW_USERFAULTFD, SKIPPED, assert_well, child, ioctl, refuse};
use lowtide::instruments::{Inject, InjectOp, Request, Verdict};
use lowtide::map::{Access, Map, MapError, MapMode, MapOptions};
use lowtide::{Pager, Size, SwapOptions};
use std::fs::File;
use std::io::Write;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Maps a whole file in one way; nothing where the kernel refuses the way.
fn map(pager: &Pager, file: &File, way: MapMode) -> Option<Map> {
    // SAFETY: no test changes a file while it is mapped, unless that is what it is about.
    match unsafe { MapOptions::new().mode(way).map(pager, file) } {
        Err(error @ MapError::Mode { .. }) => {
            eprintln!("SKIPPED: {error}");
            None
        }
        other => Some(other.unwrap_or_else(|error| panic!("{error}"))),
    }
}

/// A map, or the end of this child with a word why not.
fn map_or_skip(pager: &Pager, file: &File, way: MapMode) -> Map {
    map(pager, file, way).unwrap_or_else(|| std::process::exit(SKIPPED))
}

/// What the handler of SIGBUS does.
static ON_SIGBUS: OnceLock<fn() -> i32> = OnceLock::new();
static MAP: OnceLock<Map> = OnceLock::new();

/// From now on a SIGBUS of a thread ends the process with the answer of `then`. The thread was in
/// a load of user code, so it owns no lock that `then` could need.
fn on_sigbus(then: fn() -> i32) {
    extern "C" fn handler(_signal: libc::c_int) {
        std::process::exit(ON_SIGBUS.get().map_or(1, |then| then()));
    }
    assert!(ON_SIGBUS.set(then).is_ok());
    let at = handler as extern "C" fn(libc::c_int);
    // SAFETY: the handler is a function of this program, for a signal that it does not use.
    let before = unsafe { libc::signal(libc::SIGBUS, at as libc::sighandler_t) };
    assert_ne!(before, libc::SIG_ERR);
}

/// How a child made by `fork` ends that does this: its code, or minus the signal.
fn forked(does: impl FnOnce()) -> i32 {
    // SAFETY: the child loads memory, drops maps, and ends.
    let id = unsafe { libc::fork() };
    assert!(id >= 0);
    if id == 0 {
        // SAFETY: resetting a handler, so that the signal ends the child without a report.
        unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) };
        does();
        // SAFETY: ends the child without the handlers of its parent.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: the status is written to an integer that lives.
    assert_eq!(unsafe { libc::waitpid(id, &raw mut status, 0) }, id);
    if libc::WIFSIGNALED(status) { -libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) }
}

/// Fails reads of one page while the test wants that.
#[derive(Debug, Default)]
struct Broken(AtomicBool);

impl Inject for Broken {
    fn before(&self, request: &Request<'_>) -> Verdict {
        let at = 5 * PAGE as u64;
        let hit = (request.offset..request.offset + request.len).contains(&at);
        if request.op == InjectOp::Read && hit && self.0.load(Relaxed) {
            return Verdict::Fail(std::io::Error::from_raw_os_error(libc::EIO));
        }
        Verdict::Pass
    }
}

#[test]
fn a_child_does_not_have_a_mirror_and_its_end_disturbs_the_parent_in_nothing() {
    let played = child(|| {
        let (file, pager) = (file(256), pager("4M"));
        let mut maps =
            [0, 1].map(|_| Some(map_or_skip(&pager, file.as_file(), MapMode::Userfault)));
        let check = |map: &Map| {
            (0..256).for_each(|page| assert_eq!(word(map, page * PAGE), (page * PAGE) as u64));
        };
        maps.iter().flatten().for_each(check);
        let faults = maps[0].as_ref().unwrap().report().faults;
        let touches = || _ = std::hint::black_box(maps[0].as_ref().unwrap()[0]);
        assert_eq!(forked(touches), -libc::SIGSEGV);
        assert_eq!(forked(|| ()), 0);
        // A child that drops them: the pages are the parent's.
        assert_eq!(forked(|| drop(std::mem::take(&mut maps))), 0);
        maps.iter().flatten().for_each(check);
        assert_eq!(maps[0].as_ref().unwrap().report().faults, faults, "no page went");
        drop(maps);
        pager.validate().unwrap();
        0
    });
    played.iter().for_each(assert_well);
}

#[test]
fn a_child_does_not_have_memory_without_a_file_and_gives_none_of_it_up() {
    let played = child(|| {
        let swap = SwapOptions::compressed(Size::mib(1));
        let pager = Pager::builder().max(Size::new(1 << 20)).swap(swap).build().unwrap();
        let mut memory = match pager.root().map_anon(4 << 20) {
            Err(MapError::Mode { why, .. }) => {
                eprintln!("{why}");
                return SKIPPED;
            }
            memory => Some(memory.unwrap()),
        };
        for (page, bytes) in memory.as_mut().unwrap().chunks_mut(PAGE).enumerate() {
            bytes.fill(page as u8);
        }
        let touches = || _ = std::hint::black_box(memory.as_ref().unwrap()[0]);
        assert_eq!(forked(touches), -libc::SIGSEGV);
        let refused = || {
            let discarded = memory.as_mut().unwrap().clear(0..1 << 20);
            assert_eq!(discarded.unwrap_err().kind(), std::io::ErrorKind::Unsupported);
        };
        assert_eq!(forked(refused), 0);
        assert_eq!(forked(|| drop(memory.take())), 0);
        let memory = memory.unwrap();
        let kept = |(page, bytes): (usize, &[u8])| bytes.iter().all(|b| *b == page as u8);
        assert!(memory.chunks(PAGE).enumerate().all(kept));
        drop(memory);
        pager.validate().unwrap();
        assert_eq!(pager.root().usage().unwrap(), 0);
        0
    });
    played.iter().for_each(assert_well);
}

#[test]
fn a_child_has_a_mapping_of_the_kernel_and_its_end_disturbs_the_parent_in_nothing() {
    let played = child(|| {
        let (file, pager) = (file(2048), pager("2M"));
        let mut map = Some(map_or_skip(&pager, file.as_file(), MapMode::PageCache));
        let check = |map: &Map| {
            (0..2048).for_each(|page| assert_eq!(word(map, page * PAGE), (page * PAGE) as u64));
        };
        let exact = map.as_ref().unwrap().report().how;
        assert_eq!(forked(|| check(map.as_ref().unwrap())), 0);
        assert_eq!(forked(|| drop(map.take())), 0);
        let map = map.unwrap();
        check(&map);
        assert_eq!(map.report().how, exact);
        // It is watched as before: pages come in, and others go.
        let before = pager.stat().memory.events.pgsteal;
        let began = Instant::now();
        while pager.stat().memory.events.pgsteal < before + 2000 {
            check(&map);
            assert!(began.elapsed() < Duration::from_secs(60), "{}", map.report());
        }
        drop(map);
        pager.validate().unwrap();
        0
    });
    played.iter().for_each(assert_well);
}

#[test]
fn without_userfaultfd_maps_are_mappings_of_the_kernel_and_the_other_way_is_refused() {
    let played = child(|| {
        if !refuse(&[(libc::SYS_userfaultfd, None), ioctl(NEW_USERFAULTFD)], libc::EPERM) {
            eprintln!("this kernel takes no seccomp filter");
            return SKIPPED;
        }
        let (file, pager) = (file(2048), pager("2M"));
        let mirror = MapOptions::new().mode(MapMode::Userfault);
        // SAFETY: as in `map`.
        let error = unsafe { mirror.map(&pager, file.as_file()) }.unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, MapError::Mode { mode: MapMode::Userfault, .. }), "{text}");
        assert!(text.contains("userfaultfd"), "{text}");
        let map = map_or_skip(&pager, file.as_file(), MapMode::Auto);
        assert_eq!(map.report().mode, MapMode::PageCache);
        assert!(map.report().how.contains("neighbour"), "{}", map.report());
        let mut state = 5;
        while pager.stat().memory.events.pgsteal < 2000 {
            let offset = random(&mut state) % (map.len() / 8) * 8;
            assert_eq!(word(&map, offset), offset as u64);
        }
        drop(map);
        pager.validate().unwrap();
        0
    });
    played.iter().for_each(assert_well);
}

/// A file shrinks to 8 pages under a map of 64 that has read pages 2 and 40; then page 50 is
/// touched.
fn shrink_under(way: MapMode) -> i32 {
    let (file, pager) = (file(64), pager("1M"));
    let _ = MAP.set(map_or_skip(&pager, file.as_file(), way));
    let map = MAP.get().unwrap();
    map.advise(Access::Random).unwrap();
    assert_eq!(word(map, 2 * PAGE) + word(map, 40 * PAGE), 42 * PAGE as u64);
    assert!(map.error().is_none());
    file.as_file().set_len(8 * PAGE as u64).unwrap();
    on_sigbus(|| {
        let map = MAP.get().unwrap();
        let error = map.error().map(|error| error.to_string()).unwrap_or_default();
        eprintln!("{error}");
        let others = (0..8).all(|page| word(map, page * PAGE) == (page * PAGE) as u64);
        if others && !error.is_empty() { 0 } else { 3 }
    });
    std::hint::black_box(map[50 * PAGE]);
    4
}

#[test]
fn a_file_that_shrinks_under_a_mirror_is_sigbus_with_a_reason_and_other_pages_work() {
    let played = child(|| shrink_under(MapMode::Userfault));
    played.iter().for_each(assert_well);
}

#[test]
fn a_file_that_shrinks_under_a_mapping_is_sigbus_with_a_reason_and_other_pages_work() {
    let played = child(|| shrink_under(MapMode::PageCache));
    if let Some(output) = &played {
        assert_well(output);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains("become shorter"), "{text}");
    }
}

#[test]
fn a_file_that_grows_is_mapped_as_far_as_it_was_asked_for() {
    for way in [MapMode::PageCache, MapMode::Userfault] {
        let (file, pager) = (file(8), pager("1M"));
        let longer = MapOptions::new().mode(way).len(16 * PAGE);
        // SAFETY: as in `map`.
        let map = match unsafe { longer.map(&pager, file.as_file()) } {
            Err(MapError::Mode { why, .. }) => {
                eprintln!("SKIPPED: {why}");
                continue;
            }
            other => other.unwrap(),
        };
        assert_eq!(word(&map, 7 * PAGE), 7 * PAGE as u64);
        file.as_file().set_len(16 * PAGE as u64).unwrap();
        assert_eq!((word(&map, 12 * PAGE), word(&map, 7 * PAGE)), (0, 7 * PAGE as u64), "{way}");
        assert!(map.error().is_none(), "{way}");
    }
}

#[test]
fn a_page_that_a_device_cannot_read_is_sigbus_and_the_map_has_the_devices_error() {
    let played = child(|| {
        let broken = Arc::new(Broken(AtomicBool::new(true)));
        let inject = Arc::<Broken>::clone(&broken);
        let max = Size::new(1 << 20);
        let pager = Pager::builder().max(max).inject(inject).build().unwrap();
        let file = file(64);
        let _ = MAP.set(map_or_skip(&pager, file.as_file(), MapMode::Userfault));
        let map = MAP.get().unwrap();
        map.advise(Access::Random).unwrap();
        (6..64).for_each(|page| assert_eq!(word(map, page * PAGE), (page * PAGE) as u64));
        assert!(map.error().is_none(), "{:?}", map.error());
        on_sigbus(|| {
            let map = MAP.get().unwrap();
            eprintln!("{}", map.error().unwrap());
            let mut others = (6..64).chain(0..5);
            let read = |page: usize| word(map, page * PAGE) == (page * PAGE) as u64;
            if others.all(read) { 0 } else { 3 }
        });
        std::hint::black_box(map[5 * PAGE]);
        4
    });
    if let Some(output) = &played {
        assert_well(output);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains("page 5") && text.contains("os error 5"), "{text}");
        assert!(!text.contains("/proc/self"), "the file has a name: {text}");
    }
}

/// Threads that a SIGBUS has stopped.
static STOPPED: AtomicU64 = AtomicU64::new(0);

#[test]
fn a_page_that_failed_once_is_sigbus_for_every_thread_that_touches_it_and_no_other_page_is() {
    let played = child(|| {
        extern "C" fn stop(_signal: libc::c_int) {
            STOPPED.fetch_add(1, Relaxed);
            loop {
                // SAFETY: waits, forever.
                unsafe { libc::pause() };
            }
        }
        let broken = Arc::new(Broken(AtomicBool::new(true)));
        let inject = Arc::<Broken>::clone(&broken);
        let pager = Pager::builder().max(Size::new(1 << 20)).inject(inject).build().unwrap();
        let file = file(64);
        let _ = MAP.set(map_or_skip(&pager, file.as_file(), MapMode::Userfault));
        let map = MAP.get().unwrap();
        map.advise(Access::Random).unwrap();
        let at = stop as extern "C" fn(libc::c_int);
        // SAFETY: the handler waits, and does nothing else.
        unsafe { libc::signal(libc::SIGBUS, at as libc::sighandler_t) };
        for stopped in 1..=3 {
            std::thread::spawn(|| std::hint::black_box(MAP.get().unwrap()[5 * PAGE + 8]));
            let began = Instant::now();
            while STOPPED.load(Relaxed) < stopped {
                assert!(began.elapsed() < Duration::from_secs(60), "no signal for {stopped}");
                std::thread::sleep(Duration::from_millis(1));
            }
            // The device works again, which the map of the failed page does not know.
            broken.0.store(false, Relaxed);
            let others = (0..64).filter(|page| *page != 5);
            others.for_each(|page| assert_eq!(word(map, page * PAGE), (page * PAGE) as u64));
        }
        assert_eq!(STOPPED.load(Relaxed), 3);
        0
    });
    played.iter().for_each(assert_well);
}

#[test]
fn a_tenant_without_room_is_sigbus_and_the_map_names_the_full_budget() {
    let played = child(|| {
        let max = Size::new(4 << 20);
        let patience = Duration::from_millis(50);
        let pager = Pager::builder().max(max).memory_timeout(patience).build().unwrap();
        let tenant = pager.tenant("full").max(Size::kib(256)).create().unwrap();
        let file = file(64);
        let options = MapOptions::new().mode(MapMode::Userfault).tenant(&tenant);
        // SAFETY: as in `map`.
        let map = match unsafe { options.map(&pager, file.as_file()) } {
            Err(MapError::Mode { why, .. }) => {
                eprintln!("{why}");
                return SKIPPED;
            }
            other => other.unwrap(),
        };
        assert_eq!(word(&map, 8), 8);
        let _all = tenant.reserve(Size::kib(256)).unwrap();
        let _ = MAP.set(map);
        on_sigbus(|| {
            eprintln!("{}", MAP.get().unwrap().error().unwrap());
            0
        });
        std::hint::black_box(MAP.get().unwrap()[50 * PAGE]);
        4
    });
    if let Some(output) = &played {
        assert_well(output);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains("full"), "{text}");
    }
}

#[test]
fn a_full_tenant_does_not_stop_a_mapping_of_the_kernel() {
    let max = Size::new(4 << 20);
    let patience = Duration::from_millis(1);
    let pager = Pager::builder().max(max).memory_timeout(patience).build().unwrap();
    let tenant = pager.tenant("full").max(Size::kib(256)).create().unwrap();
    let file = file(64);
    let options = MapOptions::new().mode(MapMode::PageCache).tenant(&tenant);
    // SAFETY: as in `map`.
    let map = match unsafe { options.map(&pager, file.as_file()) } {
        Err(MapError::Mode { why, .. }) => return eprintln!("SKIPPED: {why}"),
        other => other.unwrap(),
    };
    let all = tenant.reserve(Size::kib(256)).unwrap();
    for round in 0..20 {
        (0..64).for_each(|page| assert_eq!(word(&map, page * PAGE), (page * PAGE) as u64));
        assert_eq!(map.report().resident_bytes, 0, "nothing can be charged in round {round}");
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(all);
    drop(map);
    pager.validate().unwrap();
}

#[test]
fn a_limit_that_is_lowered_takes_pages_of_maps_and_one_that_is_raised_lets_them_come_back() {
    let (file, pager) = (file(1024), pager("4M"));
    let tenant = pager.tenant("t").max(Size::mib(4)).create().unwrap();
    let options = MapOptions::new().mode(MapMode::Userfault).tenant(&tenant);
    // SAFETY: as in `map`.
    let map = match unsafe { options.map(&pager, file.as_file()) } {
        Err(MapError::Mode { why, .. }) => return eprintln!("SKIPPED: {why}"),
        other => other.unwrap(),
    };
    let all =
        || (0..1024).for_each(|page| assert_eq!(word(&map, page * PAGE), (page * PAGE) as u64));
    all();
    for max in ["1M", "256K", "3M", "512K", "4M"] {
        let max: Size = max.parse().unwrap();
        let _ = tenant.set_max(max).unwrap();
        assert!(tenant.usage().unwrap() <= max.bytes());
        all();
        assert!(map.report().resident_bytes <= max.bytes(), "{}", map.report());
        assert!(map.report().resident_bytes >= max.bytes() / 8, "{}", map.report());
    }
    assert!(map.error().is_none());
    pager.validate().unwrap();
}

#[test]
fn a_limit_that_is_lowered_takes_pages_of_a_mapping_of_the_kernel_at_the_next_looks() {
    let (file, pager) = (file(1024), pager("4M"));
    let tenant = pager.tenant("t").max(Size::mib(4)).create().unwrap();
    let options = MapOptions::new().mode(MapMode::PageCache).tenant(&tenant);
    // SAFETY: as in `map`.
    let map = match unsafe { options.map(&pager, file.as_file()) } {
        Err(MapError::Mode { why, .. }) => return eprintln!("SKIPPED: {why}"),
        other => other.unwrap(),
    };
    for max in ["2M", "256K", "3M", "512K"] {
        let max: Size = max.parse().unwrap();
        let _ = tenant.set_max(max).unwrap();
        assert!(tenant.usage().unwrap() <= max.bytes());
        (0..1024).for_each(|page| assert_eq!(word(&map, page * PAGE), (page * PAGE) as u64));
        await_cached(file.as_file(), max.bytes() + max.bytes() / 8);
        assert!(map.report().resident_bytes <= max.bytes(), "{}", map.report());
    }
    drop(map);
    pager.validate().unwrap();
}

#[test]
fn a_map_outlives_its_tenant_and_every_handle_of_its_pager() {
    for way in [MapMode::Userfault, MapMode::PageCache] {
        let (file, pager) = (file(512), pager("1M"));
        let tenant = pager.tenant("t").max(Size::kib(512)).create().unwrap();
        let options = MapOptions::new().mode(way).tenant(&tenant);
        // SAFETY: as in `map`.
        let map = match unsafe { options.map(&pager, file.as_file()) } {
            Err(MapError::Mode { why, .. }) => {
                eprintln!("SKIPPED: {why}");
                continue;
            }
            other => other.unwrap(),
        };
        let all =
            || (0..512).for_each(|page| assert_eq!(word(&map, page * PAGE), (page * PAGE) as u64));
        all();
        tenant.remove().unwrap();
        all();
        pager.validate().unwrap();
        drop((tenant, pager));
        all();
        assert!(map.error().is_none());
        drop(map);
    }
}

/// Bytes of memory that this process has of mappings of mirrors.
fn mirrored_bytes() -> u64 {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let (mut ours, mut sum) = (false, 0);
    for line in smaps.lines() {
        if line.contains("-") && line.contains(" r--s ") {
            ours = line.contains("memfd:lowtide");
        } else if ours && let Some(rest) = line.strip_prefix("Rss:") {
            sum += rest.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10;
            ours = false;
        }
    }
    sum
}

#[test]
fn views_and_maps_share_one_budget_and_their_memory_stays_within_it() {
    let played = child(|| {
        let (one, two, pager) = (file(2048), file(2048), pager("4M"));
        let map = map_or_skip(&pager, one.as_file(), MapMode::Userfault);
        let view = pager.open(two.path()).unwrap();
        let (mut state, mut seen, mut mirror) = (3, [0, 0], 0);
        for step in 0..60_000 {
            // By turns the one and the other have most of the budget.
            let much = step / 10_000 % 2 == 0;
            let offset = random(&mut state) % (map.len() / 8) * 8;
            if much || step % 16 == 0 {
                assert_eq!(word(&map, offset), offset as u64);
            }
            if !much || step % 16 == 0 {
                let page = view.page((offset / PAGE) as u64).unwrap();
                assert_eq!(word(&page, offset % PAGE), offset as u64);
            }
            if step % 500 == 0 {
                let (mirrored, stat) = (mirrored_bytes(), pager.stat());
                assert!(mirrored <= 4 << 20, "{mirrored}: {stat}");
                assert!(stat.memory.file * PAGE as u64 <= 4 << 20, "{stat}");
                // Memory of the arena is taken and given back in pieces.
                assert!(mirrored + stat.resident_bytes <= 7 << 20, "{mirrored}: {stat}");
                let kept = map.report().resident_bytes;
                seen = [seen[0].max(kept), seen[1].max(stat.resident_bytes)];
                mirror = mirror.max(mirrored);
            }
        }
        assert!(seen.iter().all(|bytes| *bytes > 2 << 20), "both had much of it: {seen:?}");
        // Each look zaps what the map keeps, so how much of it is mapped depends on how busy the
        // machine is.
        assert!(mirror > 256 << 10, "the smaps of the mirror are found: {mirror}");
        pager.validate().unwrap();
        0
    });
    played.iter().for_each(assert_well);
}

#[test]
fn threads_map_touch_prefetch_and_drop_beside_each_other() {
    let files: Vec<_> = [40, 200, 700].into_iter().map(file).collect();
    let pager = pager("2M");
    if map(&pager, files[0].as_file(), MapMode::PageCache).is_none() {
        return;
    }
    let served = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..32_u64 {
            let (files, pager, served) = (&files, &pager, &served);
            scope.spawn(move || {
                let mut state = thread + 1;
                for round in 0..12 {
                    let file = files[random(&mut state) % files.len()].as_file();
                    let way = if (thread + round) % 4 == 0 {
                        MapMode::PageCache
                    } else {
                        MapMode::Userfault
                    };
                    let Some(map) = map(pager, file, way) else { continue };
                    let part = random(&mut state) % map.len();
                    map.advise_range(Access::WillNeed, part..map.len()).unwrap();
                    for _ in 0..50 {
                        let offset = random(&mut state) % (map.len() / 8) * 8;
                        assert_eq!(word(&map, offset), offset as u64);
                    }
                    assert!(map.error().is_none(), "{:?}", map.error());
                    served.fetch_add(1, Relaxed);
                }
            });
        }
    });
    assert!(served.load(Relaxed) > 0);
    pager.validate().unwrap();
    assert_eq!(pager.stat().memory.file, 0, "no page of a map that is gone is charged");
}

#[test]
fn a_map_that_is_dropped_while_pages_are_read_for_it_leaves_nothing_behind() {
    let (file, pager) = (file(1024), pager("2M"));
    for _ in 0..50 {
        let Some(map) = map(&pager, file.as_file(), MapMode::Userfault) else { return };
        map.advise(Access::WillNeed).unwrap();
        assert_eq!(word(&map, 900 * PAGE), 900 * PAGE as u64);
        drop(map);
    }
    let began = Instant::now();
    while pager.stat().memory.file > 0 {
        assert!(began.elapsed() < Duration::from_secs(60), "{}", pager.stat());
        std::thread::sleep(Duration::from_millis(1));
    }
    pager.validate().unwrap();
}

#[test]
fn two_mappings_of_a_file_have_one_set_of_pages() {
    let (file, pager) = (file(256), pager("4M"));
    let Some(one) = map(&pager, file.as_file(), MapMode::PageCache) else { return };
    let two = map(&pager, file.as_file(), MapMode::PageCache).unwrap();
    let began = Instant::now();
    while one.report().resident_bytes < 256 * PAGE as u64 {
        for map in [&one, &two] {
            (0..256).for_each(|page| assert_eq!(word(map, page * PAGE), (page * PAGE) as u64));
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{}", one.report());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(one.report().resident_bytes, two.report().resident_bytes);
    assert_eq!(pager.stat().memory.file, 256, "{}", pager.stat());
    drop(one);
    (0..256).for_each(|page| assert_eq!(word(&two, page * PAGE), (page * PAGE) as u64));
    assert_eq!(two.report().resident_bytes, 256 * PAGE as u64);
    drop(two);
    assert_eq!(pager.stat().memory.file, 0);
}

#[test]
fn a_map_that_is_forgotten_works_until_the_process_ends() {
    for way in [MapMode::Userfault, MapMode::PageCache] {
        let (file, pager) = (file(512), pager("512K"));
        let Some(map) = map(&pager, file.as_file(), way) else { continue };
        // SAFETY: a map that is forgotten is never unmapped.
        let bytes = unsafe { std::slice::from_raw_parts(map.as_ptr(), map.len()) };
        std::mem::forget(map);
        drop(pager);
        for _ in 0..3 {
            (0..512).for_each(|page| assert_eq!(word(bytes, page * PAGE), (page * PAGE) as u64));
        }
        if way == MapMode::PageCache {
            // It is watched still.
            await_cached(file.as_file(), 576 << 10);
        }
    }
}

#[test]
fn system_calls_on_a_map_work_or_the_report_says_that_they_do_not() {
    for way in [MapMode::Userfault, MapMode::PageCache] {
        let (file, pager) = (file(256), pager("512K"));
        let Some(map) = map(&pager, file.as_file(), way) else { continue };
        let (mut sink, report) = (tempfile::tempfile().unwrap(), map.report());
        let written = sink.write_all(&map);
        if report.how.contains("EFAULT") {
            assert_eq!(written.unwrap_err().raw_os_error(), Some(libc::EFAULT));
            continue;
        }
        written.unwrap();
        assert_eq!(sink.metadata().unwrap().len(), map.len() as u64);
        let (mut copy, mut at) = (vec![0; map.len()], 0);
        while at < copy.len() {
            use std::os::unix::fs::FileExt;
            at += sink.read_at(&mut copy[at..], at as u64).unwrap();
        }
        assert!(copy[..] == map[..], "{way}");
    }
}

#[test]
fn a_program_that_is_started_does_not_inherit_the_descriptors_of_maps() {
    let (file, pager) = (file(16), pager("512K"));
    let maps: Vec<_> = [MapMode::Userfault, MapMode::PageCache]
        .into_iter()
        .filter_map(|way| map(&pager, file.as_file(), way))
        .collect();
    let listed = Command::new("ls").args(["-l", "/proc/self/fd"]).output().unwrap();
    let text = String::from_utf8_lossy(&listed.stdout);
    for name in ["userfaultfd", "memfd:lowtide", "pagemap"] {
        assert!(!text.contains(name), "{text}");
    }
    drop(maps);
}
