//! Swap that takes no page: pages of files go instead, whatever the policy prefers; where there are
//! none, the error says why swap takes no more.

use lowtide::instruments::{Inject, InjectOp, Request, Verdict};
use lowtide::{Error, Pager, Size, SwapOptions};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{Dir, noise};

const PAGE: u64 = 4096;
/// Pages that the tenant may have.
const MAX: u64 = 200;
/// Of these, pages that swap refuses: several batches of a reclaim.
const STORED: u64 = 160;
/// Pages of a swap file that is full soon.
const FILE: u64 = 8;
/// Reclaims that one read may need, while there are pages of files to go. A charge tries about as
/// often before it fails; a reclaim that gives up with the first refusals needs dozens.
const TRIES: u64 = 16;

/// Why swap refuses pages that do not compress.
#[derive(Clone, Copy, Debug)]
enum Refusal {
    NoFile,
    FileIsFull,
    WritesFail,
}

/// The error of a disk that is full.
const ENOSPC: i32 = 28;

/// The swap file cannot be written.
#[derive(Debug)]
struct WritesFail;

impl Inject for WritesFail {
    fn before(&self, request: &Request<'_>) -> Verdict {
        if request.op == InjectOp::Write && request.path == Path::new("[swap]") {
            return Verdict::Fail(io::Error::from_raw_os_error(ENOSPC));
        }
        Verdict::Pass
    }
}

fn pager(policy: &str, refusal: Refusal, dir: &Path) -> Pager {
    let swap = SwapOptions::compressed(Size::mib(1));
    let builder = Pager::builder().max(Size::mib(8)).policy(policy.parse().unwrap());
    // Nothing else evicts here, so what a reclaim has left alone stays.
    let builder = builder.background(false).memory_timeout(Duration::from_secs(20));
    let builder = match refusal {
        Refusal::NoFile => builder.swap(swap),
        Refusal::FileIsFull => builder.swap(swap.file(dir, Size::new(FILE * PAGE))),
        Refusal::WritesFail => {
            builder.swap(swap.file(dir, Size::new(4 * MAX * PAGE))).inject(Arc::new(WritesFail))
        }
    };
    builder.build().unwrap()
}

#[test]
fn where_swap_refuses_all_anonymous_pages_those_of_files_go_at_once() {
    let dir = Dir::new();
    let path = dir.path().join("file");
    let read = MAX / 2;
    let content: Vec<_> = (0..read).flat_map(|page| noise(page, 2)).collect();
    std::fs::write(&path, content).unwrap();
    for policy in ["mglru", "mglru-7.1", "lru", "tide"] {
        for refusal in [Refusal::NoFile, Refusal::FileIsFull, Refusal::WritesFail] {
            for swappiness in [1, 60, 200] {
                let case = format!("{policy}, {refusal:?}, swappiness {swappiness}");
                let pager = pager(policy, refusal, dir.path());
                let tenant = pager.tenant("heap").max(Size::new(MAX * PAGE)).create().unwrap();
                tenant.set_swappiness(swappiness).unwrap();
                let heap = tenant.region(STORED * PAGE).unwrap();
                for page in 0..STORED {
                    heap.page_mut(page).unwrap().copy_from_slice(&noise(page, 1));
                }
                let view = tenant.open(&path).unwrap();
                let mut reclaims = 0;
                for page in (0..read).chain(0..read) {
                    let guard = view.page(page).unwrap_or_else(|e| panic!("{case}: {e}"));
                    assert!(guard[..] == noise(page, 2), "{case}: page {page} of the file");
                    drop(guard);
                    let before = std::mem::replace(&mut reclaims, tenant.events().unwrap().max);
                    let of_this = reclaims - before;
                    assert!(of_this <= TRIES, "{case}: page {page} took {of_this} reclaims");
                }
                assert!(reclaims > 0, "{case}: there was room for all pages");
                let swapped = heap.swapped_pages();
                assert!(swapped <= FILE, "{case}: {swapped} pages were not refused");
                for page in 0..STORED {
                    assert!(heap.page(page).unwrap()[..] == noise(page, 1), "{case}: page {page}");
                }
                pager.validate().unwrap();
            }
        }
    }
}

#[test]
fn the_error_of_a_full_budget_says_why_swap_takes_no_more() {
    let dir = Dir::new();
    for (refusal, why) in [
        (Refusal::NoFile, "there is no swap file"),
        (Refusal::FileIsFull, "slots free"),
        (Refusal::WritesFail, "No space left on device (os error 28)"),
    ] {
        let pager = pager("mglru", refusal, dir.path());
        let tenant = pager.tenant("heap").max(Size::new(MAX * PAGE)).create().unwrap();
        let heap = tenant.region(2 * MAX * PAGE).unwrap();
        let stored = (0..2 * MAX).find_map(|page| {
            let guard = heap.page_mut(page);
            guard.map(|mut guard| guard.copy_from_slice(&noise(page, 1))).err()
        });
        let error = stored.expect("there is no room for all pages");
        let Error::OutOfBudget { report } = &error else { panic!("{refusal:?}: {error}") };
        assert!(report.swap_refusal.is_some(), "{refusal:?}: {report}");
        let text = error.to_string();
        assert!(text.contains("that swap does not take") && text.contains(why), "{text}");
        // With room again it goes on.
        let _ = tenant.set_max(Size::new(4 * MAX * PAGE)).unwrap();
        heap.page_mut(2 * MAX - 1).unwrap().copy_from_slice(&noise(1, 1));
        pager.validate().unwrap();
    }
}

/// Those that swap refuses stay together, at the end that is looked at first: how many batches of
/// them there are says nothing of the pages behind them.
#[test]
fn pages_that_compress_go_to_swap_from_behind_many_that_do_not() {
    const HARD: u64 = 600;
    let dir = Dir::new();
    for policy in ["mglru", "mglru-7.1", "lru", "tide"] {
        let pager = pager(policy, Refusal::NoFile, dir.path());
        let tenant = pager.tenant("heap").max(Size::new((HARD + MAX) * PAGE)).create().unwrap();
        let heap = tenant.region((HARD + 4 * MAX) * PAGE).unwrap();
        for page in 0..HARD {
            heap.page_mut(page).unwrap().copy_from_slice(&noise(page, 1));
        }
        for page in HARD..HARD + 4 * MAX {
            let stored = heap.page_mut(page).map(|mut guard| guard.fill(page as u8));
            stored.unwrap_or_else(|error| panic!("{policy}, page {page}: {error}"));
        }
        for page in HARD..HARD + 4 * MAX {
            assert_eq!(heap.page(page).unwrap()[9], page as u8, "{policy}, page {page}");
        }
        pager.validate().unwrap();
    }
}
