//! Swap of the plain machine.

use clap::{Args, ValueEnum};
use lowtide::{Policy, Size};
use lowtide_sim::{PlainConfig, PlainSwap};

/// Swap of heaps on the plain machine. A machine of `--machine` describes its own.
#[derive(Debug, Args)]
pub struct Swap {
    /// Size of the swap for heaps; 0 for none [default: unlimited]
    #[arg(long, value_name = "SIZE", conflicts_with = "machine")]
    swap: Option<Size>,
    /// Swap device: disk (writes complete later) or zram (requests complete at once)
    #[arg(
        long,
        value_enum,
        value_name = "DEVICE",
        default_value = "disk",
        hide_possible_values = true,
        conflicts_with = "machine"
    )]
    swap_device: SwapDevice,
    /// Preference for swapping heaps: 0 to 200; 201 reclaims only heaps
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(0..=201),
        default_value_t = 60,
        conflicts_with = "machine"
    )]
    swappiness: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SwapDevice {
    /// A disk.
    Disk,
    /// Compressed memory.
    Zram,
}

impl Swap {
    /// The plain machine of a policy with a budget, on pages of `page` bytes.
    pub fn plain_config(&self, policy: Policy, pages: u64, page: u64) -> PlainConfig {
        // Never more than half full: a fuller swap would change the behaviour of reclaim.
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
