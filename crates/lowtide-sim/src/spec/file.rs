//! The grammar of a machine's file, and how it lies over a base.
//!
//! Every key is optional here, so that a file contains only what is different; which keys are
//! required is decided when the file is laid over its base. All structs refuse unknown keys: a
//! misspelt one would otherwise silently be a default.

use std::fmt;
use std::marker::PhantomData;

use lowtide_workload::nearest;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

use super::compressor::Compressor;
use super::device::DeviceSpec;
use super::error::BadValue;
use super::fault_path::FaultPath;
use super::limits;
use super::machine::{MachineSpec, SwapKind, SwapSpec};
use super::number::{Bytes, Whole};
use crate::costs::CostsFile;

/// A whole file.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MachineFile {
    base: Option<String>,
    name: Option<String>,
    about: Option<String>,
    cpus: Option<Whole>,
    memory: Option<Bytes>,
    page: Option<Bytes>,
    hz: Option<Whole>,
    timeslice_ns: Option<Whole>,
    readahead: Option<Bytes>,
    fault_around: Option<Bytes>,
    fault_around_young: Option<bool>,
    fault_path: Option<FaultPath>,
    kernel: Option<Bytes>,
    device: Option<NameOr<DeviceFile>>,
    swap: Option<NameOr<SwapFile>>,
    #[serde(default)]
    costs: CostsFile,
}

/// `[device]`.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct DeviceFile {
    base: Option<String>,
    name: Option<String>,
    queue_depth: Option<Whole>,
    read_ns: Option<Whole>,
    write_ns: Option<Whole>,
    spread: Option<f64>,
    read_bandwidth: Option<Bytes>,
    write_bandwidth: Option<Bytes>,
    seek_ns: Option<Whole>,
    flush_ns: Option<Whole>,
    synchronous: Option<bool>,
    optimal_io: Option<Bytes>,
}

/// `[swap]`.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct SwapFile {
    kind: Option<SwapKind>,
    size: Option<Bytes>,
    compressor: Option<Compressor>,
    compressed_percent: Option<Whole>,
}

/// A name, or a table that says more.
#[derive(Debug)]
enum NameOr<T> {
    Name(String),
    Table(T),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for NameOr<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Either<T> {
            type Value = NameOr<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name in quotes, or a table")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<NameOr<T>, E> {
                Ok(NameOr::Name(name.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<NameOr<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(NameOr::Table)
            }
        }

        deserializer.deserialize_any(Either(PhantomData))
    }
}

impl MachineFile {
    /// The machine that this one is described by its difference from.
    pub(super) fn base(&self) -> Option<&str> {
        self.base.as_deref()
    }

    /// The machine: what the file says, and otherwise what the base is. The values are in range;
    /// whether they fit each other is not checked yet.
    ///
    /// # Errors
    /// [`BadValue`] for a value that is out of range, and for one that is missing because there is
    /// no base.
    pub(super) fn over(
        self,
        base: Option<MachineSpec>,
        name: &str,
    ) -> Result<MachineSpec, BadValue> {
        let about = base.as_ref().map_or_else(
            || "described by a file".to_owned(),
            |base| format!("{}, but for what a file says", base.name),
        );
        let base = match base {
            Some(base) => base,
            None => self.sized(name)?,
        };
        let memory = limits::MEMORY.take(self.memory, base.memory)?;
        let page = limits::PAGE.take(self.page, base.page)?;
        let device = self
            .device
            .map_or(Ok(base.device.clone()), |device| device.over(base.device.clone()))?;
        let readahead = base.readahead_on(&device, page);
        Ok(MachineSpec {
            name: self.name.unwrap_or_else(|| name.to_owned()),
            about: self.about.unwrap_or(about),
            cpus: limits::CPUS.take(self.cpus, base.cpus)?,
            memory,
            page,
            hz: limits::HZ.take(self.hz, base.hz)?,
            timeslice_ns: limits::TIMESLICE.take(self.timeslice_ns, base.timeslice_ns)?,
            readahead: limits::READAHEAD.take(self.readahead, readahead)?,
            fault_around: limits::FAULT_AROUND.take(self.fault_around, base.fault_around)?,
            fault_around_young: self.fault_around_young.unwrap_or(base.fault_around_young),
            fault_path: self.fault_path.unwrap_or(base.fault_path),
            kernel: limits::KERNEL.take(self.kernel, share(base.kernel, base.memory, memory))?,
            device,
            swap: self.swap.map_or(Ok(base.swap.clone()), |swap| swap.over(base.swap))?,
            costs: self.costs.over(&base.costs)?,
        })
    }

    /// The machine of which only the size is known, for a file without a base.
    fn sized(&self, name: &str) -> Result<MachineSpec, BadValue> {
        const WHY: &str = "a machine without `base` has nothing to take it from";
        let cpus = self.cpus.ok_or_else(|| limits::CPUS.missing(WHY))?;
        let memory = self.memory.ok_or_else(|| limits::MEMORY.missing(WHY))?;
        Ok(MachineSpec::plain(name, "", limits::CPUS.need(cpus)?, limits::MEMORY.need(memory)?))
    }
}

/// The part of `whole` that `part` is of `of`.
fn share(part: u64, of: u64, whole: u64) -> u64 {
    let share = u128::from(part) * u128::from(whole) / u128::from(of.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}

impl NameOr<DeviceFile> {
    /// A preset, or the base (the machine's, or the one that the table names) with what the table
    /// changes.
    fn over(self, base: DeviceSpec) -> Result<DeviceSpec, BadValue> {
        let file = match self {
            Self::Name(name) => return device("device", &name),
            Self::Table(file) => file,
        };
        let base = file.base.as_deref().map_or(Ok(base), |name| device("device.base", name))?;
        let mut device = DeviceSpec {
            name: base.name.clone(),
            queue_depth: limits::QUEUE_DEPTH.take(file.queue_depth, base.queue_depth)?,
            read_ns: limits::READ.take(file.read_ns, base.read_ns)?,
            write_ns: limits::WRITE.take(file.write_ns, base.write_ns)?,
            spread: file.spread.unwrap_or(base.spread),
            read_bandwidth: limits::READ_BANDWIDTH
                .take(file.read_bandwidth, base.read_bandwidth)?,
            write_bandwidth: limits::WRITE_BANDWIDTH
                .take(file.write_bandwidth, base.write_bandwidth)?,
            seek_ns: limits::SEEK.take(file.seek_ns, base.seek_ns)?,
            flush_ns: limits::FLUSH.take(file.flush_ns, base.flush_ns)?,
            synchronous: file.synchronous.unwrap_or(base.synchronous),
            optimal_io: limits::OPTIMAL_IO.take(file.optimal_io, base.optimal_io)?,
        };
        match file.name {
            Some(name) => device.name = name,
            // A result must not call a device by the name of another.
            None if device != base => device.name = format!("{} (changed)", base.name),
            None => {}
        }
        Ok(device)
    }
}

/// The device preset of that name.
fn device(key: &str, name: &str) -> Result<DeviceSpec, BadValue> {
    DeviceSpec::preset(name).ok_or_else(|| BadValue {
        key: key.into(),
        value: Some(format!("{name:?}")),
        reason: match nearest(&name.to_ascii_lowercase(), DeviceSpec::names()) {
            Some(near) => format!("no device has this name (did you mean `{near}`?)"),
            None => "no device has this name".into(),
        },
        write: format!(
            "one of {}, or describe it in a table [device]",
            DeviceSpec::names().collect::<Vec<_>>().join(", ")
        ),
    })
}

impl NameOr<SwapFile> {
    /// None, or the base's with what the table changes.
    fn over(self, base: Option<SwapSpec>) -> Result<Option<SwapSpec>, BadValue> {
        const KINDS: &str =
            "\"none\", or a table [swap] with kind = \"zram\" or \"device\" and a size";
        let file = match self {
            Self::Name(name) if name.eq_ignore_ascii_case("none") => return Ok(None),
            Self::Name(name) => {
                return Err(BadValue {
                    key: "swap".into(),
                    value: Some(format!("{name:?}")),
                    reason: "a swap has a kind and a size".into(),
                    write: KINDS.into(),
                });
            }
            Self::Table(file) => file,
        };
        let before = base.as_ref().map(|base| (base.compressor, base.compressed_percent));
        let (compressor, percent) = match (file.compressor, before) {
            (None, Some(before)) => before,
            (given, _) => {
                let compressor = given.unwrap_or_default();
                (compressor, compressor.percent())
            }
        };
        let compressed_percent =
            limits::COMPRESSED_PERCENT.take(file.compressed_percent, percent)?;
        let (kind, size) = base.map_or((None, None), |base| (Some(base.kind), Some(base.size)));
        let kind = file.kind.or(kind).ok_or_else(|| BadValue {
            key: "swap.kind".into(),
            value: None,
            reason: "zram costs CPU and memory, a device costs time".into(),
            write: "\"zram\" or \"device\"".into(),
        })?;
        let size = match (file.size, size) {
            (Some(given), _) => limits::SWAP_SIZE.need(given)?,
            (None, Some(base)) => base,
            (None, None) => {
                return Err(
                    limits::SWAP_SIZE.missing("a swap has a size: the bytes of the pages that fit")
                );
            }
        };
        Ok(Some(SwapSpec { kind, size, compressor, compressed_percent }))
    }
}
