//! What compresses the pages that swap keeps in memory.
//!
//! A compressor is two prices and a size: the processor time of a page on its way out and in
//! ([`compress`](crate::Costs::compress), [`decompress`](crate::Costs::decompress)), and what is
//! left of it. The class of lzo has the assumed values of `docs/kernel/workloads.md` §0.4; the
//! others have those times a measured ratio. Measured were 20,000 pages of gcc's heap (none of
//! zeros) while it compiled five files of zstd, each page by itself, in processor time, the best of
//! five passes, on a virtual machine whose two processors were busy:
//!
//! | library | compress | decompress | left |
//! |---|---:|---:|---:|
//! | lzo 2.10, 1x-1 | 5.40 µs | 3.80 µs | 25.4 % |
//! | lz4 1.9.4, fast | 5.41 | 1.77 | 29.0 % |
//! | zstd 1.5.4, level 3 | 13.2 | 4.67 | 17.4 % |
//!
//! Pages that shrink to more than 3,640 bytes count as whole ones
//! (`docs/kernel/fault-and-writeback.md` C5). The kernel's own code was not measured.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A compressor. See the module documentation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Compressor {
    /// Lempel-Ziv-Oberhumer with run lengths: what a kernel chooses by itself.
    #[default]
    LzoRle,
    /// Faster on the way in, and larger.
    Lz4,
    /// Smaller, and slower.
    Zstd,
}

impl Compressor {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::LzoRle, Self::Lz4, Self::Zstd];

    /// The name in files and on the command line, as the kernel has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LzoRle => "lzo-rle",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    /// What it leaves of an ordinary page, in percent: a third is assumed of the class of lzo.
    #[must_use]
    pub const fn percent(self) -> u32 {
        match self {
            Self::LzoRle => 33,
            Self::Lz4 => 38,
            Self::Zstd => 23,
        }
    }
}

impl fmt::Display for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// No compressor has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no compressor `{0}`; write lzo-rle, lz4 or zstd")]
pub struct UnknownCompressor(String);

impl FromStr for Compressor {
    type Err = UnknownCompressor;

    fn from_str(name: &str) -> Result<Self, UnknownCompressor> {
        let found = Self::ALL.into_iter().find(|compressor| compressor.name() == name);
        found.ok_or_else(|| UnknownCompressor(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Costs;

    #[test]
    fn every_name_is_understood_in_files_and_text() {
        for compressor in Compressor::ALL {
            assert_eq!(compressor.name().parse(), Ok(compressor));
            let text = serde_json::to_string(&compressor).unwrap();
            assert_eq!(text, format!("\"{compressor}\""));
        }
        let error = "gzip".parse::<Compressor>().unwrap_err().to_string();
        assert!(error.contains("gzip") && error.contains("lz4"), "{error}");
    }

    /// The order that was measured: what takes longer leaves less.
    #[test]
    fn a_smaller_page_costs_more_time() {
        let costs = Costs::default();
        let [lzo, lz4, zstd] = Compressor::ALL;
        assert!(costs.compress(zstd) > 2 * costs.compress(lzo));
        assert!(costs.decompress(lz4) < costs.decompress(lzo));
        assert!(costs.decompress(lzo) < costs.decompress(zstd));
        assert!(zstd.percent() < lzo.percent() && lzo.percent() < lz4.percent());
    }
}
