//! The rows of a result: policies of lowtide, and the peers that they are compared with.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use lowtide::Policy;
use lowtide::map::MapMode;
use lowtide_report::{names, out};

use crate::error::BenchError;
use crate::peer::protocol::Reach;

/// lowtide's rows.
#[derive(Debug, Args)]
pub struct Policies {
    /// Reclaim policies, one row each
    #[arg(long = "policy", value_name = "P,P", value_delimiter = ',', value_parser = names::policy,
          default_value = "mglru,mglru-7.1,lru")]
    policies: Vec<Policy>,
}

impl Policies {
    /// Each policy once; ratios are to the first.
    pub fn rows(&self) -> Vec<Policy> {
        policy_rows(&self.policies)
    }
}

/// Policies, each once; notes each policy that is named twice.
pub fn policy_rows(policies: &[Policy]) -> Vec<Policy> {
    names::once(policies, ToString::to_string, out::note)
}

/// Mappings to compare with.
#[derive(Debug, Args)]
pub struct Mappings {
    /// Systems to compare with: kernel mappings, which need permission to create a memory cgroup,
    /// and lowtide's maps, a row for each policy
    #[arg(
        long,
        value_name = "PEER,PEER",
        value_parser = mappings(),
        value_delimiter = ',',
        default_value = "mmap,mmap-random"
    )]
    against: Vec<MmapPeer>,
}

/// The names of systems that map their file.
fn mappings() -> impl TypedValueParser<Value = MmapPeer> {
    let reads = [MmapPeer::Pread, MmapPeer::PreadDirect];
    let maps = MmapPeer::value_variants().iter().filter(move |peer| !reads.contains(peer));
    let names = PossibleValuesParser::new(maps.map(|peer| peer.name()));
    names.map(|name| MmapPeer::from_str(&name, false).expect("it is one of the names"))
}

impl Mappings {
    /// Each once.
    ///
    /// # Errors
    /// Those of [`chosen`].
    pub fn rows(&self) -> Result<Vec<MmapPeer>, BenchError> {
        chosen(&self.against, MmapPeer::None)
    }
}

/// A system to compare with: the kernel's, in a memory cgroup of the same budget, or lowtide's
/// map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MmapPeer {
    // Without any `madvise`.
    Mmap,
    // With `MADV_RANDOM`.
    MmapRandom,
    // `pread` through the page cache: of `gather`.
    Pread,
    // `pread` past it, each time the smallest block that covers the row: of `gather`.
    PreadDirect,
    // lowtide's map whose page faults this process serves.
    MapUserfault,
    // lowtide's map in the kernel's page cache.
    MapPagecache,
    None,
}

impl MmapPeer {
    /// The name of its row.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mmap => "mmap",
            Self::MmapRandom => "mmap-random",
            Self::MapUserfault => "map-userfault",
            Self::MapPagecache => "map-pagecache",
            Self::Pread => "pread",
            Self::PreadDirect => "pread-direct",
            Self::None => "none",
        }
    }

    /// The way of lowtide's map, if it is one.
    pub const fn way(self) -> Option<MapMode> {
        match self {
            Self::MapUserfault => Some(MapMode::Userfault),
            Self::MapPagecache => Some(MapMode::PageCache),
            Self::Mmap | Self::MmapRandom | Self::Pread | Self::PreadDirect | Self::None => None,
        }
    }

    /// How the process of the peer reads its file, if it has one.
    pub const fn reach(self) -> Option<Reach> {
        match self {
            Self::Mmap => Some(Reach::Mapping),
            Self::MmapRandom => Some(Reach::RandomMapping),
            Self::Pread => Some(Reach::Buffered),
            Self::PreadDirect => Some(Reach::Direct),
            Self::MapUserfault | Self::MapPagecache | Self::None => None,
        }
    }
}

/// The peers of a list, each once and without `none`.
///
/// # Errors
/// [`BenchError::Usage`] for `none` beside peers.
pub fn chosen<P: ValueEnum + PartialEq + Copy>(list: &[P], none: P) -> Result<Vec<P>, BenchError> {
    let name = |peer: &P| {
        peer.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    };
    let mut peers = names::once(list, name, out::note);
    let all = peers.len();
    peers.retain(|peer| *peer != none);
    if peers.len() < all && !peers.is_empty() {
        return Err(BenchError::usage(
            "--against cannot combine none with peers",
            "name peers, or write --against none",
        ));
    }
    Ok(peers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Command, FromArgMatches};

    #[test]
    fn the_policies_of_two_kernels_get_rows_unless_some_are_named() {
        let matches = Policies::augment_args(Command::new("bench")).get_matches_from(["bench"]);
        let mut kernels: Vec<Policy> = Policy::builtin().map(|(policy, _)| policy).collect();
        let others = [Policy::MGLRU_7_1_SERIES, Policy::MGLRU_6_12, Policy::TIDE];
        kernels.retain(|policy| !others.contains(policy));
        assert_eq!(Policies::from_arg_matches(&matches).unwrap().rows(), kernels);
    }

    #[test]
    fn none_stands_alone() {
        use MmapPeer::{Mmap, MmapRandom, None};
        assert_eq!(chosen(&[None, None], None).unwrap(), []);
        assert_eq!(chosen(&[MmapRandom, Mmap, Mmap], None).unwrap(), [MmapRandom, Mmap]);
        assert!(chosen(&[Mmap, None], None).is_err());
    }
}
