//! Programs whose threads read files through mappings, on real memory: lowtide's maps in this
//! process, and the kernel's mappings in a child that is in a memory cgroup.
//!
//! Each system has files of its own, so none finds in the page cache what another has read.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::bench::options::counted;
use lowtide::map::MapMode;
use lowtide::{Pager, Policy, Size, Tenant};
use lowtide_bench::access::{AccessError, DataAccess};
use lowtide_bench::datafile::{DataDir, Scratch};
use lowtide_bench::error::BenchError;
use lowtide_bench::map::{self, MapAccess};
use lowtide_bench::system::System;
use lowtide_bench::thread_pool::{ThreadPool, Until};
use lowtide_report::tally::Slice;
use serde::{Deserialize, Serialize};

use super::blocks::Blocks;
use super::peer::mapped::MappedPeer;
use super::storm::Storm;

/// Bytes of a page.
pub(crate) const PAGE: u64 = 4096;

/// A program, and the files that it maps.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Mapped {
    /// `mmap-thrash`.
    Storm(Storm),
    /// `fio-mmap`.
    Blocks(Blocks),
}

impl Mapped {
    /// Bytes of each file.
    pub(crate) const fn bytes(&self) -> u64 {
        match self {
            Self::Storm(storm) => storm.bytes(),
            Self::Blocks(blocks) => blocks.bytes(),
        }
    }

    /// Starts the threads. `map` maps a file, which is unmapped when its access is dropped.
    ///
    /// # Errors
    /// Those of [`ThreadPool::start`]; that a file cannot be mapped.
    pub(crate) fn start<D, M>(&self, map: M) -> Result<ThreadPool, BenchError>
    where
        D: DataAccess + Send + 'static,
        M: Fn(&Path) -> Result<D, AccessError> + Clone + Send + 'static,
    {
        match self {
            Self::Storm(storm) => storm.start(map),
            Self::Blocks(blocks) => blocks.start(map),
        }
    }
}

/// A program whose files are there; they are removed on drop.
#[derive(Debug)]
pub(crate) struct Made {
    /// What is played on them.
    pub(crate) program: Mapped,
    files: Vec<Scratch>,
}

impl Made {
    /// Makes the files of a program, one for each thread, and the program from their paths.
    /// `write` gives a file its contents; it gets its number.
    ///
    /// # Errors
    /// Those of [`DataDir::scratch`]; [`BenchError::File`].
    pub(crate) fn with_files(
        (dir, names, threads): (&DataDir, &str, u32),
        write: impl Fn(&File, u64) -> io::Result<()>,
        program: impl FnOnce(Vec<PathBuf>) -> Mapped,
    ) -> Result<Self, BenchError> {
        let mut files = Vec::new();
        for number in 0..u64::from(threads) {
            let scratch = dir.scratch(&format!("{names}-{number}"))?;
            write(scratch.file(), number)
                .map_err(|source| BenchError::file("write", scratch.path(), source))?;
            files.push(scratch);
        }
        let paths = files.iter().map(|scratch| scratch.path().to_owned()).collect();
        Ok(Self { program: program(paths), files })
    }
}

/// The limits of the program's group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) max: u64,
    /// `high`, if there is one.
    pub(crate) high: Option<u64>,
}

/// lowtide in this process: a tenant with the limits of the group.
pub(crate) struct LowtideMaps {
    way: MapMode,
    policy: Policy,
    pager: Pager,
    /// Ends before the files go.
    pool: ThreadPool,
    _made: Made,
}

impl LowtideMaps {
    /// The name of its rows.
    pub(crate) const fn name_of(way: MapMode) -> &'static str {
        map::name(way)
    }

    /// Starts the threads, if the files can be mapped in this way.
    ///
    /// # Errors
    /// [`BenchError::Map`] if not; those of [`Mapped::start`]; [`BenchError::Tenant`].
    pub(crate) fn start(
        (pager, policy): (Pager, Policy),
        way: MapMode,
        made: Made,
        limits: Limits,
    ) -> Result<Self, BenchError> {
        let mut tenant = pager.tenant("mapped").max(Size::new(limits.max));
        if let Some(high) = limits.high {
            tenant = tenant.high(Size::new(high));
        }
        let tenant: Arc<Tenant> = Arc::new(tenant.create()?);
        if let Some(first) = made.files.first() {
            drop(map::of_tenant(&tenant, way, first.file())?);
        }
        let open = move |path: &Path| -> Result<MapAccess, AccessError> {
            let file = File::open(path)?;
            let map = map::of_tenant(&tenant, way, &file).map_err(io::Error::from)?;
            Ok(MapAccess::new(map))
        };
        Ok(Self { way, policy, pager, pool: made.program.start(open)?, _made: made })
    }
}

impl System for LowtideMaps {
    fn name(&self) -> &'static str {
        Self::name_of(self.way)
    }

    fn policy(&self) -> Option<String> {
        Some(self.policy.to_string())
    }

    fn run(&mut self, until: Until) -> Result<Slice, BenchError> {
        counted(&mut self.pool, &self.pager, until)
    }
}

/// The kernel's mapping, in a child.
pub(crate) struct KernelMaps {
    /// The name of its row.
    pub(crate) name: &'static str,
    pub(crate) peer: MappedPeer,
    /// What it plays, and on what.
    pub(crate) made: Made,
}

impl System for KernelMaps {
    fn name(&self) -> &'static str {
        self.name
    }

    fn run(&mut self, until: Until) -> Result<Slice, BenchError> {
        self.peer.play(&self.made.program, until)
    }
}
