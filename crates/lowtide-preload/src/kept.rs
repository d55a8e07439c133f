//! Mappings of the program that are within the budget, and how each is kept there.

use crate::budgets::{Counted, Subject, Watched};
use crate::mirrors::Mirrored;
use lowtide::map::run::{Manner, Way};
use std::ops::Range;

/// A mapping, or what is left of it.
pub(crate) struct Kept {
    pub(crate) subject: Subject,
    pub(crate) how: Keeping,
    pub(crate) way: Way,
}

/// How it is kept.
pub(crate) enum Keeping {
    /// The kernel's mapping, watched.
    Watched(Watched),
    /// A mirror, always of the whole mapping.
    Mirrored(Mirrored),
}

impl Kept {
    /// A mapping that is kept in another way, or in the first one.
    pub(crate) fn from_here(subject: Subject, how: Keeping, way: Way) -> Self {
        Self { subject, how, way: way.from_here() }
    }

    pub(crate) fn counted(&self) -> Counted<'_> {
        match &self.how {
            Keeping::Watched(_) => (&self.subject, None),
            Keeping::Mirrored(mirror) => (&self.subject, Some(mirror)),
        }
    }

    /// The first page that could not be brought in, and why, if it is a mirror.
    pub(crate) fn error(&self) -> Option<String> {
        match &self.how {
            Keeping::Watched(_) => None,
            Keeping::Mirrored(mirror) => mirror.first_error(),
        }
    }
}

impl Keeping {
    pub(crate) const fn is_mirrored(&self) -> bool {
        matches!(self, Self::Mirrored(_))
    }

    /// How pages came in so far.
    pub(crate) fn manner(&self) -> Manner {
        match self {
            Self::Watched(watched) => watched.manner(),
            Self::Mirrored(mirror) => mirror.manner(),
        }
    }

    /// How the program is going to use some of its addresses.
    pub(crate) fn advise(&self, addresses: Range<usize>, random: bool) {
        match self {
            Self::Watched(watched) => {
                watched.advise(addresses, random);
            }
            Self::Mirrored(mirror) => mirror.advise(random),
        }
    }

    /// What is at some addresses is soon wanted. False if the kernel has to be advised.
    pub(crate) fn will_need(&self, addresses: Range<usize>) -> bool {
        match self {
            Self::Watched(watched) => watched.will_need(addresses),
            Self::Mirrored(mirror) => {
                mirror.will_need(addresses);
                true
            }
        }
    }
}

/// What is left of a mapping without a range.
pub(crate) fn rest(subject: &Subject, without: &Range<usize>) -> Vec<Subject> {
    let mut rest = Vec::new();
    let whole = &subject.range;
    if whole.start < without.start {
        let end = whole.end.min(without.start);
        rest.push(Subject { range: whole.start..end, ..subject.clone() });
    }
    if whole.end > without.end {
        let start = whole.start.max(without.end);
        let offset = subject.offset + (start - whole.start) as u64;
        rest.push(Subject { range: start..whole.end, offset, ..subject.clone() });
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::OwnedFd;
    use std::rc::Rc;

    #[test]
    fn what_is_left_of_a_mapping_keeps_its_place_in_the_file() {
        let file = File::open("/dev/null").expect("a device");
        let file = Rc::new(OwnedFd::from(file));
        let (is_own, is_private) = (true, false);
        let whole = Subject { file, is_own, range: 100..200, offset: 1000, is_private, budget: 0 };
        let left = |without: Range<usize>| -> Vec<_> {
            rest(&whole, &without).into_iter().map(|part| (part.range, part.offset)).collect()
        };
        assert_eq!(left(130..150), [(100..130, 1000), (150..200, 1050)]);
        assert_eq!(left(0..150), [(150..200, 1050)]);
        assert_eq!(left(150..900), [(100..150, 1000)]);
        assert_eq!(left(0..900), []);
    }
}
