//! The formats that a trace can be in, by name. How one is recognised is in `recognise.rs`.

use crate::nearest;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// A format of traces. Its name, as in `--format`, is what it displays as and parses from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// `csv`: our exchange format as text.
    Csv,
    /// `compact`: our exchange format in binary, with checksums.
    Compact,
    /// `oracle-general`: libCacheSim's 24-byte records.
    OracleGeneral,
    /// `object-csv`: accesses to objects of a key-value cache or a content network, with a header.
    ObjectCsv,
    /// `msr`: block accesses as published by Microsoft Research Cambridge, seven columns without
    /// header.
    Msr,
    /// `lackey`: what `valgrind --tool=lackey --trace-mem=yes` prints.
    Lackey,
    /// `filemap`: events of the kernel's page cache as ftrace or `perf script` print them.
    Filemap,
}

impl Format {
    /// All formats, in declaration order.
    pub const ALL: [Self; 7] = [
        Self::Csv,
        Self::Compact,
        Self::OracleGeneral,
        Self::ObjectCsv,
        Self::Msr,
        Self::Lackey,
        Self::Filemap,
    ];

    /// The name, as in `--format`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Compact => "compact",
            Self::OracleGeneral => "oracle-general",
            Self::ObjectCsv => "object-csv",
            Self::Msr => "msr",
            Self::Lackey => "lackey",
            Self::Filemap => "filemap",
        }
    }

    /// One line about it, for listings.
    #[must_use]
    pub const fn description(self) -> &'static str {
        match self {
            Self::Csv => {
                "lowtide's own, as text: op,space,page,pages and optionally time_ns,thread,tenant"
            }
            Self::Compact => {
                "lowtide's own, in binary: a few bytes for each record, with checksums"
            }
            Self::OracleGeneral => {
                "libCacheSim oracleGeneral: 24-byte records of time, object, size, next access"
            }
            Self::ObjectCsv => "object accesses with a header: id, size and optionally time, op",
            Self::Msr => "MSR Cambridge block accesses: seven columns without header",
            Self::Lackey => "valgrind --tool=lackey --trace-mem=yes",
            Self::Filemap => "mm_filemap events as printed by ftrace or perf script",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(text: &str) -> Result<Self, UnknownFormat> {
        let wanted = |format: &Self| format.name().eq_ignore_ascii_case(text);
        Self::ALL.into_iter().find(wanted).ok_or_else(|| UnknownFormat { name: text.to_owned() })
    }
}

fn hint(name: &str) -> String {
    let near = nearest(&name.to_ascii_lowercase(), Format::ALL.map(Format::name));
    near.map_or_else(String::new, |near| format!(", did you mean `{near}`?"))
}

/// A name that is no format's.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "unknown trace format `{name}`{}; formats are {}",
    hint(name),
    Format::ALL.map(Format::name).join(", ")
)]
pub struct UnknownFormat {
    /// The name.
    pub name: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_others_are_answered_with_them() {
        for format in Format::ALL {
            assert_eq!(format.to_string().parse(), Ok(format));
        }
        assert!(
            "orcale"
                .parse::<Format>()
                .unwrap_err()
                .to_string()
                .contains("did you mean `oracle-general`?")
        );
        let error = "cvs".parse::<Format>().unwrap_err().to_string();
        assert!(
            error.contains("`cvs`") && error.contains("csv, compact, oracle-general"),
            "{error}"
        );
    }
}
