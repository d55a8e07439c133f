//! Failed writes that no task waited for: kept with the file until each open description of it has
//! reported them, once.
//!
//! ```text
//!               fails         A checks            fails              B checks
//!   count 0 ──────────► 1, new ────────► 1, seen ───────► 2, new ─────────────► 2, seen
//!   A has 0             A has 0          A has 1          A has 1 until its     B has 2
//!                                                         next check
//! ```
//!
//! The file counts failures, but several that were not reported yet count as one. Each open
//! description remembers the count of its last check: if that is not the file's, something has
//! failed since. A new description begins with the file's count, unless the last failure was not
//! reported yet: then it has to be, and it is as if the failure came after the opening. Source:
//! `docs/kernel/fault-and-writeback.md` B11, D14.

/// The failures of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WriteErrors {
    count: u64,
    /// The last failure has been reported.
    reported: bool,
}

/// The last failure that an open description has reported. The default is that of a file without
/// failures.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ErrorCursor(u64);

impl WriteErrors {
    /// A write failed, or the device did not keep what was written.
    pub const fn failed(&mut self) {
        if self.reported || self.count == 0 {
            self.count += 1;
            self.reported = false;
        }
    }

    /// The cursor of a description that is opened now.
    pub const fn opened(&self) -> ErrorCursor {
        ErrorCursor(if self.reported { self.count } else { 0 })
    }

    /// Whether something has failed since the last check with this cursor. True once for each
    /// failure.
    pub const fn check(&mut self, cursor: &mut ErrorCursor) -> bool {
        if cursor.0 == self.count {
            return false;
        }
        cursor.0 = self.count;
        self.reported = true;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_opener_gets_a_failure_once() {
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
    fn an_unreported_failure_waits_for_the_next_open() {
        let mut file = WriteErrors::default();
        file.failed();
        let mut late = file.opened();
        assert!(file.check(&mut late) && !file.check(&mut late));
        let mut later = file.opened();
        assert!(!file.check(&mut later), "it was reported");
        file.failed();
        let mut latest = file.opened();
        assert!(file.check(&mut latest) && file.check(&mut later) && file.check(&mut late));
    }
}
