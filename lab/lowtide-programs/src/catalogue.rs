//! The operations that a player knows, and what their arguments may be.
//!
//! What an operation does is in `player/`, in the function of its name. Here is only what a plan
//! may say. Sizes are in pages of 4 KiB. Every operation is possible at any time; what it cannot be
//! done to is left out by the player.

use crate::catalogue::Arg::{Count, From, Number, Offset, Pages, Script, Slot, Tag, Word};

/// What an argument is drawn from.
#[derive(Clone, Copy, Debug)]
pub enum Arg {
    /// One of the player's areas.
    Slot,
    /// The size of an area.
    Pages,
    /// A page of an area.
    From,
    /// Pages of an operation.
    Count,
    /// A page of the common file.
    Offset,
    /// What is stored: noise if it is odd.
    Tag,
    /// A number of this range.
    Number(u64, u64),
    /// One of these words.
    Word(&'static [&'static str]),
    /// A script that this operation begins.
    Script,
}

/// A set of operations that a plan may do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Theme {
    /// Memory without a file, and what every plan does.
    Memory,
    /// Allocations.
    Heap,
    /// Mappings of files.
    Files,
    /// Protection, advice, fixed addresses.
    Rights,
    /// Bytes that the kernel stores and loads.
    Transfers,
    /// Children.
    Children,
    /// Threads.
    Threads,
    /// Signals.
    Signals,
    /// What a process takes from itself.
    Limits,
    /// Libraries, peers, locks.
    World,
    /// What belongs to a program: record locks, its signals, its user, names of its files.
    Owned,
}

impl Theme {
    /// All of them; the first is part of every plan.
    pub const ALL: [Self; 11] = [
        Self::Memory,
        Self::Heap,
        Self::Files,
        Self::Rights,
        Self::Transfers,
        Self::Children,
        Self::Threads,
        Self::Signals,
        Self::Limits,
        Self::World,
        Self::Owned,
    ];
}

/// Where an operation may be, so that what it says does not depend on other threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Anywhere.
    Any,
    /// In the script of a process, not of a thread: it uses what a process has once.
    Process,
    /// In a plan without threads: it changes what all of them have.
    Alone,
}

/// An operation.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Its name in a plan.
    pub name: &'static str,
    /// Its theme.
    pub theme: Theme,
    /// How often it is drawn, beside others.
    pub weight: u64,
    /// Where it may be.
    pub place: Place,
    /// Its arguments.
    pub args: &'static [Arg],
}

const RANGE: [Arg; 3] = [Slot, From, Count];
const RIGHTS: Arg = Word(&["rw", "rw", "r", "none"]);
const KINDS: Arg = Word(&["anon", "file"]);

/// Ways to end a process, for the operation `end`.
pub const ENDS: [&str; 9] =
    ["exit", "_exit", "quick", "abort", "signal", "handler", "thread", "last", "exec"];

const fn kind(
    name: &'static str,
    theme: Theme,
    weight: u64,
    place: Place,
    args: &'static [Arg],
) -> Kind {
    Kind { name, theme, weight, place, args }
}

/// All operations that are drawn by their weight. `fork`, `start` and `thread` come with a script
/// of their own, `end` at the end of one.
pub const KINDS_OF_OPERATIONS: [Kind; 47] = {
    use Place::{Alone, Any, Process};
    use Theme::{
        Children, Files, Heap, Limits, Memory, Owned, Rights, Signals, Threads, Transfers, World,
    };
    [
        kind(
            "map",
            Memory,
            8,
            Any,
            &[
                Slot,
                Pages,
                Word(&["rw", "rw", "rw", "rw", "r", "none"]),
                Word(&["plain", "plain", "plain", "populate", "noreserve", "shared", "stack"]),
            ],
        ),
        kind("store", Memory, 20, Any, &[Slot, From, Count, Tag]),
        kind("check", Memory, 8, Any, &RANGE),
        kind("unmap", Memory, 5, Any, &RANGE),
        kind(
            "remap",
            Memory,
            6,
            Any,
            &[Slot, From, Count, Pages, Slot, Word(&["move", "move", "stay", "fixed", "keep"])],
        ),
        kind("drop", Memory, 2, Any, &[Slot]),
        kind(
            "heap",
            Heap,
            10,
            Any,
            &[
                Slot,
                Pages,
                Word(&["malloc", "calloc", "aligned", "memalign", "posix"]),
                Number(0, 5),
            ],
        ),
        kind("realloc", Heap, 8, Any, &[Slot, Pages]),
        kind(
            "file",
            Files,
            12,
            Any,
            &[
                Slot,
                Pages,
                Offset,
                Word(&["read", "read", "private", "private-r", "shared", "shared-r"]),
                Word(&["plain", "plain", "populate"]),
            ],
        ),
        kind("protect", Rights, 6, Any, &[Slot, From, Count, RIGHTS]),
        kind(
            "advise",
            Rights,
            10,
            Any,
            &[
                Slot,
                From,
                Count,
                Word(&[
                    "normal",
                    "random",
                    "sequential",
                    "willneed",
                    "cold",
                    "pageout",
                    "dontdump",
                    "dodump",
                    "populate-read",
                    "hugepage",
                    "nohugepage",
                    "collapse",
                    "mergeable",
                    "unmergeable",
                    "dontneed",
                    "dontneed",
                    "dontneed",
                    "free",
                    "free",
                    "dontfork",
                    "wipeonfork",
                    "guard",
                ]),
            ],
        ),
        kind("fixed", Rights, 3, Any, &[Slot, From, Count, KINDS]),
        kind("lock", Rights, 1, Any, &RANGE),
        kind("odd", Rights, 1, Any, &RANGE),
        kind("probe", Rights, 4, Process, &[Slot, From, Count, Word(&["load", "store"])]),
        kind(
            "get",
            Transfers,
            14,
            Any,
            &[
                Slot,
                From,
                Count,
                Offset,
                Word(&[
                    "read", "pread", "readv", "preadv", "stream", "aio", "pipe", "socket",
                    "process",
                ]),
                Word(&["cached", "direct"]),
            ],
        ),
        kind(
            "put",
            Transfers,
            6,
            Any,
            &[
                Slot,
                From,
                Count,
                Word(&["write", "writev", "direct", "send", "splice", "process", "stream"]),
            ],
        ),
        kind(
            "futex",
            Transfers,
            3,
            Any,
            &[Slot, From, Count, Word(&["wait", "wake", "wake-op", "lock-pi"])],
        ),
        kind("forks", Children, 3, Any, &[Number(0, 9)]),
        kind("vfork", Children, 3, Any, &[Word(&["exit", "exit", "maps", "maps", "exec"])]),
        kind("spawn", Children, 1, Any, &[]),
        kind("clone", Children, 2, Any, &[]),
        kind("join", Children, 1, Any, &[]),
        kind("own", Threads, 2, Any, &[Slot, Number(1, 40)]),
        kind(
            "mutex",
            Threads,
            3,
            Any,
            &[Slot, Number(1, 1500), Word(&["plain", "inherit", "robust"]), Number(0, 12)],
        ),
        // A child that exits writes what another thread had put into a stream when it was forked.
        kind("stream", Children, 2, Alone, &[Slot, Number(1, 12), Number(0, 5)]),
        kind("cancel", Threads, 1, Any, &[]),
        kind(
            "timer",
            Signals,
            6,
            Process,
            &[Number(3000, 20000), Word(&["nothing", "maps", "file"])],
        ),
        kind("jump", Signals, 3, Process, &[Number(0, 11), KINDS]),
        kind("collect", Signals, 3, Process, &[Number(2, 24), KINDS]),
        kind("limit", Limits, 2, Alone, &[Word(&["files"]), Number(10, 40)]),
        // The C library reserves 64 MiB of addresses for each of lowtide's threads.
        kind("limit", Limits, 2, Alone, &[Word(&["as"]), Number(2048, 8192)]),
        kind("limit", Limits, 2, Alone, &[Word(&["data"]), Number(64, 1024)]),
        kind("chroot", Limits, 2, Alone, &[]),
        kind("close", Limits, 2, Alone, &[Word(&["all", "error", "input"])]),
        kind("peer", World, 4, Any, &[]),
        // A child that another thread forks has the descriptor, and with it the lock, for a while.
        kind("flock", World, 2, Alone, &[]),
        kind("plugin", World, 4, Process, &[Number(0, 4)]),
        kind("record", Owned, 4, Any, &[Number(0, 3)]),
        kind("replace", Owned, 4, Any, &[Number(0, 499), Number(0, 1)]),
        kind("cut", Owned, 2, Alone, &[]),
        kind("sigwait", Owned, 4, Alone, &[]),
        kind("setuid", Owned, 2, Alone, &[]),
        kind("mlockall", Owned, 2, Alone, &[Number(0, 1)]),
        kind("fork", Children, 0, Any, &[Script, Number(0, 5)]),
        kind("start", Children, 0, Any, &[Script]),
        kind("thread", Threads, 0, Any, &[Script]),
    ]
};

/// Whether the player has an operation of this name. `spoil` is for the player's own test.
#[must_use]
pub fn is_known(name: &str) -> bool {
    ["end", "spoil"].contains(&name) || KINDS_OF_OPERATIONS.iter().any(|kind| kind.name == name)
}
