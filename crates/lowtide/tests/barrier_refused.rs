//! A sandbox that is installed after the pager was built and forbids `membarrier`: errors that say
//! so, and no page that hangs.

use crate::common::scene::{alone, refuse};
use crate::common::{Dir, byte_at, make_file};
use lowtide::{Error, OpenOptions, Pager, Size};
use std::time::Duration;

const PAGE: u64 = 4096;

#[test]
fn a_barrier_that_is_refused_later_is_an_error_and_no_hang() {
    alone(|| {
        let dir = Dir::new();
        let path = make_file(&dir, 1024 * PAGE);
        let pager = Pager::builder()
            .max(Size::new(128 * PAGE))
            .memory_timeout(Duration::from_secs(3600))
            .build()
            .unwrap();
        let view = OpenOptions::new().write(true).open(&pager, &path).unwrap();
        // What is read again is read without a fence from then on, far from what is stored to.
        let read = |page| (0..3).try_for_each(|_| view.page(page).map(drop));
        (512..576).for_each(|page| read(page).unwrap());
        view.write_at(0, b"before").unwrap();
        if !refuse(&[(libc::SYS_membarrier, None)], libc::EPERM) {
            eprintln!("SKIPPED: this kernel takes no seccomp filter");
            return;
        }
        // A page whose readers all execute a fence needs no barrier.
        view.write_at(1, b"E").unwrap();
        // Stores to pages in memory, eviction, and giving pages up: all need to know what readers
        // do.
        assert!(matches!(view.write_at(517 * PAGE, b"x"), Err(Error::NoBarrier)));
        assert!(matches!(view.revert(517 * PAGE..518 * PAGE), Err(Error::NoBarrier)));
        // Other pages come and go in what is left of the budget, however often they are read.
        (576..1024).try_for_each(read).expect("half of the budget is left");
        // A guard is no such reader: the store fails because of the guard.
        let impatient = Pager::builder()
            .max(Size::new(128 * PAGE))
            .memory_timeout(Duration::from_millis(20))
            .build()
            .unwrap();
        let second = Dir::new();
        let other = make_file(&second, 8 * PAGE);
        let other = OpenOptions::new().write(true).open(&impatient, &other).unwrap();
        (0..3).for_each(|_| drop(other.page(3).unwrap()));
        std::thread::scope(|scope| {
            let (held, holds) = std::sync::mpsc::channel();
            let (done, is_done) = std::sync::mpsc::channel::<()>();
            let other = &other;
            scope.spawn(move || {
                let guard = other.page(3).unwrap();
                held.send(()).unwrap();
                let _ = is_done.recv();
                drop(guard);
            });
            holds.recv().unwrap();
            let refused = other.write_at(3 * PAGE, b"x");
            assert!(matches!(refused, Err(Error::HeldElsewhere { page: 3, .. })), "{refused:?}");
            drop(done);
        });
        other.write_at(3 * PAGE, b"x").expect("the guard is gone");
        // Where guards take the rest there is no room, and no hope for any.
        let mut guards = Vec::new();
        let full = (576..1024).find_map(|page| view.page(page).map(|g| guards.push(g)).err());
        let full = full.expect("no room");
        assert!(matches!(full, Error::NoBarrier), "{full}");
        assert!(full.to_string().contains("membarrier"), "{full}");
        drop(guards);
        // What is in memory can be read as before, and what is dirty is written.
        for page in 512..576 {
            assert_eq!(view.page(page).unwrap()[7], byte_at(page * PAGE + 7));
        }
        assert!(
            matches!(view.write_at(517 * PAGE, b"x"), Err(Error::NoBarrier)),
            "the page does not hang"
        );
        view.flush().unwrap();
        pager.validate().unwrap();
        drop(view);
        drop(pager);
        assert_eq!(&std::fs::read(&path).unwrap()[..6], b"bEfore");
    });
}
