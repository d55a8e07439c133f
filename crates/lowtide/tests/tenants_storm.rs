//! Sixty-four threads on a tree of tenants whose limits, places and names change all the time: no
//! limit is ever exceeded, no byte is wrong, nothing is stuck, and when all is over every page has
//! been given back.
//!
//! The test is bounded by operations, and what each thread does follows from a seed.
//! `LOWTIDE_STRESS_SECONDS=600` repeats it with new seeds for so long.

use crate::common::{Dir, byte_at};
use lowtide::budget::Share;
use lowtide::{Error, OpenOptions, Pager, Size, Tenant, TenantError, View};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::time::{Duration, Instant};

const PAGE: u64 = 4096;
const FRAMES: u64 = 1024;
const FILE: u64 = 512;

fn pages(n: u64) -> Size {
    Size::new(n * PAGE)
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % n
    }
}

fn check(page: u64, bytes: &[u8]) {
    for at in [0, 1, 511, 2048, 4095] {
        assert_eq!(bytes[at], byte_at(page * PAGE + at as u64), "page {page}, byte {at}");
    }
}

/// Ends whatever waits for it, even when a thread has panicked.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

struct Storm {
    pager: Pager,
    /// Two that stay, and what is below them.
    tops: Vec<Tenant>,
    leaves: Vec<Tenant>,
    views: Vec<View>,
    dir: Dir,
    /// Operations that found no room.
    full: AtomicU64,
    done: AtomicU64,
}

impl Storm {
    fn new(policy: &str) -> Self {
        let dir = Dir::new();
        let pager = Pager::builder()
            .max(pages(FRAMES))
            .policy(policy.parse().unwrap())
            .memory_timeout(Duration::from_millis(500))
            .build()
            .unwrap();
        let contents: Vec<_> = (0..FILE * PAGE).map(byte_at).collect();
        let tops: Vec<_> =
            ["a", "b"].map(|name| pager.tenant(name).max(pages(600)).create().unwrap()).into();
        let mut leaves = Vec::new();
        let mut views = Vec::new();
        for (i, top) in (0..6).zip(tops.iter().cycle()) {
            let leaf = top.child(&format!("leaf{i}")).max(pages(200)).create().unwrap();
            let path = dir.path().join(i.to_string());
            std::fs::write(&path, &contents).unwrap();
            views.push(OpenOptions::new().write(true).tenant(&leaf).open(&pager, &path).unwrap());
            leaves.push(leaf);
        }
        std::fs::write(dir.path().join("guest"), &contents).unwrap();
        Self { pager, tops, leaves, views, dir, full: AtomicU64::new(0), done: AtomicU64::new(0) }
    }

    fn leaf(&self, random: &mut Random) -> &Tenant {
        &self.leaves[random.below(self.leaves.len() as u64) as usize]
    }

    /// Counts an operation; only want of room is allowed to stop it.
    fn count(&self, result: Result<(), Error>) {
        self.done.fetch_add(1, Relaxed);
        match result {
            Ok(()) => {}
            Err(Error::OutOfBudget { report }) => {
                assert!(report.usage_bytes > 0 || report.limit_bytes < 64 * PAGE, "{report}");
                self.full.fetch_add(1, Relaxed);
            }
            Err(e) => panic!("{e}"),
        }
    }

    fn use_pages(&self, view: &View, random: &mut Random) -> Result<(), Error> {
        let page = if random.below(2) == 0 { random.below(FILE / 8) } else { random.below(FILE) };
        match random.below(16) {
            0..=2 => {
                let start = page * PAGE;
                let bytes: Vec<_> = (start..start + PAGE).map(byte_at).collect();
                view.write_at(start, &bytes)
            }
            3..=5 => {
                let list: Vec<_> = (0..8).map(|_| random.below(FILE)).collect();
                view.get_many(&list, |i, bytes| check(list[i], bytes))
            }
            6 => {
                let mut bytes = vec![0; PAGE as usize];
                view.read_at(page * PAGE, &mut bytes)?;
                check(page, &bytes);
                Ok(())
            }
            7 => {
                view.prefetch(page * PAGE..(page + 4).min(FILE) * PAGE);
                Ok(())
            }
            _ => {
                check(page, &view.page(page)?);
                Ok(())
            }
        }
    }

    fn change_limits(&self, random: &mut Random) {
        let leaf = self.leaf(random);
        let n = random.below(300);
        match random.below(10) {
            0..=2 => drop(leaf.set_max(pages(40 + n)).unwrap()),
            3 => drop(leaf.set_max(Size::MAX).unwrap()),
            4 => drop(leaf.set_high(if n < 100 { Size::MAX } else { pages(n) }).unwrap()),
            5 => leaf.set_low(pages(n / 4)).unwrap(),
            6 => leaf.set_min(pages(n / 16)).unwrap(),
            7 => {
                let share = if n < 200 { Share::ByBenefit } else { Share::Common };
                self.tops[random.below(2) as usize].set_share(share).unwrap();
            }
            8 => {
                if let Some(curve) = leaf.curve().unwrap() {
                    assert!(curve.ratio_at(0) >= curve.ratio_at(curve.footprint()), "{curve}");
                    assert!(
                        curve.footprint() <= curve.accesses().ceil() as u64 * PAGE,
                        "{curve:?}"
                    );
                }
            }
            _ => {
                let top = &self.tops[random.below(2) as usize];
                let _ = top.set_max(pages(300 + n)).unwrap();
            }
        }
    }

    fn change_the_tree(&self, random: &mut Random) {
        let leaf = self.leaf(random);
        let to = &self.tops[random.below(2) as usize];
        match leaf.move_to(to) {
            Ok(()) | Err(TenantError::NoRoom { .. }) => {}
            Err(e) => panic!("{e}"),
        }
        leaf.rename(&leaf.name().unwrap()).unwrap();
        if random.below(8) == 0 {
            leaf.reclaim(pages(random.below(64))).unwrap();
        }
    }

    /// A tenant that comes, is used and goes under load, while its view is still read.
    fn come_and_go(&self, number: u64, random: &mut Random) {
        let guest =
            self.leaf(random).child(&format!("guest{number}")).max(pages(50)).create().unwrap();
        let view = guest.open(self.dir.path().join("guest")).unwrap();
        let reserved = match guest.reserve(pages(random.below(30))) {
            Ok(reserved) => Some(reserved),
            Err(e) => {
                self.count(Err(e));
                None
            }
        };
        std::thread::scope(|scope| {
            let mut other = Random(random.below(u64::MAX));
            let view = &view;
            scope.spawn(move || {
                for _ in 0..40 {
                    self.count(view.page(other.below(FILE)).map(drop));
                }
            });
            for i in 0..40 {
                let page = random.below(FILE);
                self.count(view.page(page).map(|bytes| check(page, &bytes)));
                if i == 20 {
                    guest.remove().unwrap();
                }
            }
        });
        drop((view, reserved));
    }

    fn thread(&self, number: u64, seed: u64, operations: u64) {
        let mut random = Random(seed << 32 | number);
        match number {
            0..=3 => (0..operations / 8).for_each(|_| self.change_limits(&mut random)),
            4..=5 => (0..operations / 8).for_each(|_| self.change_the_tree(&mut random)),
            6..=8 => (0..operations / 40).for_each(|_| self.come_and_go(number, &mut random)),
            9..=12 => {
                let mut kept = Vec::new();
                for _ in 0..operations / 8 {
                    match self.leaf(&mut random).reserve(pages(random.below(20))) {
                        Ok(reserved) => kept.push(reserved),
                        Err(e) => self.count(Err(e)),
                    }
                    if kept.len() > 2 {
                        drop(kept.swap_remove(0));
                    }
                }
            }
            _ => {
                for _ in 0..operations {
                    let view = &self.views[random.below(self.views.len() as u64) as usize];
                    self.count(self.use_pages(view, &mut random));
                }
            }
        }
    }

    /// Looks at everything, all the time. Returns how often.
    fn watch(&self, over: &AtomicBool) -> u64 {
        let mut looks = 0;
        while !over.load(SeqCst) {
            // Under one lock: usage is at most max, or falls since max was lowered.
            self.pager.validate().unwrap();
            assert!(self.pager.root().usage().unwrap() <= FRAMES * PAGE);
            looks += 1;
            std::thread::sleep(Duration::from_micros(200));
        }
        looks
    }

    fn rage(self, seed: u64, operations: u64) {
        let over = AtomicBool::new(false);
        let looks = std::thread::scope(|scope| {
            let watcher = scope.spawn(|| self.watch(&over));
            std::thread::scope(|scope| {
                let _over = Over(&over);
                let threads: Vec<_> = (0..64)
                    .map(|n| {
                        scope.spawn({
                            let storm = &self;
                            move || storm.thread(n, seed, operations)
                        })
                    })
                    .collect();
                threads.into_iter().for_each(|t| t.join().unwrap());
            });
            watcher.join().unwrap()
        });
        assert!(looks > 10, "{looks} looks");
        let (done, full) = (self.done.load(Relaxed), self.full.load(Relaxed));
        assert!(full < done / 20, "{full} of {done} operations found no room");
        self.end();
    }

    /// When all is quiet there is room for all, and then everything is given back.
    fn end(self) {
        for tenant in self.tops.iter().chain(&self.leaves) {
            let _ = tenant.set_max(Size::MAX).unwrap();
            tenant.set_min(Size::new(0)).unwrap();
        }
        for view in &self.views {
            (0..FILE).for_each(|page| check(page, &view.page(page).unwrap()));
            view.flush().unwrap();
        }
        self.pager.validate().unwrap();
        drop(self.views);
        assert_eq!(self.pager.stat().memory.reserved, 0);
        for tenant in self.leaves.iter().chain(&self.tops) {
            tenant.remove().unwrap();
        }
        self.pager.validate().unwrap();
        assert_eq!(self.pager.root().usage().unwrap(), 0, "every page was given back");
    }
}

#[test]
fn limits_hold_at_every_moment_whatever_changes() {
    let seconds =
        std::env::var("LOWTIDE_STRESS_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(0);
    let began = Instant::now();
    let policies = ["mglru", "lru", "mglru-7.1", "tide"];
    for (seed, policy) in (0..).zip(policies.into_iter().cycle()) {
        if seed >= 4 && began.elapsed() >= Duration::from_secs(seconds) {
            break;
        }
        Storm::new(policy).rage(seed, 480);
    }
}
