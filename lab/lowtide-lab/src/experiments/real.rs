//! The player on real files, real memory and a real device: one tenant per actor, one thread per
//! thread of an actor, all in one pager.
//!
//! There are three differences from the simulated machine:
//!
//! * Before the run, files that an actor loads in random order are preloaded as far as its limit
//!   allows, because loading them page by page takes minutes.
//! * No thread can work for exactly 20 µs. A thread sleeps for the unused part of the CPU time that
//!   the script assigns to its operations, a millisecond at a time.
//! * The runtime has no uncached read. An actor with such reads has a `max` of a few pages.
//!
//! Every load verifies one kilobyte of the page. Counts are read while the threads run, so the
//! measurement does not wait for a thread that a limit makes sleep for seconds.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::bench::options::FewPolicies;
use clap::Args;
use lowtide::{OpenOptions, Pager, Size, View};
use lowtide_bench::content::{Content, UNIT_BYTES};
use lowtide_bench::datafile::{DataDir, DataFile, Purpose};
use lowtide_bench::error::BenchError;
use lowtide_bench::options::Seed;
use lowtide_experiments::client::script::Done;
use lowtide_experiments::programs::script::{Actor, Call, Choices, Order};
use lowtide_host::usage::CpuTime;
use lowtide_report::interrupt::Cut;
use lowtide_report::row::{DeviceFigures, DeviceSample, Row};
use lowtide_report::values::seconds;
use lowtide_report::{columns, progress::Patient};

use super::{Experiment, Play, Played, Setting};
use crate::bench::tenancy::device::Device;
use crate::bench::tenancy::host::{Common, apply, head, tail};
use crate::bench::tenancy::loaders::{Count, Loaders, fill, load, load_around, load_many};

/// `max`, in pages, of a group with uncached reads.
const READ_ONCE_PAGES: u64 = 64;
/// A thread sleeps only if it owes at least this much.
const GRAIN: Duration = Duration::from_millis(1);

/// `lowtide-lab bench NAME` of an experiment.
#[derive(Debug, Args)]
#[command(after_help = E::HELP)]
pub(crate) struct Real<E: Experiment> {
    #[command(flatten)]
    own: E,
    /// Measured seconds of each run, after a warm-up of the same length
    #[arg(long, value_name = "S", value_parser = seconds, default_value = E::REAL_SECONDS,
          allow_negative_numbers = true)]
    seconds: f64,
    #[command(flatten)]
    policies: FewPolicies,
    #[command(flatten)]
    seed: Seed,
    #[command(flatten)]
    common: Common,
}

impl<E: Experiment> Real<E> {
    /// Plays all plays, one after the other, and prints the rows.
    pub(crate) fn run(&self) -> Result<(), BenchError> {
        let time = Duration::from_secs_f64(self.seconds);
        let setting = Setting {
            world: "real",
            machine: String::new(),
            is_default_machine: false,
            page: self.common.page,
            policies: self.policies.rows(),
            seed: self.seed.seed,
            warm: time,
            run: time,
        };
        let plays = self.own.plays(&setting)?;
        let pager = pager(&self.common, &plays[0])?;
        let files = Files::prepare(&self.common.files.data_dir()?, &plays)?;
        let device = Device::of(files.of(&plays[0])[0]);
        let mut lines = self.own.describe(&setting, &plays);
        lines.push(("device", device.about()));
        lines.push((
            "run",
            format!(
                "{} runs, {:.1} s each after as long to warm; seed {}",
                plays.len(),
                self.seconds,
                setting.seed
            ),
        ));
        let machine = head((E::NAME, E::ABOUT), &pager, files.of(&plays[0])[0], &lines)?;
        drop(pager);

        let mut progress = Patient::steps(plays.len() as u64);
        let mut cut = Cut::default();
        let mut played = Vec::new();
        for play in &plays {
            progress.say(play.label.clone());
            let result = if cut.is_cut() {
                None
            } else {
                cut.take(
                    Stage::set(&self.common, play, &files)
                        .and_then(|stage| stage.play(play, &device)),
                )?
            };
            played.push(result);
            progress.add(1);
        }
        drop(progress);
        let rows = self.own.rows(&setting, &plays, &played);
        let closing = self.own.closing(&setting, &rows);
        let table = columns::table(E::COLUMNS, &rows);
        tail(&self.common.output, &machine, &table, rows, closing, cut)
    }
}

/// A pager with more memory than a play needs.
fn pager(common: &Common, play: &Play) -> Result<Pager, BenchError> {
    let memory = play.script.memory;
    common.pager(play.policy, memory + memory / 4 + (16 << 20))
}

/// The files of all plays, by size. Actors with files of one size use them in order.
#[derive(Debug)]
struct Files(BTreeMap<u64, Vec<DataFile>>);

impl Files {
    fn prepare(data_dir: &DataDir, plays: &[Play]) -> Result<Self, BenchError> {
        let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
        for play in plays {
            for (bytes, count) in counted(&play.script.actors) {
                let most = counts.entry(bytes).or_default();
                *most = count.max(*most);
            }
        }
        let mut all = BTreeMap::new();
        for (bytes, count) in counts {
            let files = data_dir.prepare(Content::Blocks, bytes, count, Purpose::Lasting)?;
            files.iter().try_for_each(DataFile::drop_page_cache)?;
            all.insert(bytes, files);
        }
        Ok(Self(all))
    }

    /// Those of a play's actors, in order.
    fn of(&self, play: &Play) -> Vec<&DataFile> {
        let mut next: BTreeMap<u64, usize> = BTreeMap::new();
        let file = |actor: &Actor| {
            let number = next.entry(actor.file).or_default();
            *number += 1;
            &self.0[&actor.file][*number - 1]
        };
        play.script.actors.iter().map(file).collect()
    }
}

/// Number of actors with a file of each size.
fn counted(actors: &[Actor]) -> BTreeMap<u64, usize> {
    let mut counts = BTreeMap::new();
    for actor in actors {
        *counts.entry(actor.file).or_default() += 1;
    }
    counts
}

/// A new pager with tenants and views.
struct Stage {
    pager: Pager,
    views: Vec<View>,
    /// A program runs as long as this lives.
    programs: Option<lowtide_bpf::Programs>,
}

/// The counts of a thread.
#[derive(Debug, Default)]
struct Doing {
    count: Count,
    nanos: Mutex<Vec<u64>>,
}

impl Stage {
    fn set(common: &Common, play: &Play, files: &Files) -> Result<Self, BenchError> {
        let pager = pager(common, play)?;
        let parent = match play.script.max {
            Some(max) => pager.tenant("all").max(Size::new(max)).create()?,
            None => pager.root(),
        };
        let (mut views, mut programs) = (Vec::new(), None);
        // As in a simulation: a program decides for the budget of all, if there is one.
        let of_all = play.script.max.is_some() && play.throttle.is_program();
        if of_all {
            programs = apply(&play.throttle, &parent)?;
        }
        for (actor, file) in play.script.actors.iter().zip(files.of(play)) {
            let mut tenant = parent.child(&actor.name).low(Size::new(actor.low));
            if let Some(high) = actor.high {
                tenant = tenant.high(Size::new(high));
            }
            if actor.call == Call::ReadOnce {
                tenant = tenant.max(Size::new(READ_ONCE_PAGES * common.page));
            }
            let tenant = tenant.create()?;
            if actor.high.is_some() && !of_all {
                programs = apply(&play.throttle, &tenant)?;
            }
            let options = OpenOptions::new().tenant(&tenant).lock(false);
            // The window of a load is the script's.
            let options = match actor.call {
                Call::Load { .. } | Call::LoadRandom => options.read_ahead(Size::new(0)),
                Call::Read { .. } | Call::ReadOnce => options,
            };
            let view = options.open(&pager, file.path())?;
            if actor.threads > 0 && actor.order != Order::Sequential && actor.call != Call::ReadOnce
            {
                fill(&view, actor.high.unwrap_or(actor.file))?;
            }
            views.push(view);
        }
        Ok(Self { pager, views, programs })
    }

    fn play(self, play: &Play, device: &Device) -> Result<Played, BenchError> {
        let script = &play.script;
        let loaders = Loaders::default();
        let doing: Vec<Vec<Doing>> = script
            .actors
            .iter()
            .map(|actor| (0..actor.threads).map(|_| Doing::default()).collect())
            .collect();
        let look = || -> Vec<Vec<(u64, u64)>> {
            let read = |doing: &Doing| (doing.count.ops(), doing.count.misses());
            doing.iter().map(|threads| threads.iter().map(read).collect()).collect()
        };
        let actors = script.actors.iter().zip(&self.views).zip(&doing);
        let performers = actors.flat_map(|((actor, view), doing)| {
            (0..actor.threads).zip(doing).map(move |(thread, doing)| {
                let choices = script.choices(actor, thread, view.page_count());
                let mut performer = Performer::new(actor, view.clone(), choices, doing);
                move || performer.step()
            })
        });
        let measure = || {
            loaders.watch(script.warm, || ());
            for doing in doing.iter().flatten() {
                doing.nanos.lock().unwrap_or_else(PoisonError::into_inner).clear();
            }
            let (then, before, begin) = (look(), self.pager.stat(), Instant::now());
            let mut watch = device.watch(&self.pager);
            loaders.watch(script.run, || watch.sample());
            let (now, seconds, after) = (look(), begin.elapsed().as_secs_f64(), self.pager.stat());
            (then, now, watch.end(), seconds, before, after)
        };
        let (then, now, samples, seconds, before, after) = loaders.run(performers, measure)?;
        loaders.verdict(&play.label)?;
        let mut actors = Vec::new();
        let (mut pages, mut misses) = (0, 0);
        for (number, actor) in script.actors.iter().enumerate() {
            let mut done = Done::new(actor.threads);
            let both = now[number].iter().zip(&then[number]);
            for ((ops, (now, then)), doing) in done.ops.iter_mut().zip(both).zip(&doing[number]) {
                *ops = now.0 - then.0;
                let missed = now.1 - then.1;
                done.hits += *ops * actor.call.pages() - missed;
                misses += missed;
                pages += *ops * actor.call.pages();
                let nanos = doing.nanos.lock().unwrap_or_else(PoisonError::into_inner);
                nanos.iter().for_each(|&took| done.latency.saturating_record(took));
            }
            actors.push(done);
        }
        let mean = DeviceSample::mean(&samples);
        let row = Row::default().on_pager(&before, &after, seconds, (pages, misses));
        Ok(Played {
            row: Row {
                device: DeviceFigures {
                    device_source: Some(device.name()),
                    device_read_kib_per_s: Some(mean.read_kib),
                    device_util_pct: mean.util_pct,
                    ..row.device
                },
                ..row
            },
            actors,
            seconds,
            samples,
            device_tps: mean.tps,
            slept_ms: (after.io.throttled - before.io.throttled).as_secs_f64() * 1e3,
            program_runs: self
                .programs
                .map(|programs| programs.status().iter().map(|hook| hook.runs).sum()),
        })
    }
}

/// One thread of an actor.
struct Performer<'a> {
    actor: &'a Actor,
    view: View,
    choices: Choices,
    doing: &'a Doing,
    /// Operations whose processor time has not been compared with the script's, and the processor
    /// time when the first of them began.
    owed: u32,
    since: Option<CpuTime>,
}

impl<'a> Performer<'a> {
    const fn new(actor: &'a Actor, view: View, choices: Choices, doing: &'a Doing) -> Self {
        Self { actor, view, choices, doing, owed: 0, since: None }
    }

    /// One operation.
    fn step(&mut self) -> Result<(), String> {
        self.work();
        let page = self.choices.choose();
        let unit = page % (self.view.page_size() / UNIT_BYTES) as u64;
        let begin = self.actor.timed.then(Instant::now);
        let missed = match self.actor.call {
            Call::Load { around: true } => u64::from(load_around(&self.view, page, unit)?),
            Call::Load { around: false } | Call::LoadRandom | Call::ReadOnce => {
                let missed = !self.view.is_resident(page);
                load(&self.view, page, unit)?;
                u64::from(missed)
            }
            Call::Read { pages } => load_many(&self.view, page, pages)?,
        };
        if let Some(begin) = begin {
            let nanos = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.doing.nanos.lock().unwrap_or_else(PoisonError::into_inner).push(nanos);
        }
        self.doing.count.done(missed);
        if !self.actor.pause.is_zero() {
            thread::sleep(self.actor.pause);
        }
        Ok(())
    }

    /// Sleeps for the CPU time that the operations so far should have used, but have not.
    fn work(&mut self) {
        let since = *self.since.get_or_insert_with(CpuTime::now_thread);
        self.owed += 1;
        let worked = self.actor.work * self.owed;
        if worked >= GRAIN {
            let used = Duration::from_secs_f64(CpuTime::now_thread().since(since).seconds());
            thread::sleep(worked.saturating_sub(used));
            (self.owed, self.since) = (0, None);
        }
    }
}
