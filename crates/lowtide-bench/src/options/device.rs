//! How lowtide reads and writes its files.

use clap::{Args, ValueEnum};
use lowtide::{IoEngine, IoMode, Pager, PagerBuilder, Policy, Size};
use lowtide_report::span::Span;

use crate::error::BenchError;

/// How lowtide reads and writes.
#[derive(Clone, Copy, Debug, Args)]
pub struct Io {
    /// I/O system calls that lowtide uses; auto prefers io_uring
    #[arg(long, value_enum, default_value = "auto")]
    pub io: Engine,
    /// Whether lowtide bypasses the kernel's page cache; auto bypasses it where possible
    #[arg(long, value_enum, default_value = "auto")]
    pub direct: Mode,
    /// Reads fail after this time; threads of the pager make them
    #[arg(long, value_name = "TIME")]
    pub read_timeout: Option<Span>,
}

impl Io {
    /// A pager; `adjust` changes its builder further.
    ///
    /// # Errors
    /// [`BenchError::Setup`].
    pub fn pager(
        self,
        policy: Policy,
        max_bytes: u64,
        page_bytes: u64,
        adjust: impl FnOnce(PagerBuilder) -> PagerBuilder,
    ) -> Result<Pager, BenchError> {
        let max = Size::new(max_bytes);
        let builder = Pager::builder()
            .max(max)
            .policy(policy)
            .base_page(usize::try_from(page_bytes).unwrap_or(usize::MAX))
            .io_engine(self.io.into())
            .direct(self.direct.into());
        let builder = match self.read_timeout {
            Some(Span(deadline)) => builder.read_timeout(deadline),
            None => builder,
        };
        adjust(builder).build().map_err(|source| BenchError::Setup { max, page_bytes, source })
    }
}

/// The runtime's I/O engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Engine {
    // io_uring where it is allowed, otherwise positioned reads and writes.
    Auto,
    Uring,
    // Positioned reads and writes.
    Psync,
}

impl From<Engine> for IoEngine {
    fn from(engine: Engine) -> Self {
        match engine {
            Engine::Auto => Self::Auto,
            Engine::Uring => Self::Uring,
            Engine::Psync => Self::Psync,
        }
    }
}

/// The runtime's I/O modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    // Direct where the file system allows it, otherwise buffered.
    Auto,
    // O_DIRECT.
    Direct,
    // Through the page cache.
    Buffered,
}

impl From<Mode> for IoMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Auto => Self::Auto,
            Mode::Direct => Self::Direct,
            Mode::Buffered => Self::Buffered,
        }
    }
}

/// Whether the access that faults a page in counts as a reference.
#[derive(Clone, Copy, Debug, Args)]
pub struct YoungFaults {
    /// Count the faulting access as a reference, as processors do
    #[arg(long)]
    pub young_faults: bool,
}
