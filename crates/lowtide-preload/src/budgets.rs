//! The budgets of this process: a pager with a tenant for the common budget, and one for each glob.
//! Where processes share the budgets (`lowtide-run/shares.rs`), the limits of the tenants are this
//! process's parts.
//!
//! One pager has one thread that watches all mappings (`lowtide::map`), whatever tenant pays. It is
//! built when the first mapping is adopted, by the keeper's thread, so that its threads have the
//! keeper's descriptors and signal mask.

use crate::judge::Reason;
use crate::mirrors::{self, Mirrored};
use crate::modes::Why;
use lowtide::budget::{AutoLimits, Curve, Share};
use lowtide::map::run::{Mapped, Reads, open_page_tables, share_files};
use lowtide::map::{Adopted, MapOptions};
use lowtide::{IoEngine, IoMode, IoStat, MemoryStat, Pager, PagerBuilder, Policy, Size, Tenant};
use lowtide_run::part::{Part, Seen, pause};
use lowtide_run::settings::{Auto, Settings};
use lowtide_run::shares::Shares;
use lowtide_status::PagerStatus;
use lowtide_sys::page_cache::{CacheStat, cached_pages, cachestat};
use rustix::fs::{Mode, OFlags, fstat, open};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::error::Error;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Files whose mappings are gone, but whose pages stay within the budget for a moment: the program
/// may map them again.
const LINGERING: usize = 64;
/// How long. The file is open meanwhile, and its file system cannot be unmounted.
const LINGERS: Duration = Duration::from_secs(1);
/// Of the time that counting cached pages takes, the time between two counts is this multiple.
const COUNT_SELDOM: u32 = 50;
const COUNT_LEAST: Duration = Duration::from_millis(100);
const COUNT_MOST: Duration = Duration::from_secs(2);
/// Time between two lists of warm pages: most servers are ended by a signal.
const SAVED: Duration = Duration::from_secs(60);
/// Bytes that decide about the way of a mapping of which little is in memory.
const CHANGE_LEAST: u64 = 256 << 10;
const CHANGE_MOST: u64 = 64 << 20;
/// Parts of a budget that is divided among files.
const PARTS: usize = 64;
/// What a process wants at least beyond its limit, if that sets itself.
const AUTO_ROOM: u64 = 16 << 20;

/// A mapping, or a part of one, that is kept within a budget.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    /// The keeper's own descriptor of the file.
    pub(crate) file: Rc<OwnedFd>,
    /// It is an open file of the keeper's alone, not a duplicate of the program's descriptor, with
    /// which the locks of that would last (`flock(2)`).
    pub(crate) is_own: bool,
    /// Addresses, whole pages.
    pub(crate) range: Range<usize>,
    /// Where in the file the first page is.
    pub(crate) offset: u64,
    /// It is mapped privately.
    pub(crate) is_private: bool,
    /// Which budget: the common one is 0, that of a glob its number and one.
    pub(crate) budget: usize,
}

impl Subject {
    /// What the program has mapped, which it gets back from a mirror.
    pub(crate) fn mapped(&self) -> Mapped<'_> {
        Mapped { file: self.file.as_fd(), offset: self.offset, is_private: self.is_private }
    }
}

/// What is counted: the cached pages of a file, or the memory of a mirror.
pub(crate) type Counted<'a> = (&'a Subject, Option<&'a Mirrored>);

/// A mapping in `pagecache` mode. Parts of one mapping have it together.
pub(crate) type Watched = Rc<Adopted>;

/// What a budget did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Figures {
    /// The budget.
    pub(crate) max_bytes: u64,
    /// Pages of the files that are in the page cache, or in mirrors, now.
    pub(crate) resident_bytes: u64,
    /// The most that a count found, and what of that was to be written first.
    pub(crate) peak_bytes: u64,
    pub(crate) peak_dirty_bytes: u64,
    /// What this process may have now: its part of the budget.
    pub(crate) part_bytes: u64,
    /// Pages that were seen to come in, of which a part is a refault.
    pub(crate) faults: u64,
    /// Pages that came in again after they had been evicted for the budget.
    pub(crate) refaults: u64,
    /// Pages that were evicted.
    pub(crate) evicted: u64,
    /// What became of a budget that sets itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) auto: Option<AutoFigures>,
}

/// Sizes of a budget that sets itself, over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct AutoFigures {
    /// Now.
    pub(crate) limit_bytes: u64,
    pub(crate) mean_bytes: u64,
    pub(crate) least_bytes: u64,
    pub(crate) most_bytes: u64,
    /// What was used of it.
    pub(crate) mean_usage_bytes: u64,
    /// What threads waited for pages that it had dropped; in `pagecache` mode 100 for each.
    pub(crate) waited_us: u64,
}

impl AutoFigures {
    pub(crate) fn of(tenant: &Tenant) -> Option<Self> {
        let stat = tenant.auto().ok()??;
        Some(Self {
            limit_bytes: stat.limit_bytes,
            mean_bytes: stat.mean_bytes,
            least_bytes: stat.least_bytes,
            most_bytes: stat.most_bytes,
            mean_usage_bytes: stat.mean_usage_bytes,
            waited_us: u64::try_from(stat.waited.as_micros()).unwrap_or(u64::MAX),
        })
    }
}

/// All budgets.
pub(crate) struct Budgets {
    settings: &'static Settings,
    pager: Pager,
    tenants: BTreeMap<usize, Account>,
    lingering: VecDeque<(Instant, Watched, Subject)>,
    /// The first reason for which the runtime refused a mapping.
    refusal: Option<String>,
    due: Instant,
    /// From when on another count, before pages go, costs little of the time.
    may_count: Instant,
    /// What other processes have.
    shares: Option<Shares>,
    /// How many processes there are, this one with them.
    sharing: usize,
    /// When that is looked at.
    divided: Instant,
    /// The list of warm pages, and when it is saved next.
    warm: Option<(&'static Path, Instant)>,
}

/// Bytes of files.
#[derive(Clone, Copy, Default)]
struct InMemory {
    all: u64,
    /// Those that the device does not have yet.
    dirty: u64,
}

struct Account {
    tenant: Tenant,
    /// The numbers of the parts of files, by device and inode, where each has one.
    files: BTreeMap<(u64, u64), usize>,
    peak: InMemory,
    /// What this process may have of the budget.
    part: Part,
}

impl Budgets {
    /// Builds the pager.
    ///
    /// # Errors
    /// The pager's.
    pub(crate) fn new(settings: &'static Settings) -> Result<Self, Box<dyn Error>> {
        let globs = settings.maps.iter().map(|(_, bytes)| *bytes);
        let whole = globs.fold(settings.max, u64::saturating_add);
        let builder = Pager::builder().max(Size::new(whole));
        let mut builder = if settings.mode.mirrors() {
            // What is read for a mirror is nowhere else in memory.
            builder.direct(IoMode::Direct)
        } else {
            // The kernel reads the pages: no ring and no descriptor is needed for it.
            builder.io_engine(IoEngine::Psync)
        };
        if let Some(policy) = &settings.policy {
            builder = builder.policy(policy.parse::<Policy>()?);
        }
        let warm = settings.warm.as_deref().filter(|_| settings.is_first());
        let pager = warm.into_iter().fold(builder, PagerBuilder::warm).build()?;
        let recorded = settings.record.as_ref().map(|path| record(&pager, path, settings.pid));
        let unrecorded = recorded.and_then(Result::err);
        let (tenants, lingering) = (BTreeMap::new(), VecDeque::new());
        let shares = settings.shared.as_deref().map(Shares::open);
        let refusal = shares.as_ref().and_then(|opened| {
            let error = opened.as_ref().err()?;
            Some(format!("the budget is not shared with other processes: {error}"))
        });
        let refusal = refusal.or(unrecorded.map(|error| format!("nothing is recorded: {error}")));
        let refusal = refusal.or(pager.warm_stat().error);
        let (shares, now) = (shares.and_then(Result::ok), Instant::now());
        if let Some(shares) = &shares {
            let files = Arc::clone(shares.files());
            share_files(&pager, Arc::new(move |file, own| files.exchange(file, own)));
        }
        Ok(Self {
            settings,
            pager,
            tenants,
            lingering,
            refusal,
            due: now,
            may_count: now,
            shares,
            sharing: 1,
            divided: now,
            warm: warm.map(|path| (path, now + SAVED)),
        })
    }

    /// Opens what the process may not open any more when it has given rights up. The table of
    /// shares is open.
    pub(crate) fn prepare(&mut self) {
        if let Err(error) = open_page_tables(&self.pager) {
            self.refusal.get_or_insert_with(|| error.to_string());
        }
    }

    /// Bytes of a budget.
    fn max_of(settings: &Settings, budget: usize) -> u64 {
        let glob = budget.checked_sub(1).and_then(|glob| settings.maps.get(glob));
        glob.map_or(settings.max, |(_, max)| *max)
    }

    fn account(&mut self, budget: usize) -> Result<&mut Account, Box<dyn Error>> {
        if !self.tenants.contains_key(&budget) {
            let max = Self::max_of(self.settings, budget);
            let high = self.settings.high.filter(|_| budget == 0).map_or(Size::MAX, Size::new);
            let name = format!("run-{budget}");
            let part = match &mut self.shares {
                Some(shares) => {
                    if let Err(error) = shares.join(budget) {
                        let says = || format!("this process has the least part: {error}");
                        self.refusal.get_or_insert_with(says);
                    }
                    Part::first(budget, max, shares)
                }
                None => Part::whole(budget, max),
            };
            let bytes = part.bytes();
            let tenant = self.pager.tenant(&name).max(Size::new(bytes)).high(high).create()?;
            if self.settings.by_benefit {
                tenant.set_share(Share::ByBenefit)?;
            }
            if let Some(auto) = self.settings.auto.filter(|_| budget == 0) {
                tenant.set_auto(bounds(auto, bytes))?;
            }
            let account =
                Account { tenant, files: BTreeMap::new(), peak: InMemory::default(), part };
            self.tenants.insert(budget, account);
        }
        Ok(self.tenants.get_mut(&budget).ok_or("no such budget")?)
    }

    /// Who pays for a file.
    fn payer(&mut self, subject: &Subject) -> Result<Tenant, Box<dyn Error>> {
        let by_benefit = self.settings.by_benefit;
        let account = self.account(subject.budget)?;
        if !by_benefit {
            return Ok(account.tenant.clone());
        }
        let stat = fstat(&*subject.file)?;
        let known = account.files.len();
        // Many small files have a part together.
        let number = *account
            .files
            .entry((stat.st_dev, stat.st_ino))
            .or_insert_with(|| known.min(PARTS - 1));
        let name = format!("file-{number}");
        let found = account.tenant.children()?.into_iter();
        let mut named = found.filter(|child| child.name().is_ok_and(|own| *own == *name));
        match named.next() {
            Some(child) => Ok(child),
            None => Ok(account.tenant.child(&name).create()?),
        }
    }

    /// Keeps a mapping in `pagecache` mode from now on.
    pub(crate) fn watched(&mut self, subject: &Subject) -> Result<Watched, Reason> {
        self.try_watched(subject).map_err(|error| {
            self.refusal.get_or_insert_with(|| error.to_string());
            Reason::Refused
        })
    }

    #[expect(unsafe_code, reason = "the program's mapping is handed to the watcher")]
    fn try_watched(&mut self, subject: &Subject) -> Result<Watched, Box<dyn Error>> {
        let payer = self.payer(subject)?;
        let keep = self.settings.keep_read_ahead;
        let options = MapOptions::new().tenant(&payer).offset(subject.offset);
        let options = options.keep_kernel_read_ahead(keep);
        let start = subject.range.start as *const u8;
        // SAFETY: the program has just made this mapping of this file, shared, or private and not
        // writable. Before it changes what is there, `Adopted::forget` is called: `interpose.rs`
        // waits for that.
        let adopted =
            unsafe { options.adopt(&self.pager, subject.file.as_fd(), start, subject.range.len()) };
        Ok(Rc::new(adopted?))
    }

    /// Keeps what is read of a file within its budget from now on.
    pub(crate) fn reads(&mut self, subject: &Subject) -> Result<Reads, Reason> {
        let mut reads = || -> Result<Reads, Box<dyn Error>> {
            let payer = self.payer(subject)?;
            let keep = self.settings.keep_read_ahead;
            let options = MapOptions::new().tenant(&payer).keep_kernel_read_ahead(keep);
            Ok(options.adopt_reads(&self.pager, subject.file.as_fd())?)
        };
        reads().map_err(|error| {
            self.refusal.get_or_insert_with(|| error.to_string());
            Reason::Refused
        })
    }

    /// Puts a mirror in the place of a mapping, and keeps that within its budget. Its file does not
    /// change: the caller has a lease on it.
    pub(crate) fn mirror(&mut self, subject: &Subject) -> Result<Mirrored, Why> {
        let read_ahead = self.settings.keep_read_ahead;
        let payer = self.payer(subject).map_err(|_| Why::Resources)?;
        let mut options = MapOptions::new().tenant(&payer).offset(subject.offset);
        options = options.on_error(|error| mirrors::complain(error));
        if read_ahead {
            options = options.read_ahead(0);
        }
        mirrors::begin(&options, &self.pager, subject).map_err(|(why, error)| {
            self.refusal.get_or_insert_with(|| error.to_string());
            why
        })
    }

    /// Whether other processes have parts of these budgets, too.
    pub(crate) const fn are_shared(&self) -> bool {
        self.sharing > 1
    }

    /// Pages that a mapping which changes its way costs a budget: what it has in memory, but for
    /// what is read again anyway, and what a moment's use says nothing of.
    pub(crate) fn cost_of_change(&self, budget: usize) -> u64 {
        let Some(Account { tenant, part, .. }) = self.tenants.get(&budget) else { return u64::MAX };
        let least = (part.bytes() / 8).clamp(CHANGE_LEAST, CHANGE_MOST);
        let has = tenant.usage().unwrap_or_default();
        (has / 4).max(least) / rustix::param::page_size() as u64
    }

    /// What was transferred so far, for all budgets together.
    pub(crate) fn io(&self) -> IoStat {
        self.pager.stat().io
    }

    /// All of it, for other processes.
    pub(crate) fn status(&self) -> PagerStatus {
        self.pager.status()
    }

    /// Why the runtime refused a mapping, the first time that it did.
    pub(crate) fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// No part of the mapping is left. Its pages stay for a moment, unless the file is deleted, or
    /// open only because of the program's descriptor.
    pub(crate) fn linger(&mut self, watched: Watched, subject: Subject) {
        if !subject.is_own {
            return;
        }
        self.lingering.push_back((Instant::now(), watched, subject));
        if self.lingering.len() > LINGERING {
            self.lingering.pop_front();
        }
        self.let_deleted_files_go();
    }

    fn let_deleted_files_go(&mut self) {
        let has_name = |subject: &Subject| fstat(&*subject.file).is_ok_and(|s| s.st_nlink > 0);
        self.lingering.retain(|(_, _, subject)| has_name(subject));
    }

    /// Divides the budgets with other processes. `mapped` is what this one has mapped of files, by
    /// budget.
    fn divide(&mut self, mapped: &BTreeMap<usize, u64>) {
        let Some(shares) = &mut self.shares else { return };
        shares.follow();
        let mut most = 1;
        for (budget, Account { tenant, part, .. }) in &mut self.tenants {
            let Ok(stat) = tenant.stat() else { continue };
            let has = tenant.usage().unwrap_or_default();
            let mapped = mapped.get(budget).copied().unwrap_or_default();
            let auto = self.settings.auto.filter(|_| *budget == 0);
            // Room to grow until the next look.
            let limit = tenant.auto().ok().flatten().map(|stat| stat.limit_bytes);
            let could_use = limit.map_or(mapped, |limit| mapped.min(2 * limit + AUTO_ROOM));
            let seen = Seen { faults: stat.events.pgfault, has, could_use };
            let sharing = part.look(shares, seen, |bytes| match auto {
                Some(auto) => tenant.set_auto(bounds(auto, bytes)).is_ok(),
                None => tenant.set_max(Size::new(bytes)).is_ok(),
            });
            most = most.max(sharing);
        }
        (self.sharing, self.divided) = (most, Instant::now() + pause(most));
    }

    /// The process ends.
    pub(crate) fn leave(&self) {
        if let Some(shares) = &self.shares {
            shares.leave();
        }
    }

    /// Looks how much is in memory, now and then, and what other processes have; the time until the
    /// next look.
    pub(crate) fn tick<'a>(
        &mut self,
        files: impl Iterator<Item = Counted<'a>> + Clone,
    ) -> Duration {
        let now = Instant::now();
        if self.shares.is_some() && now >= self.divided {
            let mut mapped: BTreeMap<usize, u64> = BTreeMap::new();
            for (subject, _) in files.clone() {
                *mapped.entry(subject.budget).or_default() += subject.range.len() as u64;
            }
            self.divide(&mapped);
        }
        let is_over = |(since, ..): &(Instant, _, _)| now.duration_since(*since) >= LINGERS;
        while self.lingering.front().is_some_and(is_over) {
            self.lingering.pop_front();
        }
        if now >= self.due {
            self.let_deleted_files_go();
            self.count(files);
        }
        self.save_warm(false);
        let until = self.lingering.front().map_or(self.due, |(since, ..)| *since + LINGERS);
        let divided = self.shares.as_ref().map_or(self.due, |_| self.divided);
        self.due.min(until).min(divided).saturating_duration_since(Instant::now())
    }

    /// Saves which pages are in memory, if that is wanted of this process, and due.
    pub(crate) fn save_warm(&mut self, ends: bool) {
        let now = Instant::now();
        let is_due = |(_, due): &&mut (_, Instant)| ends || now >= *due;
        let Some((path, due)) = self.warm.as_mut().filter(is_due) else { return };
        *due = now + SAVED;
        if let Err(error) = self.pager.save_warm(path) {
            self.refusal.get_or_insert_with(|| error.to_string());
        }
    }

    /// Counts before pages go with their mapping, if that costs no more of the time than the counts
    /// of [`Budgets::tick`] may: most programs that run for a moment are counted so alone.
    pub(crate) fn before_going<'a>(&mut self, files: impl Iterator<Item = Counted<'a>>) {
        if Instant::now() >= self.may_count {
            self.count(files);
        }
    }

    /// What of the files of each budget is in the page cache, or in mirrors.
    fn count<'a>(&mut self, files: impl Iterator<Item = Counted<'a>>) -> BTreeMap<usize, InMemory> {
        let began = Instant::now();
        let mut found: BTreeMap<usize, InMemory> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        let mut count = |(subject, mirror): Counted<'_>| {
            let of_budget = found.entry(subject.budget).or_default();
            if let Some(mirror) = mirror {
                of_budget.all += mirror.memory_bytes();
                return;
            }
            let Ok(stat) = fstat(&*subject.file) else { return };
            let identity = (stat.st_dev, stat.st_ino);
            if seen.insert(identity) {
                let page = rustix::param::page_size() as u64;
                let stat = cachestat(&*subject.file, 0, 0).or_else(|_| {
                    let cached = cached_pages(&*subject.file);
                    cached.map(|cached| CacheStat { cached, ..CacheStat::default() })
                });
                let CacheStat { cached, dirty, writeback, .. } = stat.unwrap_or_default();
                of_budget.all += cached * page;
                of_budget.dirty += (dirty + writeback) * page;
            }
        };
        files.for_each(&mut count);
        self.lingering.iter().for_each(|(_, _, subject)| count((subject, None)));
        let took = began.elapsed() * COUNT_SELDOM;
        self.may_count = Instant::now() + took.min(COUNT_MOST);
        self.due = Instant::now() + took.clamp(COUNT_LEAST, COUNT_MOST);
        for (budget, now) in &found {
            if let Some(account) = self.tenants.get_mut(budget).filter(|it| it.peak.all < now.all) {
                account.peak = *now;
            }
        }
        found
    }

    /// What other sizes would have done for each budget.
    pub(crate) fn curves(&self) -> Vec<(usize, Curve)> {
        let curve =
            |(budget, account): (&usize, &Account)| Some((*budget, account.tenant.curve().ok()??));
        self.tenants.iter().filter_map(curve).collect()
    }

    /// What each budget did so far, in the order of their numbers.
    pub(crate) fn figures<'a>(
        &mut self,
        files: impl Iterator<Item = Counted<'a>>,
    ) -> BTreeMap<usize, Figures> {
        let resident = self.count(files);
        let figures = |(budget, account): (&usize, &Account)| {
            let stat: MemoryStat = account.tenant.stat().ok()?;
            let figures = Figures {
                max_bytes: account.part.max(),
                resident_bytes: resident.get(budget).copied().unwrap_or_default().all,
                peak_bytes: account.peak.all,
                peak_dirty_bytes: account.peak.dirty,
                part_bytes: account.part.bytes(),
                faults: stat.events.pgfault,
                refaults: stat.events.refaults(),
                evicted: stat.events.pgsteal,
                auto: AutoFigures::of(&account.tenant),
            };
            Some((*budget, figures))
        };
        self.tenants.iter().filter_map(figures).collect()
    }
}

/// Records accesses: the first process in the file, which is there, others beside it.
fn record(pager: &Pager, path: &Path, first: Option<u32>) -> Result<(), Box<dyn Error>> {
    let own = std::process::id();
    let mut name = path.as_os_str().to_owned();
    if first != Some(own) {
        name.push(format!(".{own}"));
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    let file = open(Path::new(&name), flags, Mode::from_raw_mode(0o666))?;
    Ok(pager.record(file.into())?)
}

/// The bounds of a budget that sets itself, in this process's part.
fn bounds(auto: Auto, part: u64) -> AutoLimits {
    let limits = AutoLimits::new(Size::new(auto.least.min(part)), Size::new(part));
    limits.with_target(f64::from(auto.stall) / 1e6)
}
