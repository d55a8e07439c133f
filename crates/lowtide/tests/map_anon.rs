//! Memory without a file behind a pointer: contents beyond the budget, many threads, swap that is
//! full or fails, giving up, other lengths, the end.

use crate::common::mapped::{PAGE, check_empty, or_skip, random};
use lowtide::instruments::{Inject, InjectOp, Request, Verdict};
use lowtide::map::{MapError, MapMode, MapMut, MapOptions, RemapOptions};
use lowtide::{Error, Pager, Size, SwapOptions, Tenant};
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

const MIB: usize = 1 << 20;

/// A touch that waits longer for room is a signal, and another program may keep the device busy.
const PATIENCE: Duration = Duration::from_secs(60);

fn compressed(limit: &str) -> SwapOptions {
    SwapOptions::compressed(limit.parse::<Size>().unwrap())
}

/// A pager, and a tenant with less than it has.
fn tenant(swap: SwapOptions, max: &str) -> (Pager, Tenant) {
    tenant_with(swap, max, "mglru", PATIENCE, None)
}

fn tenant_with(
    swap: SwapOptions,
    max: &str,
    policy: &str,
    patience: Duration,
    inject: Option<Arc<dyn Inject>>,
) -> (Pager, Tenant) {
    let builder = Pager::builder().max(Size::mib(16)).policy(policy.parse().unwrap());
    let builder = builder.swap(swap).memory_timeout(patience);
    let builder = match inject {
        Some(inject) => builder.inject(inject),
        None => builder,
    };
    let pager = builder.build().unwrap();
    let tenant = pager.tenant("heap").max(max.parse::<Size>().unwrap()).create().unwrap();
    (pager, tenant)
}

/// What a page holds in a version; `noise` does not compress.
fn fill(page: usize, version: u64, noise: bool, bytes: &mut [u8]) {
    let mut state = (page as u64) << 20 | version << 1 | 1;
    for word in bytes.chunks_exact_mut(8) {
        if noise {
            random(&mut state);
        }
        word.copy_from_slice(&state.to_le_bytes());
    }
}

fn check(page: usize, version: u64, noise: bool, bytes: &[u8]) {
    let mut expected = [0; PAGE];
    if version > 0 {
        fill(page, version, noise, &mut expected);
    }
    assert!(bytes == expected, "page {page} has other contents than version {version}");
}

/// What a system call makes of a page: its bytes, or nothing where a touch would be SIGBUS.
fn through_the_kernel(page: &[u8]) -> Option<Vec<u8>> {
    let (mut reader, mut writer) = io::pipe().unwrap();
    match writer.write(page) {
        Err(error)
            if error.kind() == ErrorKind::InvalidInput || error.raw_os_error() == Some(14) =>
        {
            None
        }
        written => {
            let mut copy = vec![0; written.unwrap()];
            reader.read_exact(&mut copy).unwrap();
            Some(copy)
        }
    }
}

/// Whether system calls reach pages that are not in memory.
fn kernel_faults(memory: &MapMut) -> bool {
    let how = memory.report().how;
    let served = !how.contains("EFAULT");
    if !served {
        eprintln!("SKIPPED: {how}");
    }
    served
}

#[test]
fn four_times_the_budget_keeps_its_contents_under_threads_that_store_load_and_discard() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = || compressed("512K").file(dir.path(), Size::mib(32));
    for (policy, swap, noise) in [
        ("mglru", compressed("8M"), false),
        ("lru", compressed("8M"), false),
        ("tide", compressed("8M"), false),
        ("mglru-7.1", file(), false),
        ("mglru", file(), true),
    ] {
        let (pager, tenant) = tenant_with(swap, "2M", policy, PATIENCE, None);
        let Some(mut memory) = or_skip(tenant.map_anon(8 * MIB)) else { return };
        std::thread::scope(|scope| {
            let mut workers = Vec::new();
            for (number, part) in memory.chunks_exact_mut(2 * MIB).enumerate() {
                workers.push(scope.spawn(move || {
                    let mut versions = vec![0; part.len() / PAGE];
                    let mut state = 77 + number as u64;
                    for step in 1..6000 {
                        let page = random(&mut state) % versions.len();
                        let bytes = &mut part[page * PAGE..(page + 1) * PAGE];
                        check(page, versions[page], noise, bytes);
                        if !random(&mut state).is_multiple_of(4) {
                            fill(page, step, noise, bytes);
                            versions[page] = step;
                        }
                    }
                    for (page, version) in versions.iter().enumerate() {
                        check(page, *version, noise, &part[page * PAGE..(page + 1) * PAGE]);
                    }
                }));
            }
            while workers.iter().any(|worker| !worker.is_finished()) {
                assert!(tenant.usage().unwrap() <= 2 << 20);
                pager.validate().unwrap();
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let report = memory.report();
        assert!(memory.error().is_none() && report.swapped_bytes > 4 << 20, "{policy}: {report}");
        assert!(report.resident_bytes < 2 << 20, "{policy}: {report}");
        drop(memory);
        check_empty(&pager);
    }
}

#[test]
fn untouched_memory_takes_none_and_what_is_given_up_is_zeroes_wherever_it_was() {
    let (pager, tenant) = tenant(compressed("4M"), "1M");
    let Some(mut memory) = or_skip(tenant.map_anon(4 * MIB)) else { return };
    assert_eq!(tenant.stat().unwrap().anon, 0);
    let pages = memory.len() / PAGE;
    for page in 0..pages {
        assert_eq!(memory[page * PAGE + 9], 0);
        fill(page, 1, false, &mut memory[page * PAGE..(page + 1) * PAGE]);
    }
    assert!(memory.report().swapped_bytes > 2 << 20, "{}", memory.report());
    memory.clear(PAGE / 2..100 * PAGE + 1000).unwrap();
    memory.clear(200 * PAGE + 5..200 * PAGE + 9).unwrap();
    let mut expected = [0; PAGE];
    for page in 0..pages {
        fill(page, 1, false, &mut expected);
        match page {
            0 => expected[PAGE / 2..].fill(0),
            1..100 => expected.fill(0),
            100 => expected[..1000].fill(0),
            200 => expected[5..9].fill(0),
            _ => {}
        }
        assert!(memory[page * PAGE..(page + 1) * PAGE] == expected, "page {page}");
    }
    pager.validate().unwrap();
    // A page that is being read ahead in this moment may come after that.
    let begun = std::time::Instant::now();
    loop {
        memory.clear(0..4 * MIB).unwrap();
        let report = memory.report();
        if (report.resident_bytes, report.swapped_bytes) == (0, 0) {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{report}");
    }
    assert_eq!(tenant.stat().unwrap().anon, 0);
    assert_eq!(memory.clear(5..4 * MIB + 1).unwrap_err().kind(), ErrorKind::InvalidInput);
    memory.clear(7..7).unwrap();
    drop(memory);
    check_empty(&pager);
}

#[test]
fn memory_grows_into_addresses_that_were_reserved_and_shrinks_to_zeroes() {
    let (pager, tenant) = tenant(compressed("4M"), "1M");
    let options = MapOptions::new().tenant(&tenant).len(5000).growth(4 * MIB as u64);
    let Some(mut memory) = or_skip(options.map_anon(&pager)) else { return };
    let resize = |memory: &mut MapMut, len| {
        // SAFETY: no reference into the memory lives.
        #[expect(unsafe_code, reason = "another length")]
        unsafe {
            memory.remap(len, RemapOptions::new())
        }
    };
    memory.fill(7);
    resize(&mut memory, 4 * MIB).unwrap();
    assert!(memory[..5000].iter().all(|byte| *byte == 7));
    assert!(memory[5000..].iter().all(|byte| *byte == 0));
    memory.fill(8);
    resize(&mut memory, 6000).unwrap();
    assert_eq!((memory.len(), tenant.stat().unwrap().anon <= 2), (6000, true));
    let error = resize(&mut memory, 4 * MIB + 1).unwrap_err();
    assert!(matches!(error, MapError::Range { .. }) && error.to_string().contains("growth"));
    resize(&mut memory, MIB).unwrap();
    assert!(memory[..6000].iter().all(|byte| *byte == 8));
    assert!(memory[6000..].iter().all(|byte| *byte == 0));
    let mut read_only = memory.make_read_only().unwrap();
    // SAFETY: no reference into the memory lives.
    #[expect(unsafe_code, reason = "another length")]
    let error = unsafe { read_only.remap(100, RemapOptions::new()) }.unwrap_err();
    assert!(error.to_string().contains("read-only"), "{error}");
    let mut memory = read_only.make_mut().unwrap();
    assert_eq!((memory[5999], memory[6000]), (8, 0));
    memory[6000] = 1;
    memory.flush().unwrap();
    drop(memory);
    check_empty(&pager);
    let way = MapOptions::new().len(9).mode(MapMode::PageCache).map_anon(&pager).unwrap_err();
    assert!(matches!(way, MapError::Mode { .. }), "{way}");
    tenant.remove().unwrap();
    let gone = tenant.map_anon(100).unwrap_err();
    assert!(matches!(gone, MapError::Memory(Error::Tenant { .. })), "{gone}");
}

#[test]
fn where_swap_is_full_a_touch_is_sigbus_with_a_reason_and_nothing_is_lost() {
    let swap = compressed("4M").size(Size::new(2 << 20));
    let (pager, tenant) = tenant_with(swap, "1M", "mglru", Duration::from_millis(500), None);
    let Some(mut memory) = or_skip(tenant.map_anon(8 * MIB)) else { return };
    if !kernel_faults(&memory) {
        return;
    }
    let pages = memory.len() / PAGE;
    let mut stored = 0;
    let mut buffer = [0; PAGE];
    for page in 0..pages {
        let to = &mut memory[page * PAGE..(page + 1) * PAGE];
        fill(page, 1, false, &mut buffer);
        // The kernel stores, so that a page that fails is an error and no signal.
        let (mut reader, mut writer) = io::pipe().unwrap();
        writer.write_all(&buffer).unwrap();
        match reader.read(to) {
            Ok(PAGE) => stored += 1,
            Err(error) if error.raw_os_error() == Some(14) => break,
            other => panic!("{other:?}"),
        }
    }
    assert!((512..1000).contains(&stored), "{stored} pages fit");
    let error = memory.error().unwrap();
    assert!(matches!(error, Error::OutOfBudget { .. }), "{error}");
    pager.validate().unwrap();
    for page in (0..stored).rev().step_by(7) {
        check(page, 1, false, &memory[page * PAGE..(page + 1) * PAGE]);
    }
    // There is room again, also for the page that failed.
    memory.clear(0..300 * PAGE).unwrap();
    memory.clear(stored * PAGE..(stored + 1) * PAGE).unwrap();
    fill(stored, 1, false, &mut memory[stored * PAGE..(stored + 1) * PAGE]);
    for page in 300..=stored {
        check(page, 1, false, &memory[page * PAGE..(page + 1) * PAGE]);
    }
    drop(memory);
    check_empty(&pager);
}

/// Fails one of a number of reads of the swap file.
struct Broken(AtomicU64);

impl Inject for Broken {
    fn before(&self, request: &Request<'_>) -> Verdict {
        let every = self.0.load(Relaxed);
        if request.op != InjectOp::Read || every == 0 || !request.number.is_multiple_of(every) {
            return Verdict::Pass;
        }
        assert_eq!(request.path, Path::new("[swap]"));
        Verdict::Fail(io::Error::from_raw_os_error(5))
    }
}

#[test]
fn a_page_that_swap_cannot_read_is_sigbus_and_can_be_given_up_and_the_others_have_their_bytes() {
    // A request for many pages that fails is made again for each, so fewer pages fail: one in
    // three of those at least.
    for (ahead, least) in [(0, 50), (2 << 20, 0)] {
        some_reads_fail(ahead, least);
    }
}

fn some_reads_fail(ahead: u64, least: usize) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let broken = Arc::new(Broken(AtomicU64::new(0)));
    let inject = Arc::<Broken>::clone(&broken);
    let swap = compressed("1M").file(dir.path(), Size::mib(16));
    let (pager, tenant) = tenant_with(swap, "1M", "mglru", PATIENCE, Some(inject));
    let options = MapOptions::new().tenant(&tenant).len(4 * MIB).read_ahead(ahead);
    let Some(mut memory) = or_skip(options.map_anon(&pager)) else { return };
    if !kernel_faults(&memory) {
        return;
    }
    let pages = memory.len() / PAGE;
    for page in 0..pages {
        fill(page, 1, true, &mut memory[page * PAGE..(page + 1) * PAGE]);
    }
    broken.0.store(3, Relaxed);
    let mut failed = Vec::new();
    for page in 0..pages {
        match through_the_kernel(&memory[page * PAGE..(page + 1) * PAGE]) {
            Some(bytes) => check(page, 1, true, &bytes),
            None => failed.push(page),
        }
    }
    assert!(failed.len() > least, "{} failed", failed.len());
    let error = memory.error().unwrap();
    assert!(matches!(error, Error::SwapIn { .. }), "{error}");
    pager.validate().unwrap();
    broken.0.store(0, Relaxed);
    // A mark stays until reclaim has looked at the page's neighbours, which tries again.
    for &page in &failed[1..] {
        let bytes = through_the_kernel(&memory[page * PAGE..(page + 1) * PAGE]);
        bytes.iter().for_each(|bytes| check(page, 1, true, bytes));
    }
    let page = failed[0];
    memory.clear(page * PAGE..(page + 1) * PAGE).unwrap();
    check(page, 0, true, &memory[page * PAGE..(page + 1) * PAGE]);
    drop(memory);
    check_empty(&pager);
}

#[test]
fn limits_shrink_and_the_tenant_goes_while_threads_store() {
    let (pager, tenant) = tenant(compressed("8M"), "4M");
    let Some(mut memory) = or_skip(tenant.map_anon(6 * MIB)) else { return };
    std::thread::scope(|scope| {
        for part in memory.chunks_exact_mut(2 * MIB) {
            scope.spawn(move || {
                for version in 1..12 {
                    for (page, bytes) in part.chunks_exact_mut(PAGE).enumerate() {
                        check(page, version - 1, false, bytes);
                        fill(page, version, false, bytes);
                    }
                }
            });
        }
        for round in 0..30 {
            let _ = tenant.set_max(Size::new([4, 3, 5, 2][round % 4] << 20)).unwrap();
            std::thread::sleep(Duration::from_millis(2));
            assert!(tenant.usage().unwrap() <= 5 << 20);
            pager.validate().unwrap();
        }
        tenant.remove().unwrap();
    });
    assert!(memory.error().is_none(), "{:?}", memory.error());
    drop(memory);
    check_empty(&pager);
}
