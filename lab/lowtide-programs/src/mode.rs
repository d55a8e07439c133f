//! The modes in which `lowtide run` keeps a program.

use clap::ValueEnum;

/// How files are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub enum Mode {
    /// In the page cache.
    Pagecache,
    /// In mirrors.
    Userfault,
    /// In the page cache, with files that are read or written.
    Files,
    /// In mirrors and in the page cache in turns.
    Restless,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Pagecache, Self::Userfault, Self::Files, Self::Restless];

    /// The command's options.
    #[must_use]
    pub const fn options(self) -> &'static [&'static str] {
        match self {
            Self::Pagecache => &["--mode", "pagecache"],
            Self::Userfault => &["--mode", "userfault"],
            Self::Files => &["--mode", "pagecache", "--files"],
            Self::Restless => &["--mode", "restless"],
        }
    }

    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pagecache => "pagecache",
            Self::Userfault => "userfault",
            Self::Files => "files",
            Self::Restless => "restless",
        }
    }
}
