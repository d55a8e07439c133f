//! The machine that this runs on, as far as it can be queried: CPUs and memory. Its device is not
//! known, and taken to be an NVMe disk.
//!
//! This is the one description that is not the same everywhere; results contain what was found.

use std::{fs, io, thread};

use super::error::SpecError;
use super::machine::MachineSpec;

const MEMINFO: &str = "/proc/meminfo";

/// Reads the CPUs that this process may use, and `MemTotal`, which does not include the kernel's
/// own image.
///
/// # Errors
/// [`SpecError::This`].
pub(super) fn query() -> Result<MachineSpec, SpecError> {
    let cpus = thread::available_parallelism()
        .map_err(|source| SpecError::This { what: "the number of its CPUs", source })?;
    let memory = fs::read_to_string(MEMINFO)
        .and_then(|text| {
            mem_total(&text).ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidData, "it has no line `MemTotal`")
            })
        })
        .map_err(|source| SpecError::This { what: MEMINFO, source })?;
    // More CPUs than a u32 counts are refused with all others that are too many.
    let cpus = u32::try_from(cpus.get()).unwrap_or(u32::MAX);
    Ok(MachineSpec::plain(
        MachineSpec::THIS,
        "the machine that this runs on, with an NVMe disk",
        cpus,
        memory,
    ))
}

/// `MemTotal` in bytes (proc_meminfo(5)).
fn mem_total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_read_from_its_line() {
        assert_eq!(mem_total("MemTotal:       16384 kB\nMemFree: 1 kB\n"), Some(16 << 20));
        assert_eq!(mem_total("MemFree: 1 kB\n"), None);
        assert_eq!(mem_total("MemTotal: many kB\n"), None);
        assert_eq!(mem_total("MemTotal: 18446744073709551615 kB\n"), None);
    }
}
