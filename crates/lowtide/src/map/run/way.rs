//! Which way a host keeps a mapping in, by how it is used.
//!
//! | its pages are touched | better | since |
//! |---|---|---|
//! | in order | the kernel's mapping | many pages are read at a time, and none is copied |
//! | each alone | a mirror | its budget is exact, and a miss reads one page once |
//!
//! A change costs what is in memory, which is read again. So a mapping changes when that many pages
//! more have come in as they do where the other way is better than as they do where it is not: this
//! is the rule of *ski rental*, which never costs more than twice what the best choice in hindsight
//! does. Each change doubles what the next one takes, so that a program that does both in turns
//! ends with one of them.

use super::manner::Manner;

/// Pages that are worth a look.
const FEW: u64 = 64;
/// A page that comes in alone is as bad for the kernel's mapping as this number in order is good.
const IN_ORDER: u64 = 16;
/// How often a mapping is a mirror again at once: as often as programs unmap parts of a file that
/// they have just mapped.
const RETURNS: u32 = 8;
/// Changes that still double what the next takes.
const DOUBLED: u32 = 20;

/// How a mapping has been used, as far as that decides.
#[derive(Clone, Debug, Default)]
pub struct Way {
    /// It stays as it is.
    stays: bool,
    /// What had come in at the last look.
    seen: Option<Manner>,
    /// Pages by which the other way would have been better.
    against: u64,
    /// It is to be a mirror again at the next look.
    returns: bool,
    /// How often it had to be the kernel's.
    returned: u32,
    /// How often it has changed.
    changes: u32,
    /// Whether it has been the kernel's, and a mirror.
    had: [bool; 2],
}

impl Way {
    /// Of a mapping that stays as it is.
    #[must_use]
    pub fn that_stays() -> Self {
        Self { stays: true, ..Self::default() }
    }

    /// The same, of a mapping whose pages are counted from the beginning.
    #[must_use]
    pub const fn from_here(self) -> Self {
        Self { seen: None, against: 0, ..self }
    }

    /// It stays as it is from now on, unless the reason for it may pass.
    pub const fn stay_unless(&mut self, may_pass: bool) {
        self.stays |= !may_pass;
    }

    /// Whether it does not stay as it is.
    #[must_use]
    pub const fn may_change(&self) -> bool {
        !self.stays
    }

    /// The mapping had to become the kernel's, after this number of pages had come in: a change, as
    /// others are, if they are as many as one costs. Otherwise little is lost, and it is a mirror
    /// again at once, a few times.
    pub const fn had_to_change(&mut self, came: u64, cost: u64) {
        self.returns = !self.stays && self.returned < RETURNS && (self.changes == 0 || came < cost);
        self.returned += 1;
        self.changes += (came >= cost) as u32;
    }

    /// The mapping is a mirror from now on, or the kernel's. Returns whether it never was.
    pub fn begins(&mut self, is_mirrored: bool) -> bool {
        !std::mem::replace(&mut self.had[usize::from(is_mirrored)], true)
    }

    /// Looks how pages came in since the last look. Returns whether the mapping is to change, which
    /// costs this number of pages.
    pub fn look(&mut self, is_mirrored: bool, now: Manner, cost: impl FnOnce() -> u64) -> bool {
        if self.stays || std::mem::take(&mut self.returns) {
            return !self.stays;
        }
        let Some(seen) = self.seen else {
            self.seen = Some(now);
            return false;
        };
        let (alone, in_order) = (now.alone - seen.alone, now.in_order - seen.in_order);
        if alone + in_order < FEW {
            return false;
        }
        self.seen = Some(now);
        let (against, by) =
            if is_mirrored { (in_order, IN_ORDER * alone) } else { (alone, in_order / IN_ORDER) };
        self.against = (self.against + against).saturating_sub(by);
        if self.against == 0 || self.against < cost() << self.changes.min(DOUBLED) {
            return false;
        }
        self.changes += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mapping whose pages come in step by step.
    struct Used {
        way: Way,
        now: Manner,
        is_mirrored: bool,
    }

    impl Used {
        fn new() -> Self {
            let mut way = Way::default();
            assert!(!way.look(true, Manner::default(), || 1));
            Self { way, now: Manner::default(), is_mirrored: true }
        }

        /// Whether a step makes it change.
        fn changes(&mut self, alone: u64, in_order: u64) -> bool {
            self.now.alone += alone;
            self.now.in_order += in_order;
            let changes = self.way.look(self.is_mirrored, self.now, || 8192);
            if changes {
                self.is_mirrored ^= true;
                (self.way, self.now) = (self.way.clone().from_here(), Manner::default());
                assert!(!self.way.look(self.is_mirrored, self.now, || 1));
            }
            changes
        }

        /// How many steps it takes until it changes, of a thousand at most.
        fn until_it_changes(&mut self, alone: u64, in_order: u64) -> Option<u64> {
            (1..=1000).find(|_| self.changes(alone, in_order))
        }
    }

    #[test]
    fn a_mapping_changes_when_that_has_been_worth_it_and_later_each_time() {
        let mut used = Used::new();
        assert_eq!(used.until_it_changes(4, 1024), Some(9));
        assert_eq!(used.until_it_changes(4, 1024), None, "in order the kernel's is the better one");
        assert_eq!(used.until_it_changes(1024, 4), Some(16));
        assert_eq!(used.until_it_changes(1024, 4), None, "and a mirror at random");
        assert_eq!(used.until_it_changes(0, 1024), Some(32));
    }

    #[test]
    fn what_is_neither_resets_what_was_counted_and_a_few_pages_say_nothing() {
        let mut used = Used::new();
        for _ in 0..100 {
            assert!(!(1..8).any(|_| used.changes(4, 1024)));
            assert!(!used.changes(512, 512));
        }
        let mut used = Used::new();
        assert_eq!(used.until_it_changes(0, 1), None);
    }

    #[test]
    fn a_mapping_is_counted_once_in_each_way() {
        let mut way = Way::default();
        let mut begins = |is_mirrored| way.begins(is_mirrored);
        assert_eq!([true, false, true, false].map(&mut begins), [true, true, false, false]);
    }

    #[test]
    fn one_that_had_to_change_returns_at_once_and_after_that_when_it_is_worth_it() {
        let mut used = Used::new();
        let mut returns = |came| {
            used.way.had_to_change(came, 8192);
            used.way.look(false, used.now, || 8192)
        };
        assert_eq!([5, 9000, 5, 9000, 5].map(&mut returns), [true, true, true, false, true]);
        assert_eq!((0..100).filter(|_| returns(0)).count() as u32, RETURNS - 5);
        let mut stays = Way::that_stays();
        stays.had_to_change(0, 1);
        assert!(!stays.look(false, Manner::default(), || 1));
    }

    #[test]
    fn a_mapping_that_stays_never_changes() {
        let mut used = Used::new();
        used.way.stay_unless(false);
        assert_eq!(used.until_it_changes(0, 1 << 20), None);
    }
}
