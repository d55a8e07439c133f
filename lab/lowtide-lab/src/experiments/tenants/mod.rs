//! `tenants`: servers with large buffers and their browsers, 32 tenants alike. What both worlds
//! have in common; the players are `simulated.rs` and `real.rs`.

pub(crate) mod real;
pub(crate) mod simulated;

use clap::{Args, ValueEnum};
use lowtide::Size;
use lowtide_experiments::programs::tenants::{Content, Tenants};
use lowtide_report::values::size;

/// The name of the workload.
pub(crate) const NAME: &str = "tenants";
/// One line for listings.
pub(crate) const ABOUT: &str =
    "servers with large buffers and their browsers, 32 tenants alike, on compressed memory";
/// What its rows are of, in both worlds.
pub(crate) const PROGRAM: &str = "heaps on swap";

/// What heaps hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Held {
    Zeros,
    Objects,
}

/// What tenants have beside the published heaps.
#[derive(Debug, Args)]
pub(crate) struct Having {
    /// Size at full scale of a file for each tenant, all of which each request of its servers loads
    /// [default: none, as published]
    #[arg(long, value_name = "SIZE", value_parser = size, allow_hyphen_values = true)]
    file: Option<u64>,
    /// What heaps hold: zeros (as published, they take no memory in swap), or objects
    #[arg(
        long,
        value_enum,
        value_name = "WHAT",
        default_value = "zeros",
        hide_possible_values = true
    )]
    content: Held,
    /// swap.high of each tenant at full scale: with more of it in swap, its threads are slowed down
    #[arg(long, value_name = "SIZE", value_parser = size, allow_hyphen_values = true)]
    swap_high: Option<u64>,
}

impl Having {
    /// Whether tenants have no more than the published ones.
    pub(crate) const fn is_published(&self) -> bool {
        self.file.is_none() && matches!(self.content, Held::Zeros) && self.swap_high.is_none()
    }

    /// The tenants at a scale.
    pub(crate) fn tenants(&self, scale: f64, seed: u64) -> Tenants {
        let tenants = Tenants::published(scale, seed);
        let tenants = tenants.with(scale, self.file.unwrap_or(0), self.swap_high);
        let content = match self.content {
            Held::Zeros => Content::Zeros,
            Held::Objects => Content::Objects,
        };
        Tenants { content, ..tenants }
    }
}

/// What tenants have, in words.
pub(crate) fn describe(tenants: &Tenants) -> String {
    let size = |bytes| Size::new(bytes).to_string();
    let what = match tenants.content {
        Content::Zeros => "zeros",
        Content::Objects => "objects",
    };
    let mut text = format!(
        "{} workers of {} tenants, each with {} chunks of {}, of {what}",
        tenants.all_workers(),
        tenants.tenants,
        tenants.chunks,
        size(tenants.chunk),
    );
    if tenants.file > 0 {
        text += &format!(", a tenant with a file of {}", size(tenants.file));
    }
    if let Some(high) = tenants.swap_high {
        text += &format!(", swap.high {}", size(high));
    }
    text
}
