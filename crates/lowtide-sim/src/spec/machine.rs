//! A machine, from its name or from a file.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use lowtide_workload::nearest;
use serde::{Deserialize, Serialize};

use super::compressor::Compressor;
use super::device::DeviceSpec;
use super::error::{BadValue, SpecError};
use super::fault_path::FaultPath;
use super::file::MachineFile;
use super::{limits, presets, this};
use crate::costs::Costs;

/// The machine that a simulation runs on. Sizes are in bytes, times in nanoseconds.
///
/// NUMA nodes are not described: memory is one pool. Serialised, it is a file that describes the
/// same machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MachineSpec {
    /// What it is called in results.
    pub name: String,
    /// A line about it.
    pub about: String,
    /// CPUs as the scheduler counts them, hardware threads: 1 to 4096.
    pub cpus: u32,
    /// Memory, in bytes: 64 pages to 16 TiB.
    pub memory: u64,
    /// Base page, in bytes: a power of two from 512 to 64 KiB. Default 4096.
    pub page: u64,
    /// Scheduler ticks per second, 1 to 10,000. Default 250.
    pub hz: u32,
    /// How long a task runs while another waits for its CPU, in nanoseconds. Default 3,000,000.
    pub timeslice_ns: u64,
    /// Largest read-ahead window, in bytes: whole pages, at most 16 MiB; 0 is no read-ahead.
    /// Default: what a kernel chooses for the device ([`DeviceSpec::read_ahead`]).
    pub readahead: u64,
    /// What one fault maps of the cached pages around it, in bytes: a power of two of at least a
    /// page, at most 2 MiB; 0 is the page alone. Default 64 KiB.
    pub fault_around: u64,
    /// Whether those cached pages are mapped young, as if they had been accessed: x86 does, arm64
    /// does not. Default true.
    pub fault_around_young: bool,
    /// How a fault waits for the I/O that it needs. Default: as kernels do.
    pub fault_path: FaultPath,
    /// Memory that is not available to pages (the kernel itself, page tables of idle programs,
    /// firmware), in bytes. Default 2 % of the memory; in a file with a base, the same share as
    /// there.
    pub kernel: u64,
    /// The disk that files are on.
    pub device: DeviceSpec,
    /// Where anonymous pages can go; `None` if nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap: Option<SwapSpec>,
    /// What the kernel's work costs.
    pub costs: Costs,
}

/// Where anonymous pages can go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SwapSpec {
    /// The kind.
    pub kind: SwapKind,
    /// Bytes of pages that it holds, before compression: 64 KiB to 16 TiB, and at most 64 times the
    /// memory.
    pub size: u64,
    /// What compresses them. Zram only. Default `lzo-rle`.
    pub compressor: Compressor,
    /// What compression leaves of a page, in percent, 1 to 100; a page of zeros takes nothing. Zram
    /// only. Default: the compressor's ([`Compressor::percent`]).
    pub compressed_percent: u32,
}

impl SwapSpec {
    /// Compressed memory for `size` bytes of pages, with the compressor that kernels choose.
    #[must_use]
    pub const fn zram(size: u64) -> Self {
        let compressor = Compressor::LzoRle;
        let compressed_percent = compressor.percent();
        Self { kind: SwapKind::Zram, size, compressor, compressed_percent }
    }

    /// The same swap with another compressor, and what that leaves of a page.
    #[must_use]
    pub const fn with(self, compressor: Compressor) -> Self {
        Self { compressor, compressed_percent: compressor.percent(), ..self }
    }
}

/// The kinds of swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SwapKind {
    /// Compressed in memory, at once, by the task that swaps: it costs CPU, and memory for what
    /// remains.
    Zram,
    /// On the machine's device, beside the files.
    Device,
}

impl SwapKind {
    /// The name in files and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Zram => "zram",
            Self::Device => "device",
        }
    }
}

impl fmt::Display for SwapKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl MachineSpec {
    /// The name of the machine that this runs on.
    pub const THIS: &'static str = "this";

    /// The names that [`MachineSpec::preset`] knows, in the order in which they are listed.
    pub fn names() -> impl Iterator<Item = &'static str> {
        presets::MACHINES.iter().map(|(name, _)| *name).chain([Self::THIS])
    }

    /// The machine of that name; `None` if there is none. Names are compared without regard to
    /// case, and `_` counts as `-`.
    ///
    /// # Errors
    /// [`SpecError::This`] when the machine that this runs on is requested and cannot be described,
    /// and [`SpecError::Value`] when it is too large.
    pub fn preset(name: &str) -> Result<Option<Self>, SpecError> {
        let name = name.to_ascii_lowercase().replace('_', "-");
        if name == Self::THIS {
            return this::query().and_then(Self::valid).map(Some);
        }
        Ok(presets::MACHINES.iter().find(|(known, _)| *known == name).map(|(_, make)| make()))
    }

    /// The machine as a file with all of its keys, which [`MachineSpec::load`] reads as the same
    /// machine.
    ///
    /// # Errors
    /// None that is known: every machine consists of numbers, text and tables.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(self)
    }

    /// The machine of that name, or the one that the file at that path describes. A name goes
    /// before a file; `./laptop` is a path.
    ///
    /// # Errors
    /// [`SpecError`], each with what to do.
    pub fn load(name_or_path: &str) -> Result<Self, SpecError> {
        if let Some(machine) = Self::preset(name_or_path)? {
            return Ok(machine);
        }
        let path = Path::new(name_or_path);
        let text = match read_short(path) {
            Ok(text) => text,
            // A word that is no file was meant as a name.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !looks_like_a_path(path) => {
                return Err(SpecError::Unknown {
                    nearest: nearest(&name_or_path.to_ascii_lowercase(), Self::names()),
                    given: name_or_path.to_owned(),
                });
            }
            Err(source) => return Err(SpecError::Read { path: path.to_owned(), source }),
        };
        let stem =
            path.file_stem().map_or_else(|| name_or_path.into(), |stem| stem.to_string_lossy());
        Self::from_toml(&text, &stem)
    }

    /// The machine that a text in TOML describes; see the [module](crate::spec) for its keys. It
    /// has the given name if the text gives it none.
    ///
    /// # Errors
    /// [`SpecError::Syntax`] for what is no TOML, keys that do not exist and values of a wrong
    /// type, [`SpecError::Value`] for values that make no machine, and [`SpecError::This`] if it
    /// starts from the machine that this runs on and that cannot be described.
    pub fn from_toml(text: &str, name: &str) -> Result<Self, SpecError> {
        let file: MachineFile = toml::from_str(text).map_err(|source| SpecError::Syntax {
            machine: name.to_owned(),
            source: Box::new(source),
        })?;
        let bad = |source| SpecError::Value { machine: name.to_owned(), source };
        let base = match file.base() {
            Some(base) => Some(Self::preset(base)?.ok_or_else(|| bad(unknown_base(base)))?),
            None => None,
        };
        let machine = file.over(base, name).map_err(bad)?;
        limits::check_machine(&machine).map_err(bad)?;
        Ok(machine)
    }

    /// Checks that the machine can be simulated.
    ///
    /// # Errors
    /// [`SpecError::Value`] for the first value that cannot be, or does not fit the others.
    pub fn validate(&self) -> Result<(), SpecError> {
        limits::check_machine(self)
            .map_err(|source| SpecError::Value { machine: self.name.clone(), source })
    }

    /// The machine with another disk, which its name then says. Read-ahead follows the disk, unless
    /// the machine has a setting of its own.
    #[must_use]
    pub fn on_device(self, device: DeviceSpec) -> Self {
        if device == self.device {
            return self;
        }
        Self {
            name: format!("{} on {}", self.name, device.name),
            readahead: self.readahead_on(&device, self.page),
            device,
            ..self
        }
    }

    /// Read-ahead of this machine with another device and page: its own setting if it has one.
    pub(super) const fn readahead_on(&self, device: &DeviceSpec, page: u64) -> u64 {
        if self.readahead == self.device.read_ahead(self.page) {
            device.read_ahead(page)
        } else {
            self.readahead
        }
    }

    fn valid(self) -> Result<Self, SpecError> {
        self.validate()?;
        Ok(self)
    }

    /// Base pages that programs and the page cache can have: memory without the kernel's part.
    #[must_use]
    pub const fn pages(&self) -> u64 {
        self.memory.saturating_sub(self.kernel) / self.page
    }

    /// A machine of which only the size is known: everything else has its default.
    pub(super) fn plain(name: &str, about: &str, cpus: u32, memory: u64) -> Self {
        const PAGE: u64 = 4096;
        let device = DeviceSpec::nvme();
        Self {
            name: name.to_owned(),
            about: about.to_owned(),
            cpus,
            memory,
            page: PAGE,
            hz: 250,
            timeslice_ns: 3_000_000,
            readahead: device.read_ahead(PAGE),
            fault_around: 64 << 10,
            fault_around_young: true,
            fault_path: FaultPath::default(),
            kernel: memory / 50,
            device,
            swap: None,
            costs: Costs::default(),
        }
    }
}

fn unknown_base(given: &str) -> BadValue {
    let hint = nearest(&given.to_ascii_lowercase(), MachineSpec::names());
    BadValue {
        key: "base".into(),
        value: Some(format!("{given:?}")),
        reason: match hint {
            Some(name) => format!("no machine has this name (did you mean `{name}`?)"),
            None => "no machine has this name".into(),
        },
        write: format!(
            "one of {}, or leave it out and give `cpus` and `memory`",
            MachineSpec::names().collect::<Vec<_>>().join(", ")
        ),
    }
}

/// Whether this text was meant as a file.
fn looks_like_a_path(path: &Path) -> bool {
    path.components().count() > 1
        || path.extension().is_some_and(|extension| extension == "toml")
        || path.is_absolute()
}

/// Reads a file that a person wrote: a file longer than a mebibyte is something else.
fn read_short(path: &Path) -> io::Result<String> {
    const MOST: u64 = 1 << 20;
    let mut text = String::new();
    File::open(path)?.take(MOST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MOST {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            "it is longer than 1 MiB, so it describes no machine",
        ));
    }
    Ok(text)
}
