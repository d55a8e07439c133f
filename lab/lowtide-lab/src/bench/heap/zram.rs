//! Swap of the kernel on compressed memory: a zram device, set up and taken away.
//!
//! The device is new, and is swap with the highest priority, so that nothing else of the machine's
//! changes. Pages in it are counted in no memory cgroup. Source: the kernel's
//! `Documentation/admin-guide/blockdev/zram.rst`, swapon(8).

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fs, io};

use lowtide_bench::error::BenchError;
use lowtide_report::out;

/// Adding and removing of devices.
const CONTROL: &str = "/sys/class/zram-control";
/// Above what administrators give their own swap.
const PRIORITY: &str = "32767";

/// A device that is swap. Dropping it swaps everything in, and removes it.
#[derive(Debug)]
pub(crate) struct Zram {
    number: u32,
    is_swap: bool,
}

impl Zram {
    /// Makes a device that holds `bytes` of pages, as they were, and begins to swap to it.
    ///
    /// # Errors
    /// [`BenchError::Peer`] when the kernel has no zram, or the permission is missing.
    pub(crate) fn start(bytes: u64) -> Result<Self, BenchError> {
        let failed = |what: &str| {
            let what = what.to_owned();
            move |error: io::Error| BenchError::Peer {
                peer: "zram",
                what: format!("{what}: {error}"),
            }
        };
        let number = fs::read_to_string(format!("{CONTROL}/hot_add"))
            .and_then(|text| text.trim().parse().map_err(io::Error::other))
            .map_err(failed("cannot add a zram device (that takes root)"))?;
        let mut zram = Self { number, is_swap: false };
        // A header, and what is rounded.
        let size = bytes + (1 << 20);
        fs::write(zram.sys("disksize"), size.to_string()).map_err(failed("cannot set its size"))?;
        let device = zram.device();
        run(Command::new("mkswap").arg(&device)).map_err(failed("mkswap failed"))?;
        run(Command::new("swapon").args(["-p", PRIORITY]).arg(&device))
            .map_err(failed("swapon failed"))?;
        zram.is_swap = true;
        Ok(zram)
    }

    fn sys(&self, file: &str) -> PathBuf {
        Path::new("/sys/block").join(format!("zram{}", self.number)).join(file)
    }

    fn device(&self) -> PathBuf {
        PathBuf::from(format!("/dev/zram{}", self.number))
    }

    /// Bytes that its pages were, and bytes of memory that they take, from `mm_stat`; zeroes if the
    /// kernel does not say.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        let text = fs::read_to_string(self.sys("mm_stat")).unwrap_or_default();
        let mut fields = text.split_whitespace().map(|field| field.parse().unwrap_or(0));
        (fields.next().unwrap_or(0), fields.nth(1).unwrap_or(0))
    }

    /// The algorithm that it compresses with, from `comp_algorithm`.
    pub(crate) fn algorithm(&self) -> String {
        let text = fs::read_to_string(self.sys("comp_algorithm")).unwrap_or_default();
        let chosen = text.split_whitespace().find(|word| word.starts_with('['));
        chosen.unwrap_or("[unknown]").trim_matches(['[', ']']).to_owned()
    }
}

impl Drop for Zram {
    fn drop(&mut self) {
        let mut left = false;
        if self.is_swap {
            left |= run(Command::new("swapoff").arg(self.device())).is_err();
        }
        left |= fs::write(self.sys("reset"), "1").is_err();
        left |= fs::write(format!("{CONTROL}/hot_remove"), self.number.to_string()).is_err();
        if left {
            let device = self.device();
            out::note(format_args!(
                "{} could not be removed; `swapoff {0}` and `echo {} > {CONTROL}/hot_remove` do",
                device.display(),
                self.number
            ));
        }
    }
}

/// Runs a program to its end; its output is the error's text.
fn run(command: &mut Command) -> io::Result<()> {
    let done = command.stdin(Stdio::null()).stdout(Stdio::null()).output()?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    Err(io::Error::other(said.lines().next().unwrap_or("no message").to_owned()))
}
