//! The ways in which `lowtide run` keeps a program.

use clap::ValueEnum;

/// The options of `lowtide run`, beside the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub enum Way {
    /// Files, in the page cache.
    Pagecache,
    /// Files, in mirrors.
    Userfault,
    /// Memory without a file, compressed, together with mirrors.
    Anon,
    /// The same; what does not compress goes to a file.
    AnonSwap,
}

impl Way {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Pagecache, Self::Userfault, Self::Anon, Self::AnonSwap];

    /// The command's options; `.` is the folder in which a program plays.
    #[must_use]
    pub const fn options(self) -> &'static [&'static str] {
        match self {
            Self::Pagecache => &["--mode", "pagecache"],
            Self::Userfault => &["--mode", "userfault"],
            Self::Anon => &["--anon"],
            Self::AnonSwap => &["--anon", "--swap", "."],
        }
    }

    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pagecache => "pagecache",
            Self::Userfault => "userfault",
            Self::Anon => "anon",
            Self::AnonSwap => "anon-swap",
        }
    }

    /// Whether memory without a file is kept.
    #[must_use]
    pub const fn keeps_heap(self) -> bool {
        matches!(self, Self::Anon | Self::AnonSwap)
    }

    /// Whether pages must compress: there is no other place for them.
    #[must_use]
    pub const fn must_compress(self) -> bool {
        matches!(self, Self::Anon)
    }
}
