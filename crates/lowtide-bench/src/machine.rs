//! The machine of a measurement, which is part of every result: without it the numbers mean
//! nothing.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;

use lowtide::{Pager, Size};
use lowtide_host::file as facts;
use lowtide_host::probe::Probe;
use serde::Serialize;

use super::datafile::DataFile;
use super::error::BenchError;

/// The machine as described in results. The names are part of the JSON interface.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// When the run began, in UTC, as in `2026-11-22T15:30:00Z`.
    date: String,
    /// Release and architecture.
    kernel: String,
    /// Number of processors that the run may use.
    cpus: usize,
    /// The processors' model name.
    cpu_model: String,
    /// Memory of the machine.
    memory_total_bytes: u64,
    /// Memory available when the run began.
    memory_available_bytes: u64,
    /// The kernel's setting of transparent huge pages.
    transparent_hugepage: String,
    /// File system of the data.
    file_system: String,
    /// Alignment of direct I/O on the data; absent if it is unavailable.
    #[serde(skip_serializing_if = "Option::is_none")]
    direct_align_bytes: Option<u64>,
    /// Largest read-ahead of a default mapping; absent if the kernel does not report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    read_ahead_kib: Option<u64>,
    /// How the runtime does I/O, in its own words.
    io: String,
}

impl Machine {
    /// Queries the machine; all pagers of a run are built like `pager`.
    ///
    /// # Errors
    /// [`BenchError::File`] when the alignment of direct I/O cannot be queried.
    pub fn ask(probe: &Probe, file: &DataFile, pager: &Pager) -> Result<Self, BenchError> {
        Self::of(probe, file.path(), file.file(), pager)
    }

    /// Queries the device of an open file.
    ///
    /// # Errors
    /// As [`Machine::ask`].
    pub fn of(probe: &Probe, path: &Path, file: &File, pager: &Pager) -> Result<Self, BenchError> {
        Ok(Self {
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            kernel: probe.kernel.clone(),
            cpus: probe.cpus,
            cpu_model: probe.cpu_model.clone(),
            memory_total_bytes: probe.memory_total,
            memory_available_bytes: probe.memory_available,
            transparent_hugepage: probe.thp.clone(),
            file_system: facts::fs_name(path).unwrap_or_else(|_| "unknown".into()),
            direct_align_bytes: align_of(path, file)?,
            read_ahead_kib: read_ahead_kib(file),
            io: report(pager),
        })
    }

    /// The lines above a table.
    pub fn lines(&self, file: &DataFile) -> Vec<String> {
        self.lines_of(file.path(), file.bytes())
    }

    /// The same for a file of `bytes` bytes that need not exist yet.
    pub fn lines_of(&self, path: &Path, bytes: u64) -> Vec<String> {
        let direct = self.direct_align_bytes.map_or("no direct I/O".to_owned(), |bytes| {
            format!("direct I/O in multiples of {bytes} B")
        });
        let ahead = self
            .read_ahead_kib
            .map_or(String::new(), |kib| format!("; kernel read-ahead {kib} KiB"));
        let memory = match self.file_system.as_str() {
            "tmpfs" | "ramfs" => " (that is memory: there is no device to measure)",
            _ => "",
        };
        let place = path.parent().unwrap_or(Path::new("."));
        vec![
            format!(
                "machine   {} x {}, {:.1} GiB of memory, Linux {}",
                self.cpus,
                self.cpu_model,
                gib(self.memory_total_bytes),
                self.kernel
            ),
            format!(
                "data      {} on {}{memory} in {}; {direct}{ahead}",
                Size::new(bytes),
                self.file_system,
                place.display()
            ),
            format!("io        {}", self.io),
        ]
    }
}

/// Alignment of direct I/O on the file, in bytes; `None` if it is unavailable.
///
/// # Errors
/// [`BenchError::File`].
pub fn direct_align(file: &DataFile) -> Result<Option<u64>, BenchError> {
    align_of(file.path(), file.file())
}

fn align_of(path: &Path, file: &File) -> Result<Option<u64>, BenchError> {
    let align = lowtide_sys::file::direct_alignment(file)
        .map_err(|source| BenchError::file("examine", path, source))?;
    Ok(align.map(|align| align.offset.max(align.memory) as u64))
}

/// The read-ahead window of the file's device (`/sys/class/bdi`), which determines the cost of a
/// default mapping.
fn read_ahead_kib(file: &File) -> Option<u64> {
    let device = file.metadata().ok()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    std::fs::read_to_string(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"))
        .ok()?
        .trim()
        .parse()
        .ok()
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

/// How the runtime does I/O, in its own words.
fn report(pager: &Pager) -> String {
    let report = pager.report();
    let lines = report.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("; ")
}
