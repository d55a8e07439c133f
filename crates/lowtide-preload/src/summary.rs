//! What a process says at its end, or when it gets SIGUSR1: text for people, or a line of JSON.
//!
//! The names in the JSON are an interface: names may be added, none is renamed.

use crate::budgets::{AutoFigures, Figures};
use crate::descriptors;
use crate::judge::Reason;
use crate::left::LeftAlone;
use crate::modes::{Modes, Why};
use crate::reads::Unkept;
use lowtide::IoStat;
use lowtide::budget::Curve;
use lowtide_run::settings::Settings;
use lowtide_status::counters::{Numbers, ProcessStat};
use lowtide_status::printable;
use rustix::fs::{Mode, OFlags, open};
use serde::{Serialize, Serializer};
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write;

/// Files of a budget that are named.
pub(crate) const FILES: usize = 8;

/// One budget, and what it did.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Budget {
    /// The glob of `--map`; none for the common one.
    pub(crate) glob: Option<String>,
    /// Mappings that were adopted.
    pub(crate) mappings: u64,
    /// Files that were read or written through descriptors, with `--files`.
    pub(crate) read_files: u64,
    /// The first of all these files.
    pub(crate) files: Vec<String>,
    /// What it did.
    #[serde(flatten)]
    pub(crate) figures: Figures,
}

/// All that there is to say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Whole {
    /// Each budget of which a mapping was adopted.
    pub(crate) budgets: Vec<Budget>,
    /// What other sizes would have done, with the glob of the budget.
    pub(crate) curves: Vec<(Option<String>, Curve)>,
    /// What was transferred, and read ahead.
    pub(crate) io: IoStat,
    /// How mappings were kept.
    pub(crate) modes: Modes,
    /// Why the runtime refused a mapping.
    pub(crate) refusal: Option<String>,
    /// The first page that could not be brought into a mirror, and why.
    pub(crate) error: Option<String>,
    /// What was left to the kernel.
    pub(crate) left: Vec<LeftAlone>,
    /// Reads that were seen and not counted, for lack of room, if reads are kept.
    pub(crate) reads_lost: Option<u64>,
    /// What was read of large files, and written, if that is not kept.
    pub(crate) unkept: Unkept,
    /// The process ends: what there is now is what it leaves.
    pub(crate) ended: bool,
}

/// What the kernel counts for this process.
fn counted() -> ProcessStat {
    let faults = lowtide_sys::pagemap::page_faults();
    let (major_faults, device_read_bytes) = (faults.major, faults.read_bytes);
    ProcessStat { major_faults, device_read_bytes, ..ProcessStat::default() }
}

/// The numbers that the table of counters has in summaries.
fn summed<T: Numbers, S: Serializer>(of: &T, to: S) -> Result<S::Ok, S::Error> {
    let mut all = Vec::new();
    of.each(&mut |counter, value| all.extend(counter.summary.map(|name| (name, value.whole()))));
    to.collect_map(all)
}

#[derive(Serialize)]
struct Row<'a> {
    reason: &'a str,
    count: u64,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    first: Option<&'a str>,
}

/// Mappings by the mode in which they were kept; one that changed counts for both.
#[derive(Serialize)]
struct Mappings {
    userfault: u64,
    pagecache: u64,
}

/// A line of JSON.
#[derive(Serialize)]
struct Line<'a> {
    lowtide: &'a str,
    pid: u32,
    program: &'a str,
    mode: &'a str,
    /// Why mirrors are out of the question, where they would have been made.
    #[serde(skip_serializing_if = "Option::is_none")]
    inexact: Option<&'a str>,
    max_bytes: u64,
    budgets: &'a [Budget],
    /// Of each budget, what other sizes would have done.
    curves: Vec<Advised<'a>>,
    #[serde(flatten, serialize_with = "summed")]
    counted: ProcessStat,
    #[serde(flatten, serialize_with = "summed")]
    io: IoStat,
    #[serde(skip_serializing_if = "Option::is_none")]
    refusal: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    mappings: Mappings,
    /// With `--files`.
    #[serde(skip_serializing_if = "Option::is_none")]
    reads_lost: Option<u64>,
    /// Without it: what was read of large files, and written, and is left to the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    unkept_read_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unkept_written_bytes: Option<u64>,
    /// Why mappings were not, or not to the end, in `userfault` mode, where that is wanted.
    pagecache_because: Vec<Row<'a>>,
    left_alone: Vec<Row<'a>>,
}

/// A curve, as it is published.
#[derive(Serialize)]
struct Advised<'a> {
    glob: Option<&'a str>,
    #[serde(flatten)]
    curve: lowtide_status::Curve,
}

/// Writes it where the settings say. A summary that cannot be written is lost: the program must not
/// suffer from it.
pub(crate) fn write(settings: &Settings, whole: &Whole) {
    let program = program();
    let program = program.trim_end();
    let counted = counted();
    let text = if settings.json {
        json(settings, program, counted, whole)
    } else {
        text(settings, program, counted, whole)
    };
    match &settings.summary {
        Some(path) => {
            let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC;
            if let Ok(file) = open(path, flags, Mode::from_raw_mode(0o666)) {
                let _ = File::from(file).write_all(text.as_bytes());
            }
        }
        None => descriptors::say(text.as_bytes()),
    }
}

/// The program's name: without `/proc` that of the file that it was started from.
fn program() -> String {
    std::fs::read_to_string("/proc/self/comm").unwrap_or_else(|_| {
        let path = rustix::param::linux_execfn().to_string_lossy();
        path.rsplit('/').next().unwrap_or_default().to_owned()
    })
}

fn json(settings: &Settings, program: &str, counted: ProcessStat, whole: &Whole) -> String {
    fn row<R: Copy>(left: &LeftAlone<R>, name: fn(R) -> &'static str) -> Row<'_> {
        let LeftAlone { reason, count, bytes, first } = left;
        Row { reason: name(*reason), count: *count, bytes: *bytes, first: first.as_deref() }
    }
    let because = whole.modes.because();
    let Modes { userfault, pagecache, .. } = whole.modes;
    let line = Line {
        lowtide: env!("CARGO_PKG_VERSION"),
        pid: std::process::id(),
        program,
        mode: settings.mode.name(),
        inexact: settings.inexact.as_deref(),
        max_bytes: settings.max,
        budgets: &whole.budgets,
        curves: whole.curves.iter().map(advised).collect(),
        counted,
        io: whole.io,
        refusal: whole.refusal.as_deref(),
        error: whole.error.as_deref(),
        mappings: Mappings { userfault, pagecache },
        reads_lost: whole.reads_lost,
        unkept_read_bytes: (!settings.files).then_some(whole.unkept.read),
        unkept_written_bytes: (!settings.files).then_some(whole.unkept.written),
        pagecache_because: because.iter().map(|one| row(one, Why::name)).collect(),
        left_alone: whole.left.iter().map(|one| row(one, Reason::name)).collect(),
    };
    serde_json::to_string(&line).unwrap_or_default() + "\n"
}

fn text(settings: &Settings, program: &str, counted: ProcessStat, whole: &Whole) -> String {
    let mut text = format!("lowtide: {} ({})", printable(program), std::process::id());
    if whole.budgets.is_empty() {
        let _ = write!(text, ": no file mapping to keep within {}", mib(settings.max));
    }
    text.push('\n');
    for budget in &whole.budgets {
        text += &of_budget(budget, settings, whole.ended);
    }
    text += &of_reads(settings, whole);
    if settings.advise {
        whole.curves.iter().for_each(|curve| text += &of_curve(curve));
    }
    if !whole.budgets.is_empty() {
        let needed: u64 = whole.budgets.iter().map(|budget| budget.figures.faults).sum();
        let needed = needed * rustix::param::page_size() as u64;
        let read = counted.device_read_bytes;
        let _ = write!(text, "  the device read {}", mib(read));
        if needed > 0 {
            let _ = write!(text, " ({:.2} x what came in)", read as f64 / needed as f64);
        }
        let _ = writeln!(text, "; {} faults waited for it", counted.major_faults);
    }
    if settings.mode.mirrors() && !whole.budgets.is_empty() {
        let Modes { userfault, pagecache, .. } = whole.modes;
        let _ = writeln!(
            text,
            "  `userfault` mode: {}; `pagecache` mode: {}",
            mappings(userfault),
            mappings(pagecache)
        );
    }
    if let Some(why) = settings.inexact.as_ref().filter(|_| !whole.budgets.is_empty()) {
        let _ = writeln!(text, "  `pagecache` mode for all, because: {why}");
    }
    for one in whole.modes.because() {
        text += &of_some("pagecache", &one, one.reason.text());
    }
    for one in &whole.left {
        text += &of_some("left to the kernel", one, one.reason.text());
    }
    if let Some(refusal) = &whole.refusal {
        let _ = writeln!(text, "  refused, because: {}", printable(refusal));
    }
    if let Some(error) = &whole.error {
        let _ = writeln!(text, "  touches of a page were SIGBUS: {}", printable(error));
    }
    text
}

/// What is read instead of mapped, or written, is not within the budget, unless that is wanted.
fn of_reads(settings: &Settings, whole: &Whole) -> String {
    let hint = "with --files this is kept within the budget, too";
    let Unkept { read, written } = whole.unkept;
    let said = match (read, written) {
        _ if settings.files => return String::new(),
        (0, 0) if whole.budgets.is_empty() => "if it reads files, --files keeps them".to_owned(),
        (0, 0) => return String::new(),
        (_, 0) => format!("it read {} of large files, not mapped: {hint}", mib(read)),
        (0, _) => format!("it wrote {} to large files: {hint}", mib(written)),
        _ => format!("it read {} of large files, wrote {}: {hint}", mib(read), mib(written)),
    };
    format!("  {said}\n")
}

/// Mappings that one reason concerns.
fn of_some<R>(what: &str, some: &LeftAlone<R>, why: &str) -> String {
    let first = some.first.as_deref().map(|path| format!(" ({})", printable(path)));
    let first = first.unwrap_or_default();
    format!("  {what}: {}, {}: {why}{first}\n", mappings(some.count), mib(some.bytes))
}

fn of_budget(budget: &Budget, settings: &Settings, ended: bool) -> String {
    let Budget { glob, mappings: count, read_files, files, figures } = budget;
    let of = glob.as_ref().map(|glob| format!(" of {}", printable(glob))).unwrap_or_default();
    let max = mib(figures.max_bytes);
    let bound = settings.bound.as_ref().filter(|_| glob.is_none());
    let bound = bound.map(|what| format!(" ({})", printable(what))).unwrap_or_default();
    let now = if ended { "at its end" } else { "now" };
    let read = match read_files {
        0 => String::new(),
        1 => ", 1 file read or written".to_owned(),
        count => format!(", {count} files read or written"),
    };
    // Where pages came in and were gone before the next count.
    let peak = match figures.peak_bytes {
        0 if figures.faults > 0 => "for too short a time to be measured".to_owned(),
        bytes if bytes > figures.max_bytes && figures.peak_dirty_bytes > 0 => {
            let dirty = mib(figures.peak_dirty_bytes);
            format!("{} at most, of which {dirty} were not written yet", mib(bytes))
        }
        bytes => format!("{} at most", mib(bytes)),
    };
    let auto = figures.auto.as_ref().map(|auto| of_auto(auto, now)).unwrap_or_default();
    format!(
        "  budget{of}: {max}{bound}, {}{read} ({})\n    in memory {peak}, {} {now}; {} pages came \
         in, {} of them again; {} evicted\n{auto}",
        mappings(*count),
        printable(&files.join(", ")),
        mib(figures.resident_bytes),
        figures.faults,
        figures.refaults,
        figures.evicted
    )
}

/// Of the accesses this part may miss, besides the first of each page.
const TARGET: f64 = 0.02;

fn advised((glob, curve): &(Option<String>, Curve)) -> Advised<'_> {
    Advised { glob: glob.as_deref(), curve: curve.into() }
}

fn of_curve((glob, curve): &(Option<String>, Curve)) -> String {
    let of = glob.as_ref().map(|glob| format!(" for {}", printable(glob))).unwrap_or_default();
    let mut text = format!("  advice{of}: {}\n", curve.advice(TARGET));
    for line in curve.to_string().lines() {
        let _ = writeln!(text, "    {line}");
    }
    text
}

fn of_auto(auto: &AutoFigures, now: &str) -> String {
    let ms = auto.waited_us / 1000;
    format!(
        "    it set itself: {} on average, {} at least, {} at most, {} {now}; {} used on average; \
         waited {ms} ms for pages that came again\n",
        mib(auto.mean_bytes),
        mib(auto.least_bytes),
        mib(auto.most_bytes),
        mib(auto.limit_bytes),
        mib(auto.mean_usage_bytes)
    )
}

fn mappings(count: u64) -> String {
    format!("{count} mapping{}", if count == 1 { "" } else { "s" })
}

fn mib(bytes: u64) -> String {
    let tenths = bytes.saturating_mul(10) >> 20;
    format!("{}.{} MiB", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budgets::Figures;

    fn curve() -> Curve {
        let point = |(bytes, misses)| lowtide_status::Point { bytes, misses };
        let points = [(0, 1000.0), (1 << 20, 600.0), (4 << 20, 50.0)].map(point).into();
        let (accesses, cold) = (1000.0, 50.0);
        let published =
            lowtide_status::Curve { accesses, cold, points, ..lowtide_status::Curve::default() };
        Curve::from(&published)
    }

    fn whole() -> Whole {
        let figures = Figures { max_bytes: 8 << 20, faults: 1, ..Figures::default() };
        let files = vec!["/data/a \"b\"".to_owned()];
        let left = LeftAlone { reason: Reason::Locked, count: 2, bytes: 3 << 20, first: None };
        Whole {
            budgets: vec![Budget {
                glob: Some("*.a".into()),
                mappings: 1,
                read_files: 2,
                files,
                figures,
            }],
            curves: vec![(Some("*.a".into()), curve())],
            io: IoStat::default(),
            modes: Modes::default(),
            refusal: Some("no scan".into()),
            error: Some("no device".into()),
            left: vec![left],
            reads_lost: Some(3),
            unkept: Unkept { read: 5 << 20, written: 0 },
            ended: true,
        }
    }

    #[test]
    fn the_names_in_the_json_are_an_interface() {
        let counted =
            ProcessStat { major_faults: 6, device_read_bytes: 7, ..ProcessStat::default() };
        let settings = Settings { inexact: Some("no call".into()), ..Settings::new(8 << 20) };
        let line = json(&settings, "x", counted, &whole());
        assert!(line.ends_with("}\n") && line.lines().count() == 1);
        let line: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        let names = |value: &serde_json::Value| -> Vec<String> {
            value.as_object().expect("an object").keys().cloned().collect()
        };
        assert_eq!(
            names(&line).join(" "),
            "budgets curves device_read_bytes error inexact left_alone lowtide major_faults \
             mappings max_bytes mode pagecache_because pid program read_ahead_pages \
             read_ahead_wasted_pages reads_lost refusal unkept_read_bytes \
             unkept_written_bytes"
        );
        assert_eq!(
            names(&line["budgets"][0]).join(" "),
            "evicted faults files glob mappings max_bytes part_bytes peak_bytes \
             peak_dirty_bytes read_files refaults resident_bytes"
        );
        assert_eq!(
            names(&line["curves"][0]).join(" "),
            "accesses at_once_bytes cold error glob missed points samples seconds"
        );
        assert_eq!(names(&line["left_alone"][0]).join(" "), "bytes count reason");
        assert_eq!(line["left_alone"][0]["reason"], "locked");
    }

    #[test]
    fn the_text_says_the_same() {
        let counted =
            ProcessStat { major_faults: 6, device_read_bytes: 8192, ..ProcessStat::default() };
        let inexact = Some("no call".into());
        let settings = Settings { inexact, advise: true, ..Settings::new(8 << 20) };
        let said = text(&settings, "x", counted, &whole());
        for part in [
            "budget of *.a: 8.0 MiB, 1 mapping, 2 files read or written (/data/a \"b\")",
            "in memory for too short a time to be measured, 0.0 MiB at its end; 1 pages",
            "it read 5.0 MiB of large files, not mapped: with --files this is kept",
            "the device read 0.0 MiB (2.00 x what came in); 6 faults waited",
            "advice for *.a: with 4.1 MiB 5.0 % of accesses miss (5.0 % with any budget, being",
            "1.0 MiB        600   60.0 %",
            "2 mappings, 3.0 MiB: locked in memory",
            "`pagecache` mode for all, because: no call",
            "refused, because: no scan",
            "were SIGBUS: no device",
        ] {
            assert!(said.contains(part), "{part} is not in {said}");
        }
        let hostile = || "\u{1b}]0;owned\u{7}\n\u{9b}2J".to_owned();
        let mut whole = whole();
        whole.budgets[0].files = vec![hostile()];
        whole.budgets[0].glob = Some(hostile());
        whole.left[0].first = Some(hostile());
        (whole.refusal, whole.error) = (Some(hostile()), Some(hostile()));
        let said = text(&settings, &hostile(), counted, &whole);
        assert!(!said.contains(|c: char| c.is_control() && c != '\n'), "{said:?}");
        assert_eq!(said.matches("?]0;owned???2J").count(), 6, "{said}");
        let plain = Settings::new(8 << 20);
        let nothing = text(&plain, "x", counted, &Whole::default());
        assert!(nothing.contains("no file mapping to keep within 8.0 MiB\n"), "{nothing}");
        assert!(nothing.contains("if it reads files, --files keeps them"), "{nothing}");
        let mut only_reads = Whole::default();
        for (read, written, words) in [
            (3, 0, "it read 3.0 MiB of large files, not mapped: with"),
            (0, 4, "it wrote 4.0 MiB to large files: with"),
            (3, 4, "it read 3.0 MiB of large files, wrote 4.0 MiB: with"),
        ] {
            only_reads.unkept = Unkept { read: read << 20, written: written << 20 };
            let said = text(&plain, "x", counted, &only_reads);
            assert!(said.contains(words), "{said}");
        }
        let kept = Settings { files: true, ..plain };
        let said = text(&kept, "x", counted, &only_reads);
        assert!(!said.contains("read"), "{said}");
    }

    #[test]
    fn a_figure_says_when_it_was_and_a_bound_where_it_is_from() {
        let settings = Settings { bound: Some("a part".into()), ..Settings::new(8 << 20) };
        let mut whole = whole();
        let auto = AutoFigures { limit_bytes: 3 << 20, ..AutoFigures::default() };
        whole.budgets[0].figures.auto = Some(auto);
        let of = |whole: &Whole| text(&settings, "x", ProcessStat::default(), whole);
        let said = of(&whole);
        assert!(
            said.contains("0.0 MiB at its end") && said.contains("3.0 MiB at its end"),
            "{said}"
        );
        assert!(!said.contains("a part"), "the budget of a glob was given: {said}");
        (whole.budgets[0].figures.peak_bytes, whole.budgets[0].figures.peak_dirty_bytes) =
            (9 << 20, 2 << 20);
        let said = of(&whole);
        let dirty = "9.0 MiB at most, of which 2.0 MiB were not written yet, 0.0 MiB at";
        assert!(said.contains(dirty), "{said}");
        (whole.ended, whole.budgets[0].glob) = (false, None);
        let said = of(&whole);
        assert!(said.contains("0.0 MiB now") && said.contains("3.0 MiB now"), "{said}");
        assert!(said.contains("budget: 8.0 MiB (a part), 1 mapping"), "{said}");
    }
}
