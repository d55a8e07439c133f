//! Failed writes that nobody waited for: kept with the file until everybody who has it open has
//! been told, once.
//!
//! ```text
//!                 fails          A checks              fails                B checks
//!   count 0 ───────────► 1, new ─────────► 1, told ──────────────► 2, new ──────────► 2, told
//!   A has 0               A has 0           A has 1                 A has 1            B has 2
//!                                                                                     (A: at its
//!                                                                                      next check)
//! ```
//!
//! The file counts failures, but several that nobody has been told of as one. Each open description
//! remembers the count of its last check: if that is not the file's, something has failed since.
//! Whoever opens the file begins with its count, unless nobody has been told of it yet: then
//! somebody must be, and it is as if the failure came after the opening. Source:
//! `docs/kernel/fault-and-writeback.md` B11, D14.

/// The failures of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct WriteErrors {
    count: u64,
    /// Somebody has been told of the last.
    told: bool,
}

/// How far one who has the file open has been told. The default is that of a file without failures.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ErrorCursor(u64);

impl WriteErrors {
    /// A write failed, or the device did not keep what was written.
    pub(crate) const fn failed(&mut self) {
        if self.told || self.count == 0 {
            self.count += 1;
            self.told = false;
        }
    }

    /// The cursor of somebody who opens the file now.
    pub(crate) const fn opened(&self) -> ErrorCursor {
        ErrorCursor(if self.told { self.count } else { 0 })
    }

    /// Whether something has failed since the last check with this cursor. It is told once.
    pub(crate) const fn check(&mut self, cursor: &mut ErrorCursor) -> bool {
        if cursor.0 == self.count {
            return false;
        }
        cursor.0 = self.count;
        self.told = true;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_is_told_of_a_failure_once() {
        let mut file = WriteErrors::default();
        let mut cursors = [file.opened(); 2];
        assert_eq!(cursors.each_mut().map(|c| file.check(c)), [false; 2]);
        file.failed();
        file.failed();
        assert_eq!(cursors.each_mut().map(|c| file.check(c)), [true; 2]);
        assert_eq!(cursors.each_mut().map(|c| file.check(c)), [false; 2]);
        file.failed();
        assert!(file.check(&mut cursors[0]));
        file.failed();
        assert_eq!(cursors.each_mut().map(|c| file.check(c)), [true; 2]);
        assert_eq!(cursors.each_mut().map(|c| file.check(c)), [false; 2]);
    }

    #[test]
    fn a_failure_that_nobody_was_told_of_waits_for_the_next_to_open() {
        let mut file = WriteErrors::default();
        file.failed();
        let mut late = file.opened();
        assert!(file.check(&mut late) && !file.check(&mut late));
        let mut later = file.opened();
        assert!(!file.check(&mut later), "somebody was told");
        file.failed();
        let mut latest = file.opened();
        assert!(file.check(&mut latest) && file.check(&mut later) && file.check(&mut late));
    }
}
