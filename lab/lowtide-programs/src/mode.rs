//! The modes in which `lowtide run` keeps a program.

use clap::ValueEnum;

/// How files are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub enum Mode {
    /// In the page cache.
    Pagecache,
    /// In mirrors.
    Userfault,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Pagecache, Self::Userfault];

    /// The command's options.
    #[must_use]
    pub const fn options(self) -> [&'static str; 2] {
        ["--mode", self.name()]
    }

    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pagecache => "pagecache",
            Self::Userfault => "userfault",
        }
    }
}
