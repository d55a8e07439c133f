//! A region whose pages are freed lazily while threads store to it, and memory is short.
//!
//! A page that was freed holds what it held, or zeroes; once it is zeroes it stays so. A store ends
//! that: what it leaves of the page stays as it was, too.

use super::file::Came;
use super::operations::Hand;
use super::plan::Rng;
use super::region::REFUSALS;
use super::size;
use lowtide::{Error, Region};

/// Frames of the scene: fewer than `region.rs` has for scenes.
const FRAMES: u64 = 20;
/// Pages of the region.
const PAGES: u64 = 60;
/// Steps of a thread.
const STEPS: u64 = 200;

/// What a page may hold: one byte, again and again.
#[derive(Clone, Copy, Debug)]
enum Known {
    Holds(u8),
    /// Or zeroes.
    Freed(u8),
}

/// Two threads, each with every second page.
pub(crate) fn freed_lazily(hand: &mut Hand<'_>) -> Came {
    let (storm, page) = (hand.storm, hand.storm.plan.page as u64);
    let regions = &storm.regions;
    let Ok(_alone) = regions.scene.try_lock() else { return Came::NotNow };
    let tenant = regions.tenant().child("lazy").max(size(FRAMES * page)).create();
    let tenant = tenant.expect("a tenant can be made");
    let refused = |error: &Error| {
        regions.refused(error, "a scene");
        1
    };
    let heap = match tenant.region(PAGES * page) {
        Ok(heap) => heap,
        Err(error) => {
            refused(&error);
            tenant.remove().expect("nothing is in its way");
            return Came::Refused;
        }
    };
    let seed = hand.rng.next();
    std::thread::scope(|scope| {
        for number in 0..2 {
            let (heap, refused) = (&heap, &refused);
            scope.spawn(move || play(heap, number, Rng(seed ^ number), refused));
        }
    });
    drop(heap);
    tenant.remove().expect("nothing is in its way");
    Came::Done
}

fn play(heap: &Region, number: u64, mut rng: Rng, refused: &impl Fn(&Error) -> u32) {
    let page = heap.page_size() as u64;
    let (mut known, mut refusals) = (vec![Known::Holds(0); PAGES as usize], 0);
    for _ in 0..STEPS {
        if refusals == REFUSALS {
            return;
        }
        let at = rng.below(PAGES / 2) * 2 + number;
        let to = &mut known[at as usize];
        match rng.below(8) {
            0..3 => match heap.page_mut(at) {
                Ok(mut guard) => {
                    look(to, &guard, at);
                    let byte = rng.next() as u8;
                    guard.fill(byte);
                    *to = Known::Holds(byte);
                }
                Err(error) => refusals += refused(&error),
            },
            3 => match heap.page_mut(at) {
                // It is owned, and stays what it is now.
                Ok(guard) => *to = Known::Holds(look(to, &guard, at)),
                Err(error) => refusals += refused(&error),
            },
            4..6 => match heap.page(at) {
                Ok(guard) => _ = look(to, &guard, at),
                Err(error) => refusals += refused(&error),
            },
            _ => {
                heap.advise_free(at * page..(at + 1) * page).expect("it is in the region");
                if let Known::Holds(byte) = *to {
                    *to = Known::Freed(byte);
                }
            }
        }
    }
}

/// Checks a page, and notes what it is from now on. Returns what it holds.
fn look(known: &mut Known, bytes: &[u8], at: u64) -> u8 {
    let byte = bytes[0];
    assert!(bytes.iter().all(|other| *other == byte), "page {at} of a scene is torn");
    match *known {
        Known::Holds(due) => assert_eq!(byte, due, "page {at} of a scene"),
        Known::Freed(due) if byte == due => {}
        Known::Freed(due) => {
            assert_eq!(byte, 0, "page {at} of a scene was freed with {due}");
            *known = Known::Holds(0);
        }
    }
    byte
}
