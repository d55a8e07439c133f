//! Policies by name, and the switches they are made of.
//!
//! Six policies are built in: `mglru` (Linux 7.3), `mglru-7.1` (before the reclaim-loop series),
//! `mglru-7.1+series` (the same with the series and nothing else, which is what was measured when
//! the series was published), `mglru-6.12` (the long-term release before), `lru` (the classical
//! active and inactive lists, as of 7.3) and `tide`, which no kernel has. The multi-gen policies
//! differ by switches: one for each patch of the series (`docs/kernel/reclaim.md` §3.5), one for
//! each later change, one for each earlier one since 6.12 (appendix A), and one that no release
//! has. A policy's name may be followed by any number of `+SWITCH` and `-SWITCH`; `series` stands
//! for all fifteen patches:
//!
//! ```
//! use lowtide_core::{Policy, Switches};
//! let p: Policy = "mglru-7.1+S10+S11".parse()?;
//! assert!(p.has(Switches::S10) && !p.has(Switches::S7));
//! assert_eq!(p.to_string(), "mglru-7.1+S10+S11");
//! let p: Policy = "mglru-7.1+series-S10".parse()?;
//! assert!(p.has(Switches::S11) && !p.has(Switches::S10) && !p.has(Switches::PLACEMENT));
//! # Ok::<(), lowtide_core::PolicyError>(())
//! ```
//!
//! The documentation of a switch names every function that reads it; a test compares.

use std::fmt;
use std::str::FromStr;

bitflags::bitflags! {
    /// One bit for each change between Linux 6.12 and 7.3, where a set bit is the later behaviour,
    /// and one for a rule of an earlier version of the series.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
    pub struct Switches: u64 {
        /// One helper computes the evictable size. No effect on behaviour.
        const S1 = 1 << 1;
        /// Names only. No effect on behaviour.
        const S2 = 1 << 2;
        /// The batch cap moves from the scanner to its callers. No effect on behaviour.
        const S3 = 1 << 3;
        /// The scan budget is fixed once per lruvec and always shifted by the priority; aging is
        /// decided apart from it.
        /// Read in `reclaim/mglru_loop.rs` (`begin_mglru`, `mglru_slice`, `aged`, `after_batch`).
        const S4 = 1 << 4;
        /// The scanner returns exactly what it scanned, and empty generations are retired before
        /// and after it.
        /// Read in `reclaim/evict.rs` (`isolate`, `next_type`).
        const S5 = 1 << 5;
        /// The other type is tried only if nothing was scanned.
        /// Read in `reclaim/evict.rs` (`next_type`).
        const S6 = 1 << 6;
        /// A batch scans at most 64 folios instead of 4096.
        /// Read in `reclaim/mglru_loop.rs` (`batch_cap`).
        const S7 = 1 << 7;
        /// Aging, successful or not, no longer ends the loop.
        /// Read in `reclaim/mglru_loop.rs` (`aged`).
        const S8 = 1 << 8;
        /// Where the allocation may not begin I/O ([`Reclaim::without_io`](crate::Reclaim)),
        /// folios that would need it (dirty, or anonymous and not in the swap cache) are isolated
        /// too, and put back by the common code. Before, the scanner skipped them, and met them
        /// again in the next scan.
        /// Read in `lruvec/scan.rs` (`sort`).
        const S9 = 1 << 9;
        /// Dirty folios and those under writeback are isolated and activated by the common shrinker
        /// instead of being sorted away.
        /// Read in `lruvec/scan.rs` (`sort`, `isolate`).
        const S10 = 1 << 10;
        /// Flushers are woken after each batch that is all dirty, not at the end of a pass that
        /// took no clean page.
        /// Read in `reclaim/throttle.rs` (`account_writeback`, `wake_at_loop_end`).
        const S11 = 1 << 11;
        /// A dead argument goes. No effect on behaviour.
        const S12 = 1 << 12;
        /// A dead counter goes. No effect on behaviour.
        const S13 = 1 << 13;
        /// A dead counter goes. No effect on behaviour.
        const S14 = 1 << 14;
        /// Writeback statistics of a pass are kept, so that congestion can throttle.
        /// Read in `reclaim/throttle.rs` (`account_writeback`).
        const S15 = 1 << 15;
        /// \[7.2x\] New and referenced folios are placed one generation older when they come in
        /// through a fault, one younger when they come in referenced.
        /// Read in `lruvec/generation.rs` (`depth`, `before_insertion`).
        const PLACEMENT = 1 << 16;
        /// \[7.2x\] The second sighting by the evictor promotes without entering the workingset.
        /// Read in `lruvec/access.rs` (`set_refs`).
        const PROMOTION = 1 << 17;
        /// \[7.2x\] `workingset_activate` counts refaults of the workingset only.
        /// Read in `lruvec/workingset.rs` (`refault_multi_gen`) and `check.rs`
        /// (`validate_refaults`).
        const ACTIVATE = 1 << 18;
        /// \[7.2x\] Unevictable folios are isolated and culled at put-back, not by the scanner.
        /// Read in `lruvec/scan.rs` (`sort`).
        const UNEVICTABLE = 1 << 19;
        /// \[7.3\] Executable mappings are promoted at first sight.
        /// Read in `lruvec/access.rs` (`update_gen`, `set_refs`).
        const EXEC = 1 << 20;
        /// \[7.3\] A look-around hit counts all pages of its folio.
        /// Read in `lruvec/access.rs` (`look_around`).
        const WINDOW = 1 << 21;
        /// \[7.3\] The cost model of the classical lists pulls counters; before, it was called at
        /// each event. Read in `lruvec/cost.rs` (`cost_event`, `pull_costs`) and `reclaim/evict.rs`
        /// (`put_back`).
        const COST = 1 << 22;
        /// \[7.3\] Swappiness 201 is honoured before anything else, and finds nothing when there is
        /// no swap.
        /// Read in `lruvec/swappiness.rs` (`effective_swappiness`) and `lruvec/cost.rs`
        /// (`balance`).
        const ANONONLY = 1 << 23;
        /// The second version of the series never scanned less than 32 pages of an lruvec in a
        /// pass. The third dropped that: a group of fewer than 4096 pages, which is to be spared
        /// at priority 12, loses as much to each pass over a tree as a large one. Off in all
        /// built-in policies.
        /// Read in `reclaim/mglru_loop.rs` (`scan_budget`).
        const FLOOR = 1 << 24;
        /// \[since 6.12\] The aging walk promotes at the second sighting of a young bit. Before, at
        /// the first, and a folio that was isolated was marked referenced.
        /// Read in `lruvec/access.rs` (`update_gen`).
        const TWOSTEP = 1 << 25;
        /// \[since 6.12\] Membership of the workingset survives a move between generations, and a
        /// promotion by the walk confers it. Before, both ended it.
        /// Read in `lruvec/access.rs` (`update_gen`) and `lruvec/generation.rs` (`inc_gen`).
        const STICKY = 1 << 26;
        /// \[since 6.12\] The evictor's reference check counts sightings as the walk does. Before,
        /// it was that of the classical lists: several young bits at once, or executable file
        /// memory, were activated at first sight.
        /// Read in `reclaim/shrink.rs` (`check_references`).
        const SIGHTINGS = 1 << 27;
        /// \[since 6.12\] What the shrinker rejects is placed as other folios are. Before, all but
        /// what is dirty or under writeback was activated.
        /// Read in `reclaim/evict.rs` (`put_back`).
        const REJECTS = 1 << 28;
        /// \[since 6.12\] Folios are placed by their distance from the young end. Before, activated
        /// ones went to the youngest generation, and those without any claim to the second oldest
        /// if there were four.
        /// Read in `lruvec/generation.rs` (`depth`).
        const ENTRY = 1 << 29;
        /// \[since 6.12\] Three generations are too few, whatever their sizes. Before, there was an
        /// aging only if the youngest had more than half of the pages or the oldest less than a
        /// quarter.
        /// Read in `reclaim/mglru_loop.rs` (`due`).
        const THREE = 1 << 30;
        /// \[since 6.12\] The refaults of all tiers decide which type is evicted, and a type's own
        /// which tiers of it are protected. Before, tier 0 of both types decided, after the age of
        /// their oldest generations, and tiers were compared with tier 0 of the other type.
        /// Read in `lruvec/swappiness.rs` (`type_to_scan`, `tier_limit`).
        const ALLTIERS = 1 << 31;
        /// \[since 6.12\] The reclaim of a group ends its loop when the goal is met, as that of a
        /// machine does. Before, it used up its budget.
        /// Read in `reclaim/mglru_loop.rs` (`after_batch`).
        const GOAL = 1 << 32;
        /// \[since 6.12\] Protection by `min` and `low` makes the scan budget smaller. Before, it
        /// only decided whether a group was scanned at all.
        /// Read in `reclaim/mglru_loop.rs` (`scan_budget`).
        const SCALED = 1 << 33;
        /// \[since 6.12\] A batch scans no more than the budget. Before, it scanned up to 4096
        /// folios (64 since S7) however small the budget was.
        /// Read in `reclaim/mglru_loop.rs` (`evict_or_leave`).
        const REQUEST = 1 << 34;
        /// \[since 6.12\] A refault is recent for four generations. Before, only until the oldest
        /// generation was retired; all recent refaults counted as activations, and those in a fault
        /// or with four accesses entered the workingset.
        /// Read in `lruvec/workingset.rs` (`refault_multi_gen`) and `check.rs`
        /// (`validate_refaults`).
        const RECENCY = 1 << 35;
    }
}

impl Switches {
    /// All patches of the reclaim-loop series, S1 to S15; `series` in a policy's name.
    pub const SERIES: Self = Self::from_bits_truncate(((1 << 15) - 1) << 1);
    /// What Linux 7.3 does.
    const LINUX_7_3: Self = Self::all().difference(Self::FLOOR);
    /// What Linux 7.1 does: nothing of the series or of what is later.
    const LINUX_7_1: Self = Self::LINUX_7_3.difference(Self::from_bits_truncate((1 << 24) - 1));
}

/// The name of [`Switches::SERIES`].
const SERIES: &str = "series";

/// Each change in a line.
const ABOUT: [(Switches, &str); 35] = [
    (Switches::S1, "one function computes the evictable size (no effect)"),
    (Switches::S2, "names only (no effect)"),
    (Switches::S3, "the cap of a batch moves to its callers (no effect)"),
    (
        Switches::S4,
        "the scan budget is fixed once, by size and priority; aging is decided apart from it",
    ),
    (
        Switches::S5,
        "a scan answers exactly what it looked at; empty generations go before and after it",
    ),
    (Switches::S6, "the other type is tried only if nothing at all was scanned"),
    (Switches::S7, "a batch looks at 64 folios at most, not at 4096"),
    (Switches::S8, "reclaim goes on after aging (ends the out-of-memory kill beside clean pages)"),
    (
        Switches::S9,
        "where I/O is not allowed, folios that need it are isolated and put back, not skipped",
    ),
    (Switches::S10, "dirty folios are isolated and activated, not sorted one generation up"),
    (
        Switches::S11,
        "the flusher is woken for each batch that is all dirty, not for a pass without a clean \
         page",
    ),
    (Switches::S12, "a dead argument goes (no effect)"),
    (Switches::S13, "a dead counter goes (no effect)"),
    (Switches::S14, "a dead counter goes (no effect)"),
    (
        Switches::S15,
        "congestion is counted and throttles reclaim (ends the kill of a slow device's writer)",
    ),
    (
        Switches::PLACEMENT,
        "7.2: pages of faults enter one generation older, pages read twice one younger",
    ),
    (
        Switches::PROMOTION,
        "7.2: the second sighting at eviction no longer makes a folio part of the working set",
    ),
    (Switches::ACTIVATE, "7.2: workingset_activate counts refaults of the working set only"),
    (Switches::UNEVICTABLE, "7.2: unevictable folios are culled by the common code"),
    (Switches::EXEC, "7.3: pages of executable mappings are promoted at first sight"),
    (Switches::WINDOW, "7.3: a hit of look-around counts all pages of its folio"),
    (Switches::COST, "7.3: the costs of the classical lists are pulled from counters"),
    (Switches::ANONONLY, "7.3: swappiness 201 goes before everything else"),
    (
        Switches::FLOOR,
        "no release: a pass scans 32 pages of a group at least, however small (version 2 of the \
         series)",
    ),
    (
        Switches::TWOSTEP,
        "since 6.12: the aging walk promotes at the second sighting, not the first",
    ),
    (Switches::STICKY, "since 6.12: membership of the working set survives moves"),
    (
        Switches::SIGHTINGS,
        "since 6.12: the evictor counts sightings; before, as the classical lists",
    ),
    (Switches::REJECTS, "since 6.12: what is rejected at eviction is not always activated"),
    (Switches::ENTRY, "since 6.12: folios enter at a distance from the young end"),
    (Switches::THREE, "since 6.12: three generations are too few, whatever their sizes"),
    (Switches::ALLTIERS, "since 6.12: the refaults of all tiers decide which type is evicted"),
    (Switches::GOAL, "since 6.12: the reclaim of a group ends when its goal is met"),
    (Switches::SCALED, "since 6.12: min and low make the scan of a group smaller"),
    (Switches::REQUEST, "since 6.12: a batch scans no more than the budget"),
    (Switches::RECENCY, "since 6.12: a refault is recent for four generations"),
];

/// Which lists a policy keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum Lists {
    /// Generations.
    MultiGen,
    /// Active and inactive.
    Classical,
    /// A small queue in two parts, and a clock (`lruvec/tide.rs`).
    Tide,
}

/// A reclaim policy: a kind of lists and a set of switches.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Policy {
    base: &'static Builtin,
    switches: Switches,
}

#[derive(PartialEq, Eq, Debug, Hash)]
struct Builtin {
    name: &'static str,
    lists: Lists,
    switches: Switches,
}

// Longest names first: a name is recognised by its prefix.
static BUILTIN: [Builtin; 5] = [
    Builtin { name: "mglru-6.12", lists: Lists::MultiGen, switches: Switches::empty() },
    Builtin { name: "mglru-7.1", lists: Lists::MultiGen, switches: Switches::LINUX_7_1 },
    Builtin { name: "mglru", lists: Lists::MultiGen, switches: Switches::LINUX_7_3 },
    Builtin { name: "lru", lists: Lists::Classical, switches: Switches::LINUX_7_3 },
    Builtin { name: "tide", lists: Lists::Tide, switches: Switches::LINUX_7_3 },
];

impl Policy {
    /// Linux 7.3 behaviour.
    pub const MGLRU: Self = Self { base: &BUILTIN[2], switches: Switches::LINUX_7_3 };
    /// Linux 7.1 behaviour.
    pub const MGLRU_7_1: Self = Self { base: &BUILTIN[1], switches: Switches::LINUX_7_1 };
    /// Linux 6.12, as far as it differs by a switch. Not modelled: the order in which accesses
    /// through the descriptor set flags (a second one made a folio part of the workingset; tiers
    /// by accesses are the same), sorting away of locked folios, the rule that kept the oldest
    /// generations of the two types in step, clearing of marks at isolation, choosing file memory
    /// where I/O is not allowed, writes of dirty file pages by the background reclaimer, and
    /// counters under other names.
    pub const MGLRU_6_12: Self = Self { base: &BUILTIN[0], switches: Switches::empty() };
    /// Linux 7.1 with the reclaim-loop series and nothing that came after it: what the series'
    /// measurements call *after*.
    pub const MGLRU_7_1_SERIES: Self =
        Self { base: &BUILTIN[1], switches: Switches::LINUX_7_1.union(Switches::SERIES) };
    /// Classical lists.
    pub const LRU: Self = Self { base: &BUILTIN[3], switches: Switches::LINUX_7_3 };
    /// A policy of our own: a page that comes back takes the place of one that has been idle for
    /// longer than it was away, and of no other. It has its lists to itself, and shares everything
    /// else with the classical lists, their switches too.
    pub const TIDE: Self = Self { base: &BUILTIN[4], switches: Switches::LINUX_7_3 };

    /// The built-in policies in the order in which they are usually compared, each with a line
    /// about it.
    pub fn builtin() -> impl Iterator<Item = (Self, &'static str)> {
        [
            (
                Self::MGLRU,
                "multi-gen LRU of Linux 7.3, with the reclaim-loop series and what followed",
            ),
            (Self::MGLRU_7_1_SERIES, "multi-gen LRU of Linux 7.1 with the reclaim-loop series"),
            (Self::MGLRU_7_1, "multi-gen LRU of Linux 7.1, before the reclaim-loop series"),
            (
                Self::MGLRU_6_12,
                "multi-gen LRU of Linux 6.12, as far as its differences are switches",
            ),
            (Self::LRU, "classical active and inactive lists of Linux 7.3"),
            (
                Self::TIDE,
                "of no kernel: pages change places only where one has been idle for longer",
            ),
        ]
        .into_iter()
    }

    /// All switches as they are written after a `+` or `-`, each with a line about the change.
    pub fn switches() -> impl Iterator<Item = (String, &'static str)> {
        let about = |bit| ABOUT.iter().find(|(of, _)| *of == bit).map_or("", |(_, about)| about);
        Switches::all().iter_names().map(move |(name, bit)| (spelled(name), about(bit)))
    }

    /// The names of all switches, as they are written after a `+` or `-`.
    pub fn switch_names() -> impl Iterator<Item = String> {
        Switches::all().iter_names().map(|(name, _)| spelled(name))
    }

    /// Whether a change is in force.
    #[inline]
    #[must_use]
    pub const fn has(self, switch: Switches) -> bool {
        self.switches.contains(switch)
    }

    /// Which lists are kept.
    #[inline]
    #[must_use]
    pub const fn lists(self) -> Lists {
        self.base.lists
    }

    /// This policy with some switches set or cleared.
    #[must_use]
    pub fn with(mut self, switches: Switches, on: bool) -> Self {
        self.switches.set(switches, on);
        self
    }
}

fn spelled(flag: &str) -> String {
    if flag.starts_with('S') && flag[1..].bytes().all(|b| b.is_ascii_digit()) {
        flag.to_owned()
    } else {
        flag.to_ascii_lowercase()
    }
}

impl fmt::Debug for Policy {
    /// Its name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Policy({self})")
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.base.name)?;
        let sign = |bit| if self.switches.contains(bit) { '+' } else { '-' };
        let mut turned = self.switches ^ self.base.switches;
        // Most patches of the series together are written as the series, less those that are left.
        if turned.intersection(Switches::SERIES).bits().count_ones()
            > Switches::SERIES.bits().count_ones() / 2
        {
            let first = turned.iter().next().unwrap_or(Switches::S1);
            write!(f, "{}{SERIES}", sign(first))?;
            turned ^= Switches::SERIES;
        }
        for (name, bit) in turned.iter_names() {
            write!(f, "{}{}", sign(bit), spelled(name))?;
        }
        Ok(())
    }
}

/// A text that is not a policy.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// No built-in policy has this name.
    #[error(
        "unknown policy `{0}`: choose mglru, mglru-7.1+series, mglru-7.1, mglru-6.12, lru or tide, \
         optionally followed by switches such as +S10 or -S7"
    )]
    UnknownName(String),
    /// No policy for going over a limit ([`HighPolicy`](crate::high::handler::HighPolicy)) has this
    /// name.
    #[error("unknown throttle policy `{0}`: choose overage, refault-recency or stall-debt")]
    UnknownHigh(String),
    /// No switch has this name.
    #[error(
        "unknown switch `{switch}` in policy `{policy}`: the switches are {}, and {SERIES} for S1 \
         to S15",
        Policy::switch_names().collect::<Vec<_>>().join(", ")
    )]
    UnknownSwitch {
        /// The whole text.
        policy: String,
        /// The part that is not a switch.
        switch: String,
    },
}

impl FromStr for Policy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let starts_switches = |rest: &str| rest.is_empty() || rest.starts_with(['+', '-']);
        let (base, mut rest) = BUILTIN
            .iter()
            .find_map(|b| {
                let (name, rest) = text.split_at_checked(b.name.len())?;
                (name.eq_ignore_ascii_case(b.name) && starts_switches(rest)).then_some((b, rest))
            })
            .ok_or_else(|| PolicyError::UnknownName(text.to_owned()))?;
        let mut policy = Self { base, switches: base.switches };
        while let Some(sign) = rest.chars().next() {
            let end = rest[1..].find(['+', '-']).map_or(rest.len(), |i| i + 1);
            let name = &rest[1..end];
            let (_, bits) = Switches::all()
                .iter_names()
                .chain([(SERIES, Switches::SERIES)])
                .find(|(flag, _)| flag.eq_ignore_ascii_case(name))
                .ok_or_else(|| PolicyError::UnknownSwitch {
                    policy: text.to_owned(),
                    switch: name.to_owned(),
                })?;
            policy.switches.set(bits, sign == '+');
            rest = &rest[end..];
        }
        Ok(policy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_switch_is_explained() {
        for (name, about) in Policy::switches() {
            assert!(about.len() > 10, "{name}: {about}");
        }
    }

    #[test]
    fn every_single_switch_can_be_turned_on_and_off() {
        for (base, _) in Policy::builtin() {
            for (name, bit) in Switches::all().iter_names() {
                let sign = if base.has(bit) { '-' } else { '+' };
                let turned: Policy = format!("{base}{sign}{name}").parse().unwrap();
                assert_eq!(turned.switches ^ base.switches, bit);
                assert_eq!(turned.to_string().parse(), Ok(turned));
                let back: Policy = format!("{turned}{}{name}", if sign == '-' { '+' } else { '-' })
                    .parse()
                    .unwrap();
                assert_eq!(back, base);
            }
        }
        let turned: Policy = "mglru-7.1+s10-TwoStep".parse().unwrap();
        assert_eq!(turned.to_string(), "mglru-7.1+S10-twostep");
    }

    #[test]
    fn releases_differ_by_what_came_between_them() {
        let names = |switches: Switches| {
            switches.iter_names().map(|(name, _)| spelled(name)).collect::<Vec<_>>().join("+")
        };
        let old = Policy::MGLRU_6_12.switches;
        assert_eq!(
            names(Policy::MGLRU_7_1.switches.difference(old)),
            "twostep+sticky+sightings+rejects+entry+three+alltiers+goal+scaled+request+recency"
        );
        assert!(Policy::MGLRU.switches.contains(Policy::MGLRU_7_1_SERIES.switches));
        assert!(Policy::builtin().all(|(policy, _)| !policy.has(Switches::FLOOR)));
    }

    #[test]
    fn the_series_is_its_fifteen_patches() {
        let patches = (1..=15).fold(String::new(), |text, n| format!("{text}+S{n}"));
        let series: Policy = format!("mglru-7.1{patches}").parse().unwrap();
        assert_eq!(series, Policy::MGLRU_7_1_SERIES);
        assert_eq!("MGLRU-7.1+Series".parse(), Ok(series));
        let later = Policy::MGLRU.switches.difference(series.switches).iter_names();
        assert_eq!(
            later.map(|(name, _)| name).collect::<Vec<_>>(),
            [
                "PLACEMENT",
                "PROMOTION",
                "ACTIVATE",
                "UNEVICTABLE",
                "EXEC",
                "WINDOW",
                "COST",
                "ANONONLY"
            ]
        );
    }

    #[test]
    fn the_series_has_a_short_name_in_mixtures_too() {
        for (given, written) in [
            ("mglru-7.1+series", "mglru-7.1+series"),
            ("mglru-7.1+series-S10", "mglru-7.1+series-S10"),
            ("mglru-7.1-S10+series", "mglru-7.1+series"),
            ("mglru-7.1+series-S10+placement", "mglru-7.1+series-S10+placement"),
            ("mglru-series", "mglru-series"),
            ("mglru-series+S11", "mglru-series+S11"),
            ("mglru-7.1+S1+S2+S3+S4+S5+S6+S7", "mglru-7.1+S1+S2+S3+S4+S5+S6+S7"),
        ] {
            let policy: Policy = given.parse().unwrap();
            assert_eq!(policy.to_string(), written);
            assert_eq!(written.parse(), Ok(policy), "{written} is read back");
        }
    }

    #[test]
    fn unknown_names_are_told_apart_from_unknown_switches() {
        assert!(matches!("fifo".parse::<Policy>(), Err(PolicyError::UnknownName(_))));
        assert!(matches!("mglru7".parse::<Policy>(), Err(PolicyError::UnknownName(_))));
        let Err(PolicyError::UnknownSwitch { switch, .. }) = "mglru-S7+S99".parse::<Policy>()
        else {
            panic!("S99 is not a switch")
        };
        assert_eq!(switch, "S99");
    }
}
