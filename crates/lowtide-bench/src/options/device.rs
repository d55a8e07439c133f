//! How lowtide reads and writes its files.

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use lowtide::{IoEngine, IoMode, Pager, PagerBuilder, Policy, Size};
use lowtide_report::span::Span;

use crate::error::BenchError;

/// How lowtide reads and writes.
#[derive(Clone, Copy, Debug, Args)]
pub struct Io {
    /// I/O system calls that lowtide uses; auto prefers io_uring
    #[arg(long, value_parser = engines(), default_value = "auto")]
    pub io: IoEngine,
    /// Whether lowtide bypasses the kernel's page cache; auto bypasses it where possible
    #[arg(long, value_parser = modes(), default_value = "auto")]
    pub direct: IoMode,
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
            .io_engine(self.io)
            .direct(self.direct);
        let builder = match self.read_timeout {
            Some(Span(deadline)) => builder.read_timeout(deadline),
            None => builder,
        };
        adjust(builder).build().map_err(|source| BenchError::Setup { max, page_bytes, source })
    }
}

/// Reads the runtime's I/O engines.
pub fn engines() -> impl TypedValueParser<Value = IoEngine> {
    PossibleValuesParser::new(["auto", "uring", "psync"]).try_map(|name| name.parse::<IoEngine>())
}

/// Reads the runtime's I/O modes.
pub fn modes() -> impl TypedValueParser<Value = IoMode> {
    PossibleValuesParser::new(["auto", "direct", "buffered"]).try_map(|name| name.parse::<IoMode>())
}

/// Whether the access that faults a page in counts as a reference.
#[derive(Clone, Copy, Debug, Args)]
pub struct YoungFaults {
    /// Count the faulting access as a reference, as processors do
    #[arg(long)]
    pub young_faults: bool,
}
