//! Why a mapping is kept in `pagecache` mode although `userfault` is wanted, and how many are.

use crate::judge::reasons;
use crate::left::LeftAlone;
use lowtide_run::leases::NoLease;
use std::ops::Deref;

reasons! {
    /// Why.
    Why {
        /// Stores through it go to the file.
        Stored = "shared_writable", "shared and writable: stores go to the file";
        /// Another descriptor, or mapping, may change the file.
        OpenForWriting = "open_for_writing", "the file is open for writing";
        /// Leases are for owners.
        NotOwner = "not_owner", "the file belongs to another user: no lease";
        /// No lease on files of this file system.
        NoLease = "no_lease", "the file system gives no lease that could be trusted";
        /// userfaultfd, direct I/O or page tables.
        Unavailable = "unavailable", "userfault cannot be used here";
        /// No memory, thread or room in a table.
        Resources = "resources", "no memory, thread or room for another mirror";
        /// The addresses of the process are limited.
        Addresses = "few_addresses",
            "addresses are limited (ulimit -v), and a mirror takes them twice";
        /// It was mirrored until it had been read in order for long.
        InOrder = "turned_in_order", "userfault until it had been read in order for long";
        /// It was mirrored until the file was opened for writing, or cut.
        Opened = "turned_opened_for_writing",
            "userfault until the file was opened for writing or cut";
        /// It was mirrored until a part was unmapped, replaced or locked.
        Cut = "turned_cut", "userfault until a part was unmapped, replaced or locked";
        /// It was mirrored until it was moved or got another length.
        Moved = "turned_moved", "userfault until it was moved or resized";
        /// It was mirrored until its protection changed.
        Protected = "turned_protected", "userfault until its protection changed";
        /// It was mirrored until the program gave advice that changes more than reading ahead.
        Advised = "turned_advised", "userfault until the program gave special advice";
    }
}

impl Why {
    /// Whether the mapping may be mirrored later.
    pub(crate) const fn may_pass(self) -> bool {
        matches!(
            self,
            Self::OpenForWriting | Self::Resources | Self::InOrder | Self::Opened | Self::Cut
        )
    }
}

impl From<NoLease> for Why {
    fn from(none: NoLease) -> Self {
        match none {
            NoLease::OpenForWriting => Self::OpenForWriting,
            NoLease::NotOwner => Self::NotOwner,
            NoLease::Unsupported => Self::NoLease,
            NoLease::Resources => Self::Resources,
        }
    }
}

/// How mappings were kept.
#[derive(Clone, Debug, Default)]
pub(crate) struct Modes {
    /// Mappings that are, or were, in `userfault` mode.
    pub(crate) userfault: u64,
    /// Mappings that are in `pagecache` mode, or were.
    pub(crate) pagecache: u64,
    /// Why, each with the first file.
    because: Vec<LeftAlone<Why>>,
}

impl Modes {
    /// A mapping is in `pagecache` mode, for this reason if `userfault` mode was wanted.
    pub(crate) fn add<P: Deref<Target = [u8]>>(
        &mut self,
        reason: Option<Why>,
        bytes: u64,
        path: impl FnOnce() -> P,
    ) {
        self.pagecache += 1;
        let Some(reason) = reason else { return };
        let known = self.because.iter_mut().find(|known| known.reason == reason);
        if let Some(known) = known {
            known.count += 1;
            known.bytes += bytes;
            return;
        }
        let first = Some(String::from_utf8_lossy(&path()).into_owned());
        let first = first.filter(|path| !path.is_empty());
        self.because.push(LeftAlone { reason, count: 1, bytes, first });
    }

    /// The reasons, in their order.
    pub(crate) fn because(&self) -> Vec<LeftAlone<Why>> {
        let of = |reason: Why| self.because.iter().filter(move |known| known.reason == reason);
        Why::ALL.into_iter().flat_map(of).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_counted_with_their_bytes_and_the_first_file() {
        let mut modes = Modes::default();
        modes.add(Some(Why::Opened), 5, || b"/a".to_vec());
        modes.add(Some(Why::Stored), 1, Vec::new);
        modes.add(Some(Why::Opened), 7, || b"/b".to_vec());
        let because = modes.because();
        assert_eq!(
            (because[0].reason, because[0].count, &because[0].first),
            (Why::Stored, 1, &None)
        );
        let opened = &because[1];
        assert_eq!((opened.count, opened.bytes, opened.first.as_deref()), (2, 12, Some("/a")));
    }

    #[test]
    fn every_reason_has_a_name_of_its_own() {
        let names: std::collections::BTreeSet<_> = Why::ALL.into_iter().map(Why::name).collect();
        assert_eq!(names.len(), Why::ALL.len());
    }
}
