//! dd as a peer: direct writes of one mebibyte, one after the other, and one `fdatasync` at the
//! end.
//!
//! Its own clock excludes process start and includes the flush.

use std::process::Command;

use lowtide_bench::error::BenchError;
use lowtide_host::usage::CpuTime;
use lowtide_report::tally::{Slice, WriteBack};

use super::program;
use crate::bench::write::Fill;

const NAME: &str = "dd";

/// An installed dd.
#[derive(Clone, Debug)]
pub(crate) struct Dd {
    version: String,
}

impl Dd {
    /// Looks for dd on the path.
    pub(crate) fn find() -> Option<Self> {
        program::version(NAME).map(|version| Self { version })
    }

    /// Fills one file.
    ///
    /// # Errors
    /// [`BenchError::Peer`], [`BenchError::Interrupted`].
    pub(crate) fn fill(&self, fill: &Fill) -> Result<Slice, BenchError> {
        let error = |what: String| BenchError::Peer {
            peer: NAME,
            what: format!("({}) {what}", self.version),
        };
        let (mut from, mut to) = (std::ffi::OsString::from("if="), std::ffi::OsString::from("of="));
        from.push(&fill.source);
        to.push(&fill.path);
        let cpu = CpuTime::now_children();
        let mut command = Command::new(NAME);
        command.args([&from, &to]).args([
            "bs=1M",
            "iflag=fullblock",
            "oflag=direct",
            "conv=fdatasync",
        ]);
        let said = program::run(command.env("LC_ALL", "C"), NAME, error)?;
        let (bytes, seconds) = parse(&said.err)
            .ok_or_else(|| error(format!("prints what cannot be read: {}", said.err.trim())))?;
        let pieces = bytes.div_ceil(1 << 20);
        Ok(Slice {
            seconds,
            ops: pieces,
            write_bytes: bytes,
            write_back: WriteBack { requests: Some(pieces), ..WriteBack::default() },
            cpu_seconds: CpuTime::now_children().since(cpu).seconds(),
            ..Slice::default()
        })
    }
}

/// Bytes and seconds of `1048576 bytes (1.0 MB, 1.0 MiB) copied, 0.00123 s, 853 MB/s`.
fn parse(text: &str) -> Option<(u64, f64)> {
    let line = text.lines().find(|line| line.contains(" copied, "))?;
    let bytes = line.split_whitespace().next()?.parse().ok()?;
    let seconds = line.split_once(" copied, ")?.1.split_whitespace().next()?.parse().ok()?;
    Some((bytes, seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_last_line_is_understood() {
        let text = "8+0 records in\n8+0 records out\n8388608 bytes (8.4 MB, 8.0 MiB) copied, \
            0.0125 s, 671 MB/s\n";
        assert_eq!(parse(text), Some((8_388_608, 0.0125)));
        assert_eq!(parse("1048576 bytes copied, 2e-03 s, 1 GB/s"), Some((1 << 20, 0.002)));
        assert_eq!(parse("dd: failed to open"), None);
    }
}
