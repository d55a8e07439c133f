//! Swap of the plain machine.

use clap::{Args, ValueEnum};
use lowtide::{Policy, Size};
use lowtide_sim::{PlainConfig, PlainSwap};

/// How heaps are swapped on the plain machine. A machine of `--machine` says so itself.
#[derive(Debug, Args)]
pub(crate) struct Swap {
    /// Swap for heaps: a size, 0 for none [default: as much as the heaps want]
    #[arg(long, value_name = "SIZE", conflicts_with = "machine")]
    swap: Option<Size>,
    /// What swap is on: disk (writes end later) or zram (all ends at once)
    #[arg(
        long,
        value_enum,
        value_name = "DEVICE",
        default_value = "disk",
        hide_possible_values = true,
        conflicts_with = "machine"
    )]
    swap_device: SwapDevice,
    /// How willingly heaps are swapped: 0 to 200; 201 for nothing but heaps
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(0..=201),
        default_value_t = 60,
        conflicts_with = "machine"
    )]
    swappiness: u32,
}

/// What swap is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SwapDevice {
    /// A disk.
    Disk,
    /// Compressed memory.
    Zram,
}

impl Swap {
    /// The plain machine of a policy with a budget, on pages of `page` bytes.
    pub(crate) fn plain_config(&self, policy: Policy, pages: u64, page: u64) -> PlainConfig {
        // Never more than half full, which would change what swap is for.
        const PLENTY: u64 = 1 << 31;
        let slots = self.swap.map_or(PLENTY, |swap| (swap.bytes() / page).min(PLENTY));
        let swap = match self.swap_device {
            SwapDevice::Disk => PlainSwap::disk(slots),
            SwapDevice::Zram => PlainSwap::zram(slots),
        };
        PlainConfig {
            swap: (slots > 0).then_some(swap),
            swappiness: self.swappiness,
            page_bytes: page,
            ..PlainConfig::new(policy, pages)
        }
    }
}
