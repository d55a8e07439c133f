//! Flags of the structures of choices. No two share a bit, so that one which is put into another
//! structure by mistake is refused by its name, and does not mean something there.

use crate::code::{Failure, LT_TOO_NEW, Outcome};

/// The library starts no threads: it reclaims and writes in the threads that call it.
pub const LT_PAGER_NO_BACKGROUND: u32 = 1 << 0;
/// Takes all memory of the budget when the pager is opened.
pub const LT_PAGER_POPULATE: u32 = 1 << 1;
/// Reads and writes through the kernel's page cache.
pub const LT_PAGER_BUFFERED: u32 = 1 << 2;
/// Reads and writes past the kernel's page cache, or fails.
pub const LT_PAGER_DIRECT: u32 = 1 << 3;
/// Pages of files that are evicted do not stay compressed, also where that would pay.
pub const LT_PAGER_NO_ZCACHE: u32 = 1 << 4;

/// For reading and writing.
pub const LT_VIEW_WRITE: u32 = 1 << 8;
/// Makes the file if there is none, and as long as `create_size`. Implies LT_VIEW_WRITE.
pub const LT_VIEW_CREATE: u32 = 1 << 9;
/// Makes the file, or fails with EEXIST. Implies LT_VIEW_WRITE.
pub const LT_VIEW_CREATE_NEW: u32 = 1 << 10;
/// lt_view_write_at returns when the bytes are durable.
pub const LT_VIEW_SYNC: u32 = 1 << 11;
/// Takes no lock on the file. The program makes sure that no other one writes it.
pub const LT_VIEW_NO_LOCK: u32 = 1 << 12;
/// Does not wait for the lock.
pub const LT_VIEW_NO_WAIT: u32 = 1 << 13;
/// Reads nothing ahead.
pub const LT_VIEW_NO_READ_AHEAD: u32 = 1 << 14;

/// Stores reach the file. Without this and the next flag the mapping is for reading.
pub const LT_MAP_WRITE: u32 = 1 << 20;
/// Stores are the mapping's own, as with MAP_PRIVATE; pages that were stored to are not in the
/// budget.
pub const LT_MAP_COPY: u32 = 1 << 21;
/// Reads the beginning before the call returns, as far as there is room.
pub const LT_MAP_POPULATE: u32 = 1 << 22;
/// Reads nothing ahead.
pub const LT_MAP_NO_READ_AHEAD: u32 = 1 << 23;

/// A structure with flags. Its flags begin with a prefix of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    Pager,
    View,
    Map,
}

impl Of {
    fn structure(self) -> &'static str {
        match self {
            Self::Pager => "lt_pager_options",
            Self::View => "lt_view_options",
            Self::Map => "lt_map_options",
        }
    }
}

macro_rules! flags {
    ($($of:ident: $($flag:ident)*;)*) => { &[$($((Of::$of, stringify!($flag), $flag)),*),*] };
}

/// All of them.
const ALL: &[(Of, &str, u32)] = flags! {
    Pager: LT_PAGER_NO_BACKGROUND LT_PAGER_POPULATE LT_PAGER_BUFFERED LT_PAGER_DIRECT
        LT_PAGER_NO_ZCACHE;
    View: LT_VIEW_WRITE LT_VIEW_CREATE LT_VIEW_CREATE_NEW LT_VIEW_SYNC LT_VIEW_NO_LOCK
        LT_VIEW_NO_WAIT LT_VIEW_NO_READ_AHEAD;
    Map: LT_MAP_WRITE LT_MAP_COPY LT_MAP_POPULATE LT_MAP_NO_READ_AHEAD;
};

/// Refuses flags of another structure, and those that this library does not know.
pub(crate) fn check(flags: u32, of: Of) -> Outcome {
    let mut left = flags;
    for (theirs, name, flag) in ALL {
        if flags & flag != 0 && *theirs != of {
            let (own, place) = (of.structure(), theirs.structure());
            let text = format!("{name} is a flag of {place}, and was given in {own}");
            return Err(Failure::argument(text));
        }
        left &= !flag;
    }
    if left != 0 {
        let text = format!("{left:#x} of the flags of {} is unknown here", of.structure());
        return Err(Failure::new(LT_TOO_NEW, text));
    }
    Ok(())
}

/// Refuses those of `refused` that are set, by their names and for a reason.
pub(crate) fn refuse(flags: u32, refused: u32, reason: &str) -> Outcome {
    match ALL.iter().find(|(_, _, flag)| flags & refused & flag != 0) {
        Some((_, name, _)) => Err(Failure::argument(format!("{name} is refused: {reason}"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = include_str!("../include/lowtide.h");

    /// Names and values of the flags in the header.
    fn of_header() -> Vec<(&'static str, u32)> {
        let flag = |line: &'static str| {
            let (name, value) = line.strip_prefix("#define ")?.split_once(" (1 << ")?;
            Some((name, 1 << value.strip_suffix(')')?.parse::<u32>().ok()?))
        };
        HEADER.lines().filter_map(flag).collect()
    }

    #[test]
    fn no_two_flags_of_the_header_share_a_bit() {
        let flags = of_header();
        assert!(flags.len() >= 15, "{flags:?}");
        let mut taken = 0_u32;
        for (name, flag) in flags {
            assert_eq!(flag.count_ones(), 1, "{name}");
            assert_eq!(taken & flag, 0, "{name} shares a bit with a flag before it");
            taken |= flag;
        }
    }

    #[test]
    fn each_flag_is_known_by_its_name_and_structure() {
        let known: Vec<(&str, u32)> = ALL.iter().map(|(_, name, flag)| (*name, *flag)).collect();
        assert_eq!(known, of_header());
        let prefix = |line: &&str| {
            ["LT_PAGER_", "LT_VIEW_", "LT_MAP_"]
                .iter()
                .any(|of| line.contains(&format!("#define {of}")))
        };
        assert_eq!(HEADER.lines().filter(prefix).count(), ALL.len(), "one that is no single bit");
        for (of, name, flag) in ALL {
            assert!(check(*flag, *of).is_ok(), "{name}");
            for other in [Of::Pager, Of::View, Of::Map].into_iter().filter(|other| other != of) {
                assert!(check(*flag, other).is_err(), "{name} in {other:?}");
            }
        }
    }
}
