//! After a defect of the engine: a pool that does nothing more.
//!
//! A panic while a thread has the pool's lock leaves the engine, the frames and the translations in
//! the middle of a change. To go on with that could give one frame to two pages, or write a page
//! into another's place. So the pool is *poisoned* from then on: every operation that would change
//! what the lock protects fails with [`Error::Poisoned`](crate::Error::Poisoned) instead.
//!
//! The mark is the standard library's own, on the mutex, so nothing has to be done at the moment of
//! the panic. Every operation checks for it before it begins (`Pool::check`), and the few places
//! through which everything passes check again under the lock: taking frames, making pages dirty,
//! beginning to write, giving frames back. A thread that sleeps until another is done with a page
//! checks from time to time, because a thread that panicked wakes none. The background threads end
//! at their next check.
//!
//! Figures that only the engine knows are not read any more
//! ([`Stat::poisoned`](crate::Stat::poisoned)), and exported files stay as they were.
//!
//! What stays: pages that are resident and were read before can be read on through
//! [`View::page`](crate::View::page), which takes no lock and whose frames do not move any more.
//! Files are as the last write-back left them; pages that were dirty are lost when the pager goes.
//! Dropping neither waits nor writes.

#[cfg(test)]
mod tests {
    use crate::{DirtyStat, Error, OpenError, OpenOptions, Pager, Size, Tenant, TenantError, View};
    use lowtide_pin::translation::State as EntryState;
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    /// Runs what must come to an end.
    fn bounded<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (send, done) = channel();
        std::thread::spawn(move || send.send(work()));
        done.recv_timeout(Duration::from_secs(60)).unwrap_or_else(|e| panic!("{what}: {e}"))
    }

    /// Calls a pager that is poisoned, in every way.
    fn every_call_fails(view: &View, pager: &Pager, tenant: &Tenant, path: &Path) {
        assert_eq!(view.page(0).unwrap()[0], 9, "what is resident can be read");
        let mut buf = [0; 8192];
        let failed = [
            view.page(99).map(drop),
            view.read_at(80_000, &mut buf),
            view.get_many(&[1, 2], |_, _| ()),
            view.write_at(0, b"x"),
            view.write_at(50_000, &[1; 9000]),
            view.flush(),
            view.flush_range(0..10),
            view.revert(0..9 << 12).map(drop),
            view.set_len(4096),
            tenant.reserve(Size::kib(64)).map(drop),
        ];
        for (i, result) in failed.iter().enumerate() {
            let tenant = matches!(result, Err(Error::Tenant(TenantError::Poisoned)));
            assert!(tenant || matches!(result, Err(Error::Poisoned)), "call {i}: {result:?}");
        }
        view.prefetch(0..100 << 12);
        assert!(matches!(pager.open(path), Err(OpenError::Poisoned { .. })));
        assert_eq!(tenant.usage(), Err(TenantError::Poisoned));
        assert!(pager.tenant("b").create().is_err());
        assert!(pager.validate().is_err());
        let stat = pager.stat();
        assert!(stat.poisoned && stat.io.writes > 0 && stat.budget_bytes == 16 << 20);
        assert_eq!((stat.memory.current, stat.unwritten_bytes), (0, 0), "not known");
        assert_eq!(pager.dirty(), DirtyStat::default());
        assert!(pager.report().contains("poisoned") && pager.report().contains("Flushed"));
    }

    #[test]
    fn after_a_panic_of_the_engine_every_call_fails_with_a_typed_error_and_nothing_hangs() {
        for background in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("file");
            std::fs::write(&path, vec![7; 1 << 20]).unwrap();
            let builder = Pager::builder().max(Size::mib(16)).background(background);
            let pager = builder.build().unwrap();
            let view = OpenOptions::new().write(true).open(&pager, &path).unwrap();
            let tenant = pager.tenant("a").create().unwrap();
            let mut reservation = tenant.reserve(Size::mib(1)).unwrap();
            view.write_at(0, &[8; 4096]).unwrap();
            view.flush().unwrap();
            view.write_at(0, &[9; 4096]).unwrap();
            drop((view.page(0).unwrap(), view.page(0).unwrap()));

            // A thread waits for a page that its owner never ends.
            let pool = Arc::clone(&pager.inner.pool);
            let space = pool.lock().spaces.iter().flatten().next().unwrap().clone();
            space.table.entry(40).try_begin_read(0).unwrap();
            let waiter = {
                let view = view.clone();
                std::thread::spawn(move || view.page(40).map(drop))
            };
            while space.table.entry(40).load() != EntryState::Busy {
                std::thread::yield_now();
            }
            let defect = Arc::clone(&pool);
            let panicked = std::thread::spawn(move || {
                let mut state = defect.lock();
                // In the middle of a change.
                state.reservations = Default::default();
                panic!("a defect of the engine, as this test wants it");
            });
            assert!(panicked.join().is_err());

            let waited = bounded("a thread that waits for a page", move || waiter.join().unwrap());
            assert!(matches!(waited, Err(Error::Poisoned)), "{waited:?}");
            let (calls, other) = (view.clone(), path.clone());
            let handle = pager.clone();
            bounded("a call", move || {
                let (view, pager) = (calls, handle);
                every_call_fails(&view, &pager, &tenant, &other);
                reservation.shrink(Size::kib(64));
                drop(reservation);
                pager.publish();
            });
            drop(space);
            bounded("closing", move || {
                drop(view);
                let closed = pager.clone().close();
                assert!(closed.is_err(), "a page is lost");
                drop(pager);
            });
            drop(pool);
            let file = std::fs::read(&path).unwrap();
            assert!(file[..4096].iter().all(|b| *b == 8), "as it was flushed");
            assert!(file[4096..].iter().all(|b| *b == 7));
        }
    }
}
