//! How long a file is: learning it, making it longer, cutting it off.
//!
//! Past the end of the file all bytes in memory are zeroes, those of a partial last page and
//! those of a large folio that reaches over the end. So a file that this pager makes longer needs
//! no more than a new length, and what lies between reads as zeroes. The work is where the end
//! moves over pages that are in memory:
//!
//! | the end moves | by | what is done |
//! |---|---|---|
//! | forward | this pager | nothing: zeroes are right |
//! | forward | others | what they appended is read into the folio in which the file ended |
//! | back | this pager | pages behind the new end are dropped; the rest of the last one is zeroed |
//! | back | others | clean pages are dropped; a dirty one stays and makes the file as long again |
//!
//! **Cutting** is atomic: a thread sees the file as before or as after. Stores wait
//! ([`Space::reshaping`]); no page behind the new end comes in or is written from now on
//! ([`Space::cut_from`]); those that are there, and the folio that the new end falls into, are
//! owned by this thread ([`Owned::take`]) when the file system cuts the file. If that fails, all is
//! given back as it was. So it is if a guard, or the device, keeps a page for too long: locks and
//! marks of this file are held for one attempt at a time (`attempt.rs`).
//!
//! Lock order: `reshaping`, `growing`, then the pool's.

use super::Space;
use super::owned::Owned;
use crate::error::Error;
use crate::fault::attempt::{Attempts, Stop};
use crate::fault::nested::is_nested;
use crate::pool::Pool;
use crate::zcache::OfSpace;
use std::io;
use std::ops::Range;

/// The length of one file, to be learned or changed.
pub(crate) struct Length<'a> {
    pool: &'a Pool,
    space: &'a Space,
}

impl<'a> Length<'a> {
    pub(crate) const fn of(pool: &'a Pool, space: &'a Space) -> Self {
        Self { pool, space }
    }

    /// Looks at the file's size; returns the length that is known then.
    pub(crate) fn refresh(&self) -> Result<u64, Error> {
        let Self { pool, space } = *self;
        Attempts::new(pool, space).repeat(|attempts| {
            let size = space.backing.size().map_err(|e| space.read_error(0, e))?;
            if size < space.len() {
                let _alone = space.reshaping()?;
                let _one_at_a_time = space.growing()?;
                self.notice_cut(attempts)?;
            } else if size > space.len() {
                let _one_at_a_time = space.growing()?;
                self.notice_growth(attempts)?;
            }
            Ok(space.len())
        })
    }

    /// As [`Length::refresh`], for a reader that looks past the end. With reads of its own in
    /// flight it may not wait, and does not look.
    pub(crate) fn look_behind_end(&self) -> Result<u64, Error> {
        let Self { space, .. } = *self;
        if is_nested() { Ok(space.len()) } else { self.refresh() }
    }

    /// Makes the file at least `len` bytes long. Returns whether it was shorter.
    pub(crate) fn extend_to(&self, len: u64) -> Result<bool, Error> {
        let Self { pool, space } = *self;
        if space.backing.size().is_ok_and(|size| size < space.len()) {
            self.refresh()?;
        }
        Attempts::new(pool, space).repeat(|attempts| {
            let _one_at_a_time = space.growing()?;
            self.notice_growth(attempts)?;
            if len <= space.len() {
                return Ok(false);
            }
            self.lengthen(len, attempts)?;
            Ok(true)
        })
    }

    /// Drops the clean pages of a file that others may have changed.
    pub(crate) fn forget_clean(&self) -> Result<(), Error> {
        let Self { pool, space } = *self;
        Attempts::new(pool, space).repeat(|attempts| {
            let _alone = space.reshaping()?;
            let _pause = space.zcache.as_ref().map(OfSpace::pause);
            Owned::take(pool, space, 0..space.table.pages(), 0..0, true, attempts)?.drop_clean();
            Ok(())
        })?;
        self.refresh().map(drop)
    }

    fn lengthen(&self, len: u64, attempts: &mut Attempts<'_>) -> Result<(), Stop> {
        let Self { pool, space } = *self;
        if !space.backing.is_regular() {
            let full = io::Error::from_raw_os_error(libc::ENOSPC);
            return Err(Stop::Failed(space.grow_error(len, full)));
        }
        // Steps that can fail without a trace come first.
        space.make_room(len)?;
        // The kernel zeroes what the last block has behind the old end.
        let end = space.len();
        let _alone = attempts.alone_beneath(&(end..end + 1))?;
        space.backing.set_len(&pool.backend, len).map_err(|e| space.grow_error(len, e))?;
        space.note_change();
        Ok(space.set_known_len(len)?)
    }

    /// Makes the file exactly `len` bytes long.
    pub(crate) fn set(&self, len: u64) -> Result<(), Error> {
        let Self { pool, space } = *self;
        space.check_not_nested(len >> pool.page_shift)?;
        if len > self.refresh()? && self.extend_to(len)? {
            return Ok(());
        }
        Attempts::new(pool, space).repeat(|attempts| self.try_set(len, attempts))
    }

    fn try_set(&self, len: u64, attempts: &mut Attempts<'_>) -> Result<(), Stop> {
        let Self { pool, space } = *self;
        let _alone = space.reshaping()?;
        let _one_at_a_time = space.growing()?;
        self.notice_cut(attempts)?;
        self.notice_growth(attempts)?;
        if len >= space.len() {
            return if len > space.len() { self.lengthen(len, attempts) } else { Ok(()) };
        }
        if !space.backing.is_regular() {
            return Err(Stop::Failed(
                space.grow_error(len, io::Error::from_raw_os_error(libc::EINVAL)),
            ));
        }
        let folio = 1_u64 << space.order;
        let kept = len.div_ceil(pool.page_bytes() as u64);
        // The folio that the new end falls into: owned from its first page on.
        let split = (len >> pool.page_shift) / folio * folio..kept.next_multiple_of(folio);
        let refuse_from = |page| {
            let _state = pool.lock();
            space.cut_from(page);
        };
        refuse_from(split.end);
        let cut = self.cut(len, kept, split, attempts);
        refuse_from(u64::MAX);
        cut
    }

    fn cut(
        &self,
        len: u64,
        kept: u64,
        split: Range<u64>,
        attempts: &mut Attempts<'_>,
    ) -> Result<(), Stop> {
        let Self { pool, space } = *self;
        let first = split.start;
        let mut owned =
            Owned::take(pool, space, first..space.table.pages(), split, true, attempts)?;
        if let Some(zcache) = &space.zcache {
            zcache.forget_range(first..u64::MAX);
        }
        let alone = attempts.alone_beneath(&(len..u64::MAX))?;
        space.backing.set_len(&pool.backend, len).map_err(|e| space.grow_error(len, e))?;
        drop(alone);
        space.note_change();
        space.begins_hole(len);
        space.set_known_len(len)?;
        // The absent ones, too: none of them comes in before the cut is over.
        lowtide_pin::sync::lock(&space.ledger).discarded(kept..u64::MAX);
        owned.drop_folios(kept);
        owned.zero_from(len);
        owned.forget_accesses(kept);
        pool.lock().reuse.forget(space.id, kept..u64::MAX);
        Ok(())
    }

    /// Reads what others have appended to pages that are in memory.
    fn notice_growth(&self, attempts: &mut Attempts<'_>) -> Result<(), Stop> {
        let Self { pool, space } = *self;
        let (size, len) = (space.backing.size().map_err(|e| space.read_error(0, e))?, space.len());
        if size <= len {
            return Ok(());
        }
        space.found_len(size);
        space.make_room(size)?;
        let folio_bytes = (pool.page_bytes() as u64) << space.order;
        if !len.is_multiple_of(folio_bytes) {
            let first = len >> pool.page_shift;
            let end = len.next_multiple_of(folio_bytes);
            let owned =
                Owned::take(pool, space, first..end >> pool.page_shift, 0..0, false, attempts)?;
            if let Err(error) = owned.read_again(len..size.min(end)) {
                // Some of it may have been read; past the end that is known there are zeroes.
                owned.zero_from(len);
                // Others may have cut it off again.
                let cut = error.kind() == io::ErrorKind::UnexpectedEof;
                return if cut { Ok(()) } else { Err(space.read_error(first, error).into()) };
            }
        }
        Ok(space.set_known_len(size)?)
    }

    /// If others have made the file shorter: clean pages are dropped, and dirty ones make it as
    /// long again.
    fn notice_cut(&self, attempts: &mut Attempts<'_>) -> Result<(), Stop> {
        let Self { pool, space } = *self;
        let read_size = || space.backing.size().map_err(|e| space.read_error(0, e));
        if read_size()? >= space.len() {
            return Ok(());
        }
        let first = read_size()? >> pool.page_shift >> space.order << space.order;
        let _pause = space.zcache.as_ref().map(OfSpace::pause);
        let mut owned = Owned::take(pool, space, first..space.table.pages(), 0..0, true, attempts)?;
        // A write that was under way may have made it longer since.
        let (size, len) = (read_size()?, space.len());
        let dirty = space.table.last_dirty(size >> pool.page_shift);
        let wanted = dirty.map_or(0, |page| len.min((page + 1) << pool.page_shift));
        if wanted > size {
            let _alone = attempts.alone_beneath(&(size..size + 1))?;
            space
                .backing
                .set_len(&pool.backend, wanted)
                .map_err(|e| space.grow_error(wanted, e))?;
            space.note_change();
        }
        space.set_known_len(wanted.max(size).min(len))?;
        owned.drop_clean();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::{Error, OpenOptions, Pager, Size};
    use lowtide_pin::translation::State;
    use std::io::Write;
    use std::time::{Duration, Instant};

    #[test]
    fn a_file_becomes_longer_although_its_last_block_is_always_about_to_be_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        std::fs::write(&path, [7; 5000]).unwrap();
        let pager = Pager::builder().max(Size::mib(1)).build().unwrap();
        let view = OpenOptions::new().write(true).open(&pager, &path).unwrap();
        let space = pager.inner.pool.lock().spaces.iter().flatten().next().unwrap().clone();
        let begins = || space.beneath.write_begins(&(0..0), &(4096..5000));
        let mut write = begins().unwrap();
        std::thread::scope(|scope| {
            let longer = scope.spawn(|| view.set_len(9000));
            while let Some(next) = begins() {
                assert!(!longer.is_finished(), "a file becomes longer beside a write of its end");
                space.beneath.write_ends(std::mem::replace(&mut write, next));
                std::thread::yield_now();
            }
            // Attempts end in this time, and others begin.
            for _ in 0..500 {
                assert!(begins().is_none(), "the thread waits for no more than what it met");
                std::thread::sleep(Duration::from_micros(100));
            }
            assert!(!longer.is_finished());
            space.beneath.write_ends(write);
            longer.join().unwrap().unwrap();
        });
        assert_eq!(view.len(), 9000);
    }

    #[test]
    fn a_file_that_is_cut_while_what_was_appended_is_read_has_the_old_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        std::fs::write(&path, [7; 5000]).unwrap();
        let pager = Pager::builder().max(Size::mib(1)).build().unwrap();
        let view = OpenOptions::new().write(true).open(&pager, &path).unwrap();
        let space = pager.inner.pool.lock().spaces.iter().flatten().next().unwrap().clone();
        let guard = view.page(1).unwrap();
        let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(&[8; 100]).unwrap();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| view.read_at(4990, &mut [0; 20]));
            let begun = Instant::now();
            // The reader has seen the new length, and waits for the guard.
            while !matches!(space.table.entry(1).load(), State::Locked { .. }) {
                assert!(begun.elapsed() < Duration::from_secs(60), "the reader owns the last page");
                std::thread::yield_now();
            }
            file.set_len(5010).unwrap();
            drop(guard);
            let error = reader.join().unwrap().unwrap_err();
            assert!(
                matches!(error, Error::OutOfRange { offset: 4990, bytes: 20, len: 5000, .. }),
                "{error}"
            );
        });
        file.set_len(5000).unwrap();
        view.set_len(6000).unwrap();
        assert!(
            view.read_to_vec(5000..6000).unwrap().iter().all(|byte| *byte == 0),
            "nothing comes back"
        );
        pager.validate().unwrap();
    }
}
