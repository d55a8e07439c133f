//! The plan of a comparison: impossible combinations are rejected before any file is created.
//!
//! The number of data files of a run follows from the caches in front of them. Independent caches
//! of one file must not write to it, so every system of a writing workload has its own file. For a
//! read-only workload, lowtide's pagers share one, but every mmap peer still has its own: the
//! kernel has one page cache per file, and pages that one peer faulted in would be free memory for
//! another. So has each of lowtide's maps that uses the page cache; those that serve their own page
//! faults share the file of the views, and so do direct reads, which have no cache.

use std::path::{Path, PathBuf};

use clap::Args;
use lowtide::advanced::PagerAdvanced as _;
use lowtide::map::MapMode;
use lowtide::{IoMode, Pager, PagerBuilder, Policy, Size};
use lowtide_host::probe::{Availability, Probe};
use lowtide_report::columns::Columns;
use lowtide_report::row::Row;
use lowtide_report::values::{GRAIN_BYTES, PAGE_BYTES, page};
use lowtide_report::{measured, out, rounds};
use lowtide_workload::Workload;

use super::gather::page_of_rows;
use crate::access::ViewAccess;
use crate::content::{Content, UNIT_BYTES};
use crate::datafile::{DataFile, Purpose};
use crate::error::BenchError;
use crate::machine::direct_align;
use crate::map;
use crate::options::memory::check_memory;
use crate::options::{Files, Io, MmapPeer, Output, Policies, Seed, Source};
use crate::play::gather::Rows;
use crate::play::job::{Job, Operations, Script};
use crate::play::popularity::Popularity;
use crate::thread_pool::{Until, share};

/// Default bytes per read of a scan: the kernel's default read-ahead.
const SCAN_BYTES: u64 = 128 << 10;

/// Options of all comparisons.
#[derive(Debug, Args)]
pub struct Common {
    #[command(flatten)]
    pub policies: Policies,
    /// lowtide's base page [default: 4K, or the record if possible]
    #[arg(long, value_name = "SIZE", value_parser = page, allow_hyphen_values = true)]
    pub page: Option<u64>,
    #[command(flatten)]
    pub io: Io,
    #[command(flatten)]
    pub files: Files,
    #[command(flatten)]
    pub output: Output,
    /// Also show where the time of lowtide's misses goes: lock, engine, reads. Each miss then takes
    /// some hundred nanoseconds more
    #[arg(long)]
    pub explain: bool,
}

/// Makes a row from what all rows share, the results, and those that ratios are to.
pub type RowOf<'a> = Box<dyn Fn(&measured::Common, &rounds::Turns, &rounds::Turns) -> Row + 'a>;

/// A device other than the real one. Only lowtide's own requests reach it, so it has no peers.
pub struct Device {
    /// How it differs.
    pub text: String,
    /// A pager on it.
    pub on: Box<dyn Fn(PagerBuilder) -> PagerBuilder>,
}

/// A turn of the first view after the last round, which counts nowhere.
pub trait Encore<S> {
    /// Prepares it, once the page is known and before anything is measured.
    ///
    /// # Errors
    /// Its own.
    fn prepare(&mut self, page_bytes: u64) -> Result<(), BenchError>;

    /// Plays it, and returns a line about it.
    ///
    /// # Errors
    /// Its own.
    fn play(
        self: Box<Self>,
        label: &str,
        access: ViewAccess,
        job: &Job,
        script: &S,
        until: Until,
    ) -> Result<String, BenchError>;
}

/// The plan of a comparison. Fields outside [`Common`] have defaults, which a workload replaces.
pub struct Comparison<'a, S = Operations> {
    pub common: &'a Common,
    pub workload: Workload,
    /// The budget of each system.
    pub max_bytes: u64,
    /// The size of the data.
    pub data_bytes: u64,
    /// The content of the data.
    pub content: Content,
    /// Whether the workload writes.
    pub writes: bool,
    /// lowtide's rows.
    pub policies: Vec<Policy>,
    /// Whether each policy has a second row, whose pages never stay compressed.
    pub without_zcache: bool,
    /// The rows of lowtide's maps.
    pub maps: Vec<(MapMode, Policy)>,
    /// The peers' rows; with lowtide's maps, until the plan is checked.
    pub peers: Vec<MmapPeer>,
    pub rounds: u32,
    /// The total length of all rounds of a system.
    pub until: Until,
    pub popularity: Popularity,
    /// How the rows are shown, unless as those of all comparisons.
    pub shown: Option<(Columns, RowOf<'a>)>,
    /// Lines about the run, above the table.
    pub notes: Vec<String>,
    pub threads: u32,
    pub seed: u64,
    /// Records or pages per call, if an option sets it.
    pub batch: Option<u32>,
    /// Pages from one read of a scan to the next.
    pub stride: u64,
    pub young_faults: bool,
    pub device: Option<Device>,
    /// A user's file.
    pub file: Option<PathBuf>,
    /// A turn after the last round.
    pub encore: Option<Box<dyn Encore<S>>>,
    /// lowtide's base page and the reason for it, if the workload sets it.
    pub page: Option<(u64, String)>,
    /// Whether systems are warmed up, and lowtide reads ahead: not where each access counts.
    pub is_warmed: bool,
    /// What the job of an own script has besides.
    pub own: Option<serde_json::Value>,
    /// The rows of `gather`.
    pub rows: Option<Rows>,
}

impl<'a, S: Script> Comparison<'a, S> {
    /// A comparison with defaults.
    pub fn new(
        workload: Workload,
        common: &'a Common,
        (max_bytes, data_bytes): (u64, u64),
        (rounds, until): (u32, Until),
    ) -> Self {
        let letter = workload.ycsb_letter();
        Self {
            common,
            workload,
            max_bytes,
            data_bytes,
            content: if letter.is_some() { Content::Records } else { Content::Blocks },
            writes: letter.is_some_and(|letter| letter.update_percent() > 0),
            policies: common.policies.rows(),
            without_zcache: false,
            maps: Vec::new(),
            peers: Vec::new(),
            rounds,
            until,
            popularity: Popularity::Zipf,
            shown: None,
            notes: Vec::new(),
            threads: 1,
            seed: Seed::USUAL,
            batch: None,
            stride: 1,
            young_faults: false,
            device: None,
            file: None,
            encore: None,
            page: None,
            is_warmed: true,
            own: None,
            rows: None,
        }
    }

    /// Rejects a plan that cannot run, and drops peers that cannot run on this machine.
    ///
    /// # Errors
    /// [`BenchError::Usage`], [`BenchError::Setup`], [`BenchError::NoMemory`].
    pub fn checked(mut self, probe: &Probe) -> Result<Self, BenchError> {
        let page = self.page();
        if let Some(page) = page
            && self.content.is_records()
            && self.writes
            && page < UNIT_BYTES as u64
        {
            return Err(BenchError::usage(
                format!(
                    "records of 1K cross pages of {page} bytes, so a reader could see a torn \
                     update"
                ),
                "choose --page 1K or more, or ycsb-c, which only reads",
            ));
        }
        if let Until::Ops(ops) = self.until
            && ops < u64::from(self.rounds)
        {
            return Err(BenchError::usage(
                format!("{ops} operations cannot be divided into {} rounds", self.rounds),
                "lower --rounds, or raise --ops",
            ));
        }
        self.set_maps_apart()?;
        self.leave_out_peers(probe)?;
        let systems = self.views().count() + self.maps.len() + self.peers.len();
        check_memory(0, systems, self.max_bytes, probe.memory_available)?;
        let records = self.content.is_records();
        let smallest_default = if records { UNIT_BYTES as u64 } else { PAGE_BYTES };
        // Built and dropped, to detect errors early.
        drop(self.pager(self.policies[0], true, page.unwrap_or(smallest_default))?);
        Ok(self)
    }

    /// Makes rows of lowtide's maps: for each way, one for each policy.
    ///
    /// # Errors
    /// [`BenchError::Usage`].
    fn set_maps_apart(&mut self) -> Result<(), BenchError> {
        let ways: Vec<MapMode> = self.peers.iter().filter_map(|peer| peer.way()).collect();
        self.peers.retain(|peer| peer.way().is_none());
        if self.writes && !ways.is_empty() {
            let names: Vec<_> = ways.iter().map(|&way| map::name(way)).collect();
            out::note(format_args!(
                "{} left out: a map is read-only, and {} writes",
                names.join(" and "),
                self.workload
            ));
            return Ok(());
        }
        if self.device.is_some() && ways.contains(&MapMode::PageCache) {
            refuse_slowed(&ways)?;
        }
        self.maps = ways
            .iter()
            .flat_map(|&way| self.policies.iter().map(move |&policy| (way, policy)))
            .collect();
        Ok(())
    }

    fn leave_out_peers(&mut self, probe: &Probe) -> Result<(), BenchError> {
        if self.device.is_some() {
            refuse_slowed(&self.peers)?;
            out::note("no peers: delays apply only to lowtide's own requests");
        }
        if let Availability::No(why) = &probe.memcg
            && !self.peers.is_empty()
        {
            let names: Vec<_> = self.peers.iter().map(|peer| peer.name()).collect();
            out::note(format_args!(
                "{} left out, as there is no memory cgroup to limit them: {why}",
                names.join(" and ")
            ));
            self.peers.clear();
        }
        Ok(())
    }

    /// lowtide's base page, if the workload or an option sets it.
    fn page(&self) -> Option<u64> {
        self.page.as_ref().map(|(bytes, _)| *bytes).or(self.common.page)
    }

    /// The rows of views: policies, and whether pages may stay compressed.
    pub fn views(&self) -> impl Iterator<Item = (Policy, bool)> + use<'_, 'a, S> {
        let second = if self.without_zcache { &[true, false][..] } else { &[true] };
        self.policies.iter().flat_map(move |&policy| second.iter().map(move |&z| (policy, z)))
    }

    /// A pager according to the options.
    ///
    /// # Errors
    /// [`BenchError::Setup`].
    pub fn pager(
        &self,
        policy: Policy,
        zcache: bool,
        page_bytes: u64,
    ) -> Result<Pager, BenchError> {
        self.common.io.pager(policy, self.max_bytes, page_bytes, |builder| {
            let builder = builder.young_faults(self.young_faults).zcache(zcache);
            match &self.device {
                Some(device) => (device.on)(builder),
                None => builder,
            }
        })
    }

    /// The length of round `round` of one system.
    pub fn slice(&self, round: u32) -> Until {
        match self.until {
            Until::Seconds(seconds) => Until::Seconds(seconds / f64::from(self.rounds)),
            Until::Ops(ops) => Until::Ops(share(ops, u64::from(round), u64::from(self.rounds))),
        }
    }

    /// Records or pages per call.
    pub fn batch(&self, page_bytes: u64) -> u32 {
        self.batch.unwrap_or_else(|| match self.workload {
            Workload::Scan => u32::try_from(SCAN_BYTES / page_bytes).unwrap_or(1).max(1),
            _ => 1,
        })
    }

    /// Finds or creates the data files, and returns the position of each row's file. Systems that
    /// share a file have the same position.
    ///
    /// # Errors
    /// Those of preparing files; [`BenchError::Usage`] for an unsuitable file of the user's.
    pub fn files(&mut self, source: &Source) -> Result<(Vec<DataFile>, Vec<usize>), BenchError> {
        let data_dir = match source {
            Source::Made(data_dir) => data_dir,
            Source::User(path, locking) => {
                let (file, found) = DataFile::of_user(path, *locking)?;
                self.suit(path, &file, found)?;
                self.keep_one_page_cache();
                let systems = self.views().count() + self.maps.len() + self.peers.len();
                return Ok((vec![file], vec![0; systems]));
            }
        };
        let mut next = 0;
        let mut own = || {
            next += 1;
            next - 1
        };
        let mut places = Vec::new();
        if self.writes {
            places.extend(self.views().map(|_| own()));
        } else {
            let shared = own();
            places.extend(self.views().map(|_| shared));
            places.extend(self.maps.iter().map(|(way, _)| match way {
                MapMode::PageCache => own(),
                _ => shared,
            }));
        }
        // Only a workload without writes has peers that read past the page cache.
        places.extend(self.peers.iter().map(|peer| match peer {
            MmapPeer::PreadDirect => 0,
            _ => own(),
        }));
        let count = next;
        // Updated records stay valid; the next run cannot use rewritten blocks.
        let purpose = if self.writes && self.content == Content::Blocks {
            Purpose::Scratch
        } else {
            Purpose::Lasting
        };
        Ok((data_dir.prepare(self.content, self.data_bytes, count, purpose)?, places))
    }

    /// Leaves out all systems but one of those that use the file's page cache.
    fn keep_one_page_cache(&mut self) {
        let mut kept = false;
        let mut keep = |name: &str| {
            if std::mem::replace(&mut kept, true) {
                out::note(format_args!(
                    "{name} left out: two readers of one file share its page cache; run it alone \
                     with --against {name}"
                ));
                return false;
            }
            true
        };
        self.maps.retain(|(way, _)| *way != MapMode::PageCache || keep(map::name(*way)));
        self.peers.retain(|peer| *peer == MmapPeer::PreadDirect || keep(peer.name()));
    }

    /// Uses a user's file as the data, if it is suitable.
    fn suit(&mut self, path: &Path, file: &DataFile, found: Content) -> Result<(), BenchError> {
        let name = path.display();
        if self.content.is_records() && !found.is_records() {
            return Err(BenchError::usage(
                format!("{name} does not hold records"),
                format!(
                    "{} needs a file that lowtide bench made; or choose random-read or scan",
                    self.workload
                ),
            ));
        }
        if found != self.content {
            self.content = Content::Unknown;
        }
        self.data_bytes = file.bytes() - file.bytes() % GRAIN_BYTES;
        if self.data_bytes == 0 {
            return Err(BenchError::usage(
                format!("{name} has {} bytes", file.bytes()),
                format!("give a file of at least {}", Size::new(GRAIN_BYTES)),
            ));
        }
        Ok(())
    }

    /// lowtide's base page and the reason for it, once the file is known.
    ///
    /// # Errors
    /// [`BenchError::File`].
    pub fn choose_page(&self, file: &DataFile) -> Result<(u64, String), BenchError> {
        if let Some(page) = &self.page {
            return Ok(page.clone());
        }
        let asked = self.common.page;
        if let Some(rows) = self.rows {
            let align = match self.common.io.direct {
                IoMode::Buffered => None,
                _ => direct_align(file)?,
            };
            return Ok(page_of_rows(rows.bytes, align, asked));
        }
        if !self.content.is_records() {
            return Ok((asked.unwrap_or(PAGE_BYTES), "pages of the workload".into()));
        }
        let record = UNIT_BYTES as u64;
        let aligned = direct_align(file)?.is_none_or(|align| align <= record);
        let buffered = self.common.io.direct == IoMode::Buffered;
        let page = asked.unwrap_or(if aligned || buffered { record } else { PAGE_BYTES });
        let note = match (page / record, asked) {
            (0, _) => "half a record each".into(),
            (1, _) => "one record each".into(),
            (records, None) => {
                format!("{records} records each; the device cannot read single records")
            }
            (records, Some(_)) => format!("{records} records each, none crosses a page"),
        };
        Ok((page, note))
    }
}

/// Rejects peers together with an artificially slow device.
///
/// # Errors
/// [`BenchError::Usage`].
pub fn refuse_slowed<P>(peers: &[P]) -> Result<(), BenchError> {
    if peers.is_empty() {
        return Ok(());
    }
    Err(BenchError::usage(
        "delays apply only to lowtide's own requests, so a comparison with peers means nothing",
        "omit --against, or omit --device-delay and --device-bandwidth",
    ))
}
