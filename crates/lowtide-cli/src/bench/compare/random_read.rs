//! `lowtide bench random-read`: uniform reads of single pages. With `--depth` it is a different
//! measurement: cold reads from one thread, with a number of reads in flight (`depth.rs`).

use clap::builder::ArgPredicate::IsPresent;
use clap::{Args, ValueEnum};
use lowtide_report::values::{budget, scale, scaled};
use lowtide_workload::Workload;

use super::on_pages::OnPages;
use super::plan::Comparison;
use crate::bench::error::BenchError;
use crate::bench::options::{MmapPeer, batch, chosen, threads};

/// Options of `random-read`.
#[derive(Debug, Args)]
pub struct RandomReadArgs {
    /// Reads in flight from one thread: measure cold reads under the first policy, one row each
    #[arg(long, value_name = "N,N", value_delimiter = ',', value_parser = threads(),
          conflicts_with_all =
              ["ops", "threads", "batch", "record", "device_delay", "device_bandwidth",
               "explain"])]
    pub depth: Vec<u32>,
    /// Memory budget of each system [default: 256M; 64M with --depth]
    #[arg(long, value_name = "SIZE", value_parser = budget, default_value = "256M",
          default_value_if("depth", IsPresent, "64M"), hide_default_value = true,
          allow_hyphen_values = true)]
    pub max: u64,
    /// Size of the data as a multiple of the budget [default: 4; 16 with --depth]
    #[arg(long, value_name = "F", value_parser = scale, default_value = "4",
          default_value_if("depth", IsPresent, "16"), hide_default_value = true,
          allow_negative_numbers = true)]
    pub scale: f64,
    /// Pages per call: 1 reads through a guard, more through get_many
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = batch())]
    batch: u32,
    /// Systems to compare with: fio with --depth, otherwise kernel mappings, which need a memory
    /// cgroup, and lowtide's maps, a row for each policy
    /// [default: mmap,mmap-random; none with --depth]
    #[arg(long, value_name = "PEER,PEER", value_enum, value_delimiter = ',',
          default_value = "mmap,mmap-random", hide_default_value = true,
          default_value_ifs = [("depth", IsPresent, "none"), ("device_delay", IsPresent, "none"),
                               ("device_bandwidth", IsPresent, "none")])]
    against: Vec<Peer>,
    #[command(flatten)]
    pub pages: OnPages,
}

/// The peers of random reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Peer {
    Mmap,
    MmapRandom,
    // lowtide's maps, by their way.
    MapUserfault,
    MapPagecache,
    // With direct I/O, at a queue depth.
    Fio,
    None,
}

impl RandomReadArgs {
    /// Runs the measurement without a depth.
    ///
    /// # Errors
    /// Any [`BenchError`].
    pub fn run(&self) -> Result<(), BenchError> {
        let mut peers = Vec::new();
        for peer in chosen(&self.against, Peer::None)? {
            peers.push(match peer {
                Peer::Mmap => MmapPeer::Mmap,
                Peer::MmapRandom => MmapPeer::MmapRandom,
                Peer::MapUserfault => MmapPeer::MapUserfault,
                Peer::MapPagecache => MmapPeer::MapPagecache,
                Peer::Fio | Peer::None => {
                    return Err(BenchError::usage(
                        "fio can be compared only with --depth",
                        "write `lowtide bench random-read --depth 1,8,32 --against fio`",
                    ));
                }
            });
        }
        let sizes = (self.max, scaled(self.max, self.scale));
        let comparison = Comparison {
            peers,
            batch: Some(self.batch),
            ..self.pages.comparison(Workload::RandomRead, sizes)
        };
        comparison.run()
    }

    /// Whether fio is selected, which needs a depth. Other peers have no depth.
    ///
    /// # Errors
    /// [`BenchError::Usage`] for a mapping.
    pub fn beside_fio(&self) -> Result<bool, BenchError> {
        let peers = chosen(&self.against, Peer::None)?;
        if peers.iter().any(|peer| *peer != Peer::Fio) {
            return Err(BenchError::usage(
                "a mapping has no queue depth",
                "omit --depth, or compare with --against fio",
            ));
        }
        Ok(!peers.is_empty())
    }
}
