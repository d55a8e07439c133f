//! Files and pages with known contents, in folders that go away.
#![allow(dead_code, reason = "each test file uses some of it")]

pub(crate) mod kernel;
pub(crate) mod mapped;
pub(crate) mod scene;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A folder on a file system that takes direct I/O, removed on drop.
pub(crate) struct Dir(tempfile::TempDir);

impl Dir {
    pub(crate) fn new() -> Self {
        // The build folder is on a disk, the system's temporary folder may be in memory.
        Self(
            tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))
                .expect("a temporary folder can be made"),
        )
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

/// What a file made by [`make_file`] holds at each offset.
pub(crate) fn byte_at(offset: u64) -> u8 {
    (offset.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

/// Makes a file of `len` bytes.
pub(crate) fn make_file(dir: &Dir, bytes: u64) -> PathBuf {
    let path = dir.path().join("data");
    std::fs::write(&path, (0..bytes).map(byte_at).collect::<Vec<_>>())
        .expect("the file can be written");
    path
}

/// Bytes of a page of 4 KiB that do not compress, of this page and version alone.
pub(crate) fn noise(page: u64, version: u64) -> Vec<u8> {
    let mut state = (page << 20 | version).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..4096_u64 / 8).flat_map(next).collect()
}

/// Waits for something that another thread does. Only a hang makes it fail.
#[track_caller]
pub(crate) fn eventually(what: &str, mut happened: impl FnMut() -> bool) {
    let began = Instant::now();
    while !happened() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}: not within a minute");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A counter of the tenant alone, from its `memory.events.local`.
pub(crate) fn local_events(tenant: &lowtide::Tenant, name: &str) -> u64 {
    let text = tenant.text(lowtide::TenantFile::EventsLocal).expect("the tenant is there");
    let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("such a line");
    line.trim().parse().expect("a number")
}
