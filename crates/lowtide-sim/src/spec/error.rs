//! The errors of impossible machines: which key, which value, why, and what to write.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::{DeviceSpec, MachineSpec};

/// A value that makes no machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct BadValue {
    /// The key, with its table: `device.read_ns`.
    pub key: String,
    /// The value as it was given, or as it would be written; `None` if the key is missing.
    pub value: Option<String>,
    /// Why it cannot be.
    pub reason: String,
    /// What to write instead.
    pub write: String,
}

impl fmt::Display for BadValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) => write!(f, "`{} = {value}`: {}", self.key, self.reason)?,
            None => write!(f, "`{}` is missing: {}", self.key, self.reason)?,
        }
        write!(f, "; write {}", self.write)
    }
}

/// Why there is no such machine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// Neither the name of a machine nor the path of a file.
    #[error(
        "`{given}` is neither a machine nor a file{hint}; machines are {machines}; or give \
         the path of a TOML file that \
         describes one, with a device of {devices}",
        hint = hint(given, *nearest),
        machines = MachineSpec::names().collect::<Vec<_>>().join(", "),
        devices = DeviceSpec::names().collect::<Vec<_>>().join(", ")
    )]
    Unknown {
        /// The name that was given.
        given: String,
        /// The machine with the nearest name, if one is near.
        nearest: Option<&'static str>,
    },
    /// The file cannot be read.
    #[error(
        "cannot read the machine in {}: {source}; give the path of a TOML file, or the name of a \
         machine ({machines})",
        path.display(),
        machines = MachineSpec::names().collect::<Vec<_>>().join(", ")
    )]
    Read {
        /// Its path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is no description: it is not TOML, or has a key or a type that none has. The source
    /// names the line.
    #[error("machine `{machine}` has an invalid description: {}", source.to_string().trim_end())]
    Syntax {
        /// The name of the machine or of its file.
        machine: String,
        /// The parser's error, with line and column.
        source: Box<toml::de::Error>,
    },
    /// A value that makes no machine.
    #[error("machine `{machine}`: {source}")]
    Value {
        /// The name of the machine or of its file.
        machine: String,
        /// Which, why, and what to write.
        source: BadValue,
    },
    /// The machine that this runs on cannot be described.
    #[error(
        "cannot describe the machine `this`: {what}: {source}; choose a machine by name, or \
         describe it in a file"
    )]
    This {
        /// The property that could not be read.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

/// The part of the message that helps with a slip of the pen.
fn hint(given: &str, nearest: Option<&str>) -> String {
    if DeviceSpec::preset(given).is_some() {
        return format!(", but a device: a machine's file may say `device = \"{given}\"`");
    }
    nearest.map(|name| format!(", did you mean `{name}`?")).unwrap_or_default()
}
