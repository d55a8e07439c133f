//! Many threads, three files, a budget of 64 pages: nothing wrong, nothing stuck, the budget never exceeded.
//!
//! Every page holds its file, number and version, and bytes that follow from them. Beside the files stands a shadow: for each page the
//! last version whose write has ended and the last whose write has begun. A read that began after the one and ended before the other was set must see
//! a version between the two, whole. Writers, readers through guards, through copies, through `get_many`, and flushes all run at once.
//!
//! The test is bounded by operations. `LOWTIDE_STRESS_SECONDS=600` makes it run by time instead.

mod common;

use common::Dir;
use lowtide::{Error, IoEngine, OpenOptions, Pager, View};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

const PAGES: u64 = 256;
const PAGE: usize = 4096;
const BUDGET: u64 = 64;

struct Shadow {
    /// Version whose write has ended; writers of a page take turns under it.
    done: Mutex<u64>,
    ended: AtomicU64,
    begun: AtomicU64,
}

struct File {
    view: View,
    number: u64,
    shadow: Vec<Shadow>,
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

fn fill(file: u64, page: u64, version: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(PAGE);
    for word in [file, page, version] {
        bytes.extend(word.to_le_bytes());
    }
    let seed = mix(file << 56 ^ page << 32 ^ version);
    bytes.extend((3..PAGE as u64 / 8).flat_map(|i| mix(seed.wrapping_add(i)).to_le_bytes()));
    bytes
}

/// The version that a page holds, if all of it belongs to that version.
fn version_of(file: u64, page: u64, bytes: &[u8]) -> u64 {
    let version = u64::from_le_bytes(bytes[16..24].try_into().unwrap());
    assert!(bytes == fill(file, page, version), "file {file} page {page} is not version {version}");
    version
}

impl File {
    fn new(pager: &Pager, dir: &Dir, number: u64) -> Self {
        let path = dir.path().join(format!("file{number}"));
        let bytes: Vec<u8> = (0..PAGES).flat_map(|page| fill(number, page, 0)).collect();
        std::fs::write(&path, bytes).unwrap();
        let view = OpenOptions::new().write(true).open(pager, &path).unwrap();
        let shadow = || Shadow { done: Mutex::new(0), ended: AtomicU64::new(0), begun: AtomicU64::new(0) };
        Self { view, number, shadow: (0..PAGES).map(|_| shadow()).collect() }
    }

    fn write(&self, page: u64) {
        let shadow = &self.shadow[page as usize];
        let mut done = shadow.done.lock().unwrap();
        let version = *done + 1;
        shadow.begun.store(version, SeqCst);
        self.view.write_at(page * PAGE as u64, &fill(self.number, page, version)).unwrap();
        shadow.ended.store(version, SeqCst);
        *done = version;
    }

    fn check(&self, page: u64, least: u64, bytes: &[u8]) {
        let version = version_of(self.number, page, bytes);
        let most = self.shadow[page as usize].begun.load(SeqCst);
        assert!(
            (least..=most).contains(&version),
            "file {} page {page}: {version} is not in {least}..={most}",
            self.number
        );
    }

    fn least(&self, page: u64) -> u64 {
        self.shadow[page as usize].ended.load(SeqCst)
    }
}

fn one_operation(files: &[File], random: &mut u64) {
    *random = random.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let r = mix(*random);
    let file = &files[(r % 3) as usize];
    // Half of the accesses go to a sixteenth of the pages, so that threads meet.
    let page = if r & 8 == 0 { (r >> 8) % (PAGES / 16) } else { (r >> 8) % PAGES };
    match r >> 4 & 31 {
        0 => file.view.flush().unwrap(),
        1..=9 => file.write(page),
        10..=13 => {
            let least = file.least(page);
            let mut copy = vec![0; PAGE];
            file.view.read_at(page * PAGE as u64, &mut copy).unwrap();
            file.check(page, least, &copy);
        }
        14..=15 => {
            let list: Vec<u64> = (0..8).map(|i| mix(r + i) % PAGES).collect();
            let least: Vec<u64> = list.iter().map(|p| file.least(*p)).collect();
            file.view.get_many(&list, |i, bytes| file.check(list[i], least[i], bytes)).unwrap();
        }
        _ => {
            let least = file.least(page);
            let guard = file.view.read(page).unwrap();
            file.check(page, least, &guard);
        }
    }
}

fn storm(threads: u64, operations: u64, engine: IoEngine, policy: &str) {
    let seconds = std::env::var("LOWTIDE_STRESS_SECONDS").ok().and_then(|s| s.parse().ok());
    let end = seconds.map(|s| Instant::now() + Duration::from_secs(s));
    let dir = Dir::new();
    let pager = Pager::builder()
        .max((BUDGET * PAGE as u64).to_string().parse().unwrap())
        .policy(policy.parse().unwrap())
        .io_engine(engine)
        .patience(Duration::from_secs(60))
        .build()
        .unwrap();
    let files: Vec<_> = (0..3).map(|n| File::new(&pager, &dir, n)).collect();
    let over = AtomicBool::new(false);
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (files, done) = (&files, &done);
                scope.spawn(move || {
                    let mut random = mix(thread + 1);
                    for _ in 0.. {
                        let so_far = done.fetch_add(1, SeqCst);
                        if end.map_or(so_far >= operations, |end| Instant::now() >= end) {
                            break;
                        }
                        one_operation(files, &mut random);
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !over.load(SeqCst) {
                pager.validate().unwrap();
                let stat = pager.stat();
                assert!(stat.memory.current <= BUDGET, "{} pages in use", stat.memory.current);
                std::thread::yield_now();
            }
        });
        let mut failed = false;
        for worker in workers {
            failed |= worker.join().is_err();
        }
        over.store(true, SeqCst);
        assert!(!failed, "a worker failed; its message is above");
    });
    pager.validate().unwrap();
    for file in &files {
        file.view.flush().unwrap();
        let bytes = std::fs::read(dir.path().join(format!("file{}", file.number))).unwrap();
        for (page, bytes) in (0..).zip(bytes.chunks(PAGE)) {
            assert_eq!(
                version_of(file.number, page, bytes),
                file.least(page),
                "on disk after the last flush"
            );
        }
    }
    eprintln!(
        "{threads} threads, {engine}, {policy}: {} operations, {}",
        done.load(SeqCst),
        pager.stat().io.reads
    );
    drop(files);
    assert_eq!(pager.stat().memory.current, 0);
}

#[test]
fn sixty_four_threads_share_sixty_four_pages() {
    storm(64, 20_000, IoEngine::Auto, "mglru");
}

#[test]
fn the_same_with_plain_system_calls_and_the_older_policies() {
    storm(16, 8_000, IoEngine::Psync, "mglru-7.1");
    storm(16, 8_000, IoEngine::Auto, "lru");
}

#[test]
fn a_writer_waits_for_a_guard_of_another_thread_and_gives_up_with_a_typed_error() {
    let dir = Dir::new();
    let pager =
        Pager::builder().max("256K".parse().unwrap()).patience(Duration::from_millis(20)).build().unwrap();
    let file = File::new(&pager, &dir, 0);
    let guard = file.view.read(5).unwrap();
    std::thread::scope(|scope| {
        let result = scope.spawn(|| file.view.write_at(5 * PAGE as u64, b"x")).join().unwrap();
        assert!(matches!(result, Err(Error::HeldElsewhere { page: 5, .. })), "{result:?}");
    });
    assert_eq!(version_of(0, 5, &guard), 0, "the guard still shows what it showed");
    drop(guard);
    file.write(5);
}
