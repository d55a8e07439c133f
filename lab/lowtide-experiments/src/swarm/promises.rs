//! What syncs report: each open description gets each failure since its last report, and nothing
//! else.
//!
//! A second account beside the kernel's (`machine/errors.rs`), kept in another way: the failures of
//! a file are counted, all of them, and each open description knows how many there were at its last
//! report. If a file is opened after a failure that no description has reported, the first sync
//! must report it.

use std::collections::BTreeMap;

use lowtide_sim::machine::OpenId;
use lowtide_sim::memory::ObjectId;

/// The failures of a file: all, and those that have been reported.
#[derive(Clone, Copy, Debug, Default)]
struct Failures {
    all: u64,
    reported: u64,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Promises {
    failures: BTreeMap<ObjectId, Failures>,
    /// Failures that each open description need not report.
    known: BTreeMap<u32, u64>,
}

impl Promises {
    /// A write of a file failed, or a flush for it.
    pub(super) fn failed(&mut self, object: ObjectId) {
        self.failures.entry(object).or_default().all += 1;
    }

    /// A file was opened.
    pub(super) fn opened(&mut self, open: OpenId, object: ObjectId) {
        let reported = self.failures.get(&object).map_or(0, |failures| failures.reported);
        self.known.insert(open.0, reported);
    }

    /// A sync through an open description ended.
    ///
    /// # Errors
    /// When it keeps a failure for itself, or makes one up.
    pub(super) fn synced(
        &mut self,
        open: OpenId,
        object: ObjectId,
        well: bool,
    ) -> Result<(), String> {
        let failures = self.failures.entry(object).or_default();
        let known = self.known.entry(open.0).or_default();
        let news = failures.all - *known;
        if !well {
            (failures.reported, *known) = (failures.all, failures.all);
        }
        match (well, news) {
            (true, 1..) => Err(format!(
                "a sync of {object:?} through {open:?} ended well, and {news} writes or flushes \
                 had failed since the last"
            )),
            (false, 0) => Err(format!(
                "a sync of {object:?} through {open:?} reported a failure, and none had occurred \
                 since the last"
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_is_reported_to_each_opener_and_none_twice() {
        let (file, a, b) = (ObjectId(3), OpenId(0), OpenId(1));
        let mut promises = Promises::default();
        promises.opened(a, file);
        promises.opened(b, file);
        promises.synced(a, file, true).unwrap();
        promises.failed(file);
        assert!(promises.synced(b, file, true).is_err(), "kept for itself");
        promises.synced(a, file, false).unwrap();
        promises.synced(a, file, true).unwrap();
        assert!(promises.synced(a, file, false).is_err(), "made up");
        promises.synced(b, file, false).unwrap();
    }

    #[test]
    fn a_new_opener_gets_what_was_not_reported() {
        let (file, a, b) = (ObjectId(3), OpenId(0), OpenId(1));
        let mut promises = Promises::default();
        promises.failed(file);
        promises.opened(a, file);
        promises.synced(a, file, false).unwrap();
        promises.opened(b, file);
        promises.synced(b, file, true).unwrap();
    }
}
