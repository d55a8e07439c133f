//! Runs a comparison, and writes its table and JSON.

use lowtide::instruments::MissTimes;
use lowtide::map::MapMode;
use lowtide::{Pager, Size};
use lowtide_host::probe::Probe;
use lowtide_report::interrupt::Cut;
use lowtide_report::json::Report;
use lowtide_report::measured::Common;
use lowtide_report::measured_table::{of_misses, of_rows, of_workload, of_write_back};
use lowtide_report::progress::Patient;
use lowtide_report::rounds::{Turns, ratio};
use lowtide_report::row::Row;
use lowtide_report::tally::Slice;
use lowtide_report::{columns, out, table};
use lowtide_workload::Distribution;

use super::plan::Comparison;
use crate::access::ViewAccess;
use crate::content::Content;
use crate::datafile::DataFile;
use crate::error::BenchError;
use crate::machine::{Machine, direct_align};
use crate::map;
use crate::options::Source;
use crate::peer::kernel::KernelPeer;
use crate::peer::protocol::Reach;
use crate::play::gather::Rows;
use crate::play::job::{Job, Script};
use crate::rounds::{take_turns, verdict, warm_up};
use crate::system::{Lowtide, NO_ZCACHE, System, VIEW};
use crate::thread_pool::Until;

impl<S: Script> Comparison<'_, S> {
    /// Plays the workload on all systems and prints the table.
    ///
    /// # Errors
    /// Any [`BenchError`]; rows that were measured before an operation failed are printed and
    /// written first.
    pub fn run(self) -> Result<(), BenchError> {
        let probe = Probe::ask();
        let mut plan = self.checked(&probe)?;
        // Drop order is the reverse: systems, then files, then their directory.
        let source = Source::of(&plan.common.files, plan.file.clone())?;
        let (files, places) = plan.files(&source)?;
        let (page_bytes, page_note) = plan.choose_page(&files[0])?;
        let mut encore = plan.encore.take();
        encore.as_mut().map_or(Ok(()), |encore| encore.prepare(page_bytes))?;
        let job = job(&plan, page_bytes);
        let script = S::of(&job)?;

        let pagers = plan.views().map(|(policy, zcache)| plan.pager(policy, zcache, page_bytes));
        let pagers = pagers.collect::<Result<Vec<_>, _>>()?;
        for file in &files {
            file.drop_page_cache()?;
        }
        let stage = Stage { plan: &plan, files: &files, job: &job, script: &script };
        let (of_views, rest) = places.split_at(pagers.len());
        let (of_maps, of_peers) = rest.split_at(plan.maps.len());
        let mut systems: Vec<Box<dyn System>> = Vec::new();
        let first = stage.start_views(&pagers, of_views, &mut systems)?;
        stage.start_maps(of_maps, &mut systems)?;
        stage.start_peers(of_peers, &mut systems)?;

        let machine = Machine::ask(&probe, &files[0], &pagers[0])?;
        head(&machine, &files, &plan, &job, &page_note);
        let steps = systems.len() as u64 * (u64::from(plan.rounds) + u64::from(plan.is_warmed))
            + u64::from(encore.is_some());
        let mut progress = Patient::steps(steps);
        if plan.is_warmed {
            warm_up(&mut systems, plan.max_bytes, plan.data_bytes, &mut progress)?;
        }
        pagers.iter().for_each(|pager| pager.measure_misses(plan.common.explain));
        let mut cut = Cut::default();
        let rows = take_turns(
            &mut systems,
            plan.rounds,
            |round| plan.slice(round),
            &mut progress,
            &mut cut,
        )?;
        let times = pagers.iter().map(Pager::miss_times).collect::<Vec<_>>();
        pagers.iter().for_each(|pager| pager.measure_misses(false));
        // The rows are printed before the result of the encore, which may have failed.
        let played =
            encore.filter(|_| !cut.is_cut()).zip(first).map(|(encore, (access, label))| {
                progress.say(format!("playing {label} once more"));
                encore.play(&label, access, &job, &script, plan.until)
            });
        drop(progress);

        stage.show(&source, &machine, &rows, &times, &cut)?;
        rows.iter().try_for_each(verdict)?;
        if let Some(played) = played {
            out::line(played?);
        }
        cut.verdict()
    }
}

/// What every system of a comparison plays, and on which files.
struct Stage<'a, S> {
    plan: &'a Comparison<'a, S>,
    files: &'a [DataFile],
    job: &'a Job,
    script: &'a S,
}

impl<S: Script> Stage<'_, S> {
    /// Starts a view of each policy. Returns how the first reaches its pages, and its name.
    fn start_views(
        &self,
        pagers: &[Pager],
        places: &[usize],
        systems: &mut Vec<Box<dyn System>>,
    ) -> Result<Option<(ViewAccess, String)>, BenchError> {
        let mut first = None;
        for ((pager, (policy, zcache)), &place) in pagers.iter().zip(self.plan.views()).zip(places)
        {
            let file = &self.files[place];
            let name = if zcache { VIEW } else { NO_ZCACHE };
            let as_named = (name, policy);
            let lowtide = Lowtide::start(pager.clone(), as_named, file, self.job, self.script)?;
            first.get_or_insert_with(|| (lowtide.access(), lowtide.label()));
            systems.push(Box::new(lowtide));
        }
        Ok(first)
    }

    /// Starts lowtide's maps, without those that this machine does not have.
    fn start_maps(
        &self,
        places: &[usize],
        systems: &mut Vec<Box<dyn System>>,
    ) -> Result<(), BenchError> {
        for (&(way, policy), &place) in self.plan.maps.iter().zip(places) {
            // A map has the processor's pages.
            let pager = self.plan.pager(policy, false, lowtide_sys::memory::page_size() as u64)?;
            match Lowtide::map(pager, policy, way, &self.files[place], self.job, self.script) {
                Ok(map) => systems.push(Box::new(map)),
                Err(BenchError::Map(why)) => {
                    out::note(format_args!("{} {policy} left out: {why}", map::name(way)));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Starts the kernel's processes, without those that cannot read in their way.
    fn start_peers(
        &self,
        places: &[usize],
        systems: &mut Vec<Box<dyn System>>,
    ) -> Result<(), BenchError> {
        for (peer, &place) in self.plan.peers.iter().zip(places) {
            let Some(reach) = peer.reach() else { continue };
            let file = &self.files[place];
            if reach == Reach::Direct && direct_align(file)?.is_none() {
                out::note(format_args!(
                    "{} left out: the file system of {} has no direct I/O",
                    peer.name(),
                    file.path().display()
                ));
                continue;
            }
            match KernelPeer::start(peer.name(), reach, file, self.job, self.plan.max_bytes) {
                Ok(peer) => systems.push(Box::new(peer)),
                Err(killed @ BenchError::PeerKilled { .. }) => out::note(killed),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Prints the tables and the conclusions, and writes the JSON. `times` is where the time of
    /// the misses of each view went.
    fn show(
        &self,
        source: &Source,
        machine: &Machine,
        rows: &[Turns],
        times: &[MissTimes],
        cut: &Cut,
    ) -> Result<(), BenchError> {
        let Self { plan, job, .. } = *self;
        let common = common(plan, job);
        let explained = plan.common.explain.then(|| {
            let labels = rows.iter().map(|row| row.label.clone());
            format!("\n{}", of_misses(&labels.zip(times.iter().copied()).collect::<Vec<_>>()))
        });
        let row_of = |turns| match &plan.shown {
            Some((_, row_of)) => row_of(&common, turns, &rows[0]),
            None => {
                let row = Row::compared(&common, turns, &rows[0]);
                match job.rows {
                    Some(of) => row.of_rows(of.bytes, of.skew.name()),
                    None => row,
                }
            }
        };
        let shown: Vec<Row> = rows.iter().map(row_of).collect();
        match &plan.shown {
            Some((columns, _)) => out::line(columns::table(*columns, &shown)),
            None if job.rows.is_some() => out::line(of_rows(rows)),
            None => out::line(of_workload(rows)),
        }
        if plan.shown.is_none() && job.writes {
            out::line(format_args!("\n{}", of_write_back(rows)));
        }
        explained.iter().for_each(out::line);
        tail(rows, job, source, self.files);
        let json = plan.common.output.json.as_deref();
        Ok(Report::new(machine, shown).cut_short(cut.is_cut()).write(json)?)
    }
}

fn job<S: Script>(plan: &Comparison<'_, S>, page_bytes: u64) -> Job {
    Job {
        workload: plan.workload.name().to_owned(),
        popularity: plan.popularity,
        content: plan.content,
        data_bytes: plan.data_bytes,
        page_bytes,
        threads: plan.threads,
        batch: plan.batch(page_bytes),
        seed: plan.seed,
        writes: plan.writes,
        reads_ahead: plan.is_warmed,
        stride: plan.stride,
        rows: plan.rows,
        own: plan.own.clone(),
    }
}

fn common<S>(plan: &Comparison<'_, S>, job: &Job) -> Common {
    Common {
        workload: plan.workload.name(),
        max_bytes: plan.max_bytes,
        data_bytes: plan.data_bytes,
        page_bytes: job.page_bytes,
        threads: job.threads,
        batch: job.batch,
        seed: plan.seed,
        stride: (plan.stride > 1).then_some(plan.stride),
        slowed: plan.device.as_ref().map(|device| device.text.clone()),
    }
}

/// The lines above the table: what was measured.
fn head<S: Script>(
    machine: &Machine,
    files: &[DataFile],
    plan: &Comparison<'_, S>,
    job: &Job,
    page_note: &str,
) {
    out::line(format_args!("{}: {}", plan.workload, plan.workload.description()));
    for line in machine.lines(&files[0]) {
        out::line(line);
    }
    let together = match plan.views().count() + plan.maps.len() + plan.peers.len() {
        1 => String::new(),
        systems => format!(" for each of {systems} systems, all alive together"),
    };
    out::line(format_args!("budget    {}{together}", Size::new(plan.max_bytes)));
    out::line(format_args!("page      {}: {page_note}", Size::new(job.page_bytes)));
    if let Some(Rows { bytes, skew }) = plan.rows {
        let count = table::thousands((job.data_bytes / bytes) as f64);
        let (size, skew) = (Size::new(bytes), skew.explained());
        out::line(format_args!("rows      {count} of {size}: {skew}"));
    }
    let popularity = match plan.workload.ycsb_letter() {
        Some(_) => format!("; popularity {}", Distribution::from(plan.popularity)),
        None => String::new(),
    };
    let length = match plan.slice(0) {
        Until::Seconds(seconds) => format!("{seconds:.2} s"),
        Until::Ops(ops) => format!("{} operations", table::thousands(ops as f64)),
    };
    let batch = if job.batch == 1 { String::new() } else { format!(", {} at a time", job.batch) };
    out::line(format_args!(
        "run       {} thread{}{batch}; {} rounds of {length} each, in turns; seed {}{popularity}",
        job.threads,
        if job.threads == 1 { "" } else { "s" },
        plan.rounds,
        job.seed
    ));
    if plan.stride > 1 {
        out::line(format_args!("          each page {} pages behind the last", plan.stride));
    }
    if plan.writes {
        out::line("          every slice ends with a flush, whose time counts");
    }
    for note in &plan.notes {
        out::line(format_args!("          {note}"));
    }
    if let Some(device) = &plan.device {
        out::line(format_args!("device    {}, in addition to its own time", device.text));
    }
    out::line("");
}

/// How the first view and the first map of each way compare with the fastest peer, in favour of
/// either.
fn comparison(rows: &[Turns]) -> Vec<String> {
    let ours = [VIEW, map::name(MapMode::Userfault), map::name(MapMode::PageCache)];
    let first = |system: &&str| rows.iter().find(|row| row.system == *system);
    let peers = || rows.iter().filter(|row| !ours.contains(&row.system));
    let sentence = |row: &Turns| {
        let ratios = peers().map(|peer| (ratio(row, peer, Slice::rate), peer));
        let (ratio, peer) = ratios.min_by(|(a, _), (b, _)| a.median.total_cmp(&b.median))?;
        let which = if peers().count() > 1 { ", the fastest peer" } else { "" };
        let slower = if ratio.median < 1.0 { ": slower" } else { "" };
        let (label, range) = (&row.label, ratio.range());
        Some(format!("{label} is {:.2} x {} {range}{which}{slower}", ratio.median, peer.label))
    };
    ours.iter().filter_map(first).filter_map(sentence).collect()
}

/// The conclusions below the tables.
fn tail(rows: &[Turns], job: &Job, source: &Source, files: &[DataFile]) {
    out::line("");
    let sums: Vec<Slice> = rows.iter().map(Turns::sum).collect();
    let total =
        |count: fn(&Slice) -> u64| table::thousands(sums.iter().map(count).sum::<u64>() as f64);
    let unchecked =
        if job.content == Content::Unknown { " (the content is not known)" } else { "" };
    out::line(format_args!(
        "{} contents verified{unchecked}, {} errors",
        total(|sum| sum.verified),
        total(|sum| sum.errors)
    ));
    if sums.iter().any(|sum| sum.ignored > 0) {
        out::line(format_args!(
            "{} operations have no meaning for a file and were skipped",
            total(|sum| sum.ignored)
        ));
    }
    for sentence in comparison(rows) {
        out::line(sentence);
    }
    for (row, cached) in rows.iter().zip(&sums).filter_map(|(row, s)| Some((row, s.cached_bytes?)))
    {
        let (label, cached) = (&row.label, table::memory(cached));
        out::line(format_args!(
            "{label} had up to {cached} in the page cache at the end of a turn"
        ));
    }
    let bytes: u64 = files.iter().filter(|file| file.is_kept()).map(DataFile::bytes).sum();
    if let Source::Made(data_dir) = source
        && bytes > 0
    {
        out::line(format_args!(
            "data files ({}) are kept in {} for the next run; --no-keep removes them",
            Size::new(bytes),
            data_dir.path().display()
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(system: &'static str, label: &str, rates: [u64; 3]) -> Turns {
        let slices = rates.map(|ops| Slice { seconds: 1.0, ops, ..Slice::default() });
        Turns { system, policy: None, label: label.into(), slices: slices.into() }
    }

    #[test]
    fn the_closing_sentence_names_the_fastest_peer_also_when_lowtide_loses() {
        let lowtide = || row("lowtide", "lowtide mglru", [100, 100, 100]);
        let mmap = || row("mmap", "mmap", [200, 250, 400]);
        let random = row("mmap-random", "mmap-random", [10, 20, 10]);
        assert_eq!(
            comparison(&[lowtide(), mmap(), random]),
            ["lowtide mglru is 0.40 x mmap (0.25..0.50), the fastest peer: slower"]
        );
        let slow = row("mmap-random", "mmap-random", [50, 50, 25]);
        let second = row("lowtide", "lowtide lru", [900, 900, 900]);
        let map = row("map-userfault", "map-userfault mglru", [150, 150, 75]);
        assert_eq!(
            comparison(&[lowtide(), second, map, slow]),
            [
                "lowtide mglru is 2.00 x mmap-random (2.00..4.00)",
                "map-userfault mglru is 3.00 x mmap-random (3.00..3.00)",
            ]
        );
        assert_eq!(comparison(&[lowtide()]), Vec::<String>::new());
        assert_eq!(comparison(&[mmap(), mmap()]), Vec::<String>::new());
    }
}
