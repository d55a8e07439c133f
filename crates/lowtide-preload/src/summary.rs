//! What a process says at its end, or when it gets SIGUSR1: text for people, or a line of JSON.
//!
//! The names in the JSON are an interface: names may be added, none is renamed.

use crate::budgets::{AutoFigures, Figures, ReadAhead};
use crate::descriptors;
use crate::judge::Reason;
use crate::left::LeftAlone;
use crate::memory::HeapFigures;
use crate::ways::{Ways, Why};
use lowtide::budget::Curve;
use lowtide_run::settings::Settings;
use rustix::fs::{Mode, OFlags, open};
use serde::Serialize;
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
    /// Files that were read through descriptors, with `--read`.
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
    /// What was read ahead.
    pub(crate) read_ahead: ReadAhead,
    /// How mappings were kept.
    pub(crate) ways: Ways,
    /// Why the runtime refused a mapping.
    pub(crate) refusal: Option<String>,
    /// The first page that could not be brought into a mirror, and why.
    pub(crate) error: Option<String>,
    /// What was left to the kernel.
    pub(crate) left: Vec<LeftAlone>,
    /// Memory without a file.
    pub(crate) heap: Option<HeapFigures>,
    /// Reads that were seen and not counted, for lack of room, if reads are kept.
    pub(crate) reads_lost: Option<u64>,
}

/// What the kernel counts for this process.
#[derive(Clone, Copy, Debug, Serialize)]
struct Counted {
    /// Page faults that waited for a read: each is a stall.
    major_faults: u64,
    /// Bytes that the device read for this process, for whatever purpose.
    device_read_bytes: u64,
}

impl Counted {
    fn now() -> Self {
        let faults = lowtide_sys::pagemap::page_faults();
        Self { major_faults: faults.major, device_read_bytes: faults.read_bytes }
    }
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
    #[serde(flatten)]
    counted: Counted,
    #[serde(flatten)]
    read_ahead: ReadAhead,
    #[serde(skip_serializing_if = "Option::is_none")]
    refusal: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    mappings: Mappings,
    /// Memory without a file, with `--anon`.
    #[serde(skip_serializing_if = "Option::is_none")]
    anon: Option<&'a HeapFigures>,
    /// With `--read`.
    #[serde(skip_serializing_if = "Option::is_none")]
    reads_lost: Option<u64>,
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
    let counted = Counted::now();
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

fn json(settings: &Settings, program: &str, counted: Counted, whole: &Whole) -> String {
    fn row<R: Copy>(left: &LeftAlone<R>, name: fn(R) -> &'static str) -> Row<'_> {
        let LeftAlone { reason, count, bytes, first } = left;
        Row { reason: name(*reason), count: *count, bytes: *bytes, first: first.as_deref() }
    }
    let because = whole.ways.because();
    let Ways { userfault, pagecache, .. } = whole.ways;
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
        read_ahead: whole.read_ahead,
        refusal: whole.refusal.as_deref(),
        error: whole.error.as_deref(),
        mappings: Mappings { userfault, pagecache },
        anon: whole.heap.as_ref(),
        reads_lost: whole.reads_lost,
        pagecache_because: because.iter().map(|one| row(one, Why::name)).collect(),
        left_alone: whole.left.iter().map(|one| row(one, Reason::name)).collect(),
    };
    serde_json::to_string(&line).unwrap_or_default() + "\n"
}

fn text(settings: &Settings, program: &str, counted: Counted, whole: &Whole) -> String {
    let mut text = format!("lowtide: {program} ({})", std::process::id());
    if whole.budgets.is_empty() && whole.heap.is_some() {
        text.push('\n');
    } else if whole.budgets.is_empty() {
        let _ = writeln!(text, ": no file mapping to keep within {}", mib(settings.max));
    } else {
        text.push('\n');
    }
    if let Some(heap) = &whole.heap {
        text += &of_heap(heap);
        // A budget of files says it otherwise.
        let auto = heap.auto.as_ref().filter(|_| whole.budgets.is_empty());
        text += &auto.map(of_auto).unwrap_or_default();
    }
    for budget in &whole.budgets {
        text += &of_budget(budget);
    }
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
        let Ways { userfault, pagecache, .. } = whole.ways;
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
    for one in whole.ways.because() {
        text += &of_some("pagecache", &one, one.reason.text());
    }
    for one in &whole.left {
        text += &of_some("left to the kernel", one, one.reason.text());
    }
    if let Some(refusal) = &whole.refusal {
        let _ = writeln!(text, "  refused, because: {refusal}");
    }
    if let Some(error) = &whole.error {
        let _ = writeln!(text, "  touches of a page were SIGBUS: {error}");
    }
    text
}

/// Mappings that one reason concerns.
fn of_some<R>(what: &str, some: &LeftAlone<R>, why: &str) -> String {
    let first = some.first.as_ref().map(|path| format!(" ({path})")).unwrap_or_default();
    format!("  {what}: {}, {}: {why}{first}\n", mappings(some.count), mib(some.bytes))
}

fn of_heap(heap: &HeapFigures) -> String {
    let blocks = format!("{} block{}", heap.blocks, if heap.blocks == 1 { "" } else { "s" });
    let mut text = format!(
        "  memory without a file: {}, {blocks} of {}\n    in memory {} now, {} at most with what \
         is compressed; {} faults, {} pages came back from swap\n    in swap {}: {} of memory",
        mib(heap.max_bytes),
        mib(heap.bytes),
        mib(heap.resident_bytes),
        mib(heap.peak_bytes),
        heap.faults,
        heap.refaults,
        mib(heap.swapped_bytes),
        mib(heap.stored_bytes)
    );
    if let Some(ratio) = heap.ratio {
        let _ = write!(text, " ({ratio:.1} x)");
    }
    if heap.file_bytes > 0 {
        let _ = write!(text, ", {} of the swap file", mib(heap.file_bytes));
    }
    let _ = writeln!(
        text,
        "\n    not kept beside it: {} now, {} at most (small allocations, stacks, copies); of the \
         heap {} % was kept",
        mib(heap.outside_bytes),
        mib(heap.outside_peak_bytes),
        kept_part(heap)
    );
    if heap.forks > 0 {
        let _ = writeln!(text, "    copied for {} children", heap.forks);
    }
    if let Some(reason) = heap.given_back {
        let bytes = mib(heap.given_back_bytes);
        let _ = writeln!(text, "    {bytes} were given to the kernel, first: {reason}");
    }
    if let Some(error) = &heap.error {
        let _ = writeln!(text, "    a page could not be brought in (SIGBUS): {error}");
    }
    text
}

/// Hundredths of memory without a file that were kept, by the most that was seen of each.
fn kept_part(heap: &HeapFigures) -> u64 {
    let all = heap.kept_peak_bytes.saturating_add(heap.outside_peak_bytes);
    heap.kept_peak_bytes.saturating_mul(100) / all.max(1)
}

fn of_budget(budget: &Budget) -> String {
    let Budget { glob, mappings: count, read_files, files, figures } = budget;
    let of = glob.as_ref().map(|glob| format!(" of {glob}")).unwrap_or_default();
    let max = mib(figures.max_bytes);
    let read = match read_files {
        0 => String::new(),
        1 => ", 1 file read".to_owned(),
        count => format!(", {count} files read"),
    };
    // Where pages came in and were gone before the next count.
    let peak = match figures.peak_bytes {
        0 if figures.faults > 0 => "the most not measured: too short".to_owned(),
        bytes => format!("{} at most", mib(bytes)),
    };
    let auto = figures.auto.as_ref().map(of_auto).unwrap_or_default();
    format!(
        "  budget{of}: {max}, {}{read} ({})\n    in memory {} now, {peak}; {} pages came in, \
         {} of them again; {} evicted\n{auto}",
        mappings(*count),
        files.join(", "),
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
    let of = glob.as_ref().map(|glob| format!(" for {glob}")).unwrap_or_default();
    let mut text = format!("  advice{of}: {}\n", curve.advice(TARGET));
    for line in curve.to_string().lines() {
        let _ = writeln!(text, "    {line}");
    }
    text
}

fn of_auto(auto: &AutoFigures) -> String {
    let ms = auto.waited_us / 1000;
    format!(
        "    it set itself: {} on average, {} at least, {} at most, {} now; {} used on average; \
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
            read_ahead: ReadAhead { read_ahead_pages: 5, read_ahead_wasted_pages: 1 },
            ways: Ways::default(),
            refusal: Some("no scan".into()),
            error: Some("no device".into()),
            left: vec![left],
            heap: Some(HeapFigures {
                max_bytes: 8 << 20,
                ratio: Some(2.0),
                kept_peak_bytes: 3 << 20,
                outside_peak_bytes: 1 << 20,
                ..Default::default()
            }),
            reads_lost: Some(3),
        }
    }

    #[test]
    fn the_names_in_the_json_are_an_interface() {
        let counted = Counted { major_faults: 6, device_read_bytes: 7 };
        let settings = Settings { inexact: Some("no call".into()), ..Settings::new(8 << 20) };
        let line = json(&settings, "x", counted, &whole());
        assert!(line.ends_with("}\n") && line.lines().count() == 1);
        let line: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        let names = |value: &serde_json::Value| -> Vec<String> {
            value.as_object().expect("an object").keys().cloned().collect()
        };
        assert_eq!(
            names(&line).join(" "),
            "anon budgets curves device_read_bytes error inexact left_alone lowtide major_faults \
             mappings max_bytes mode pagecache_because pid program read_ahead_pages \
             read_ahead_wasted_pages reads_lost refusal"
        );
        assert_eq!(
            names(&line["budgets"][0]).join(" "),
            "evicted faults files glob mappings max_bytes part_bytes peak_bytes read_files \
             refaults resident_bytes"
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
        let counted = Counted { major_faults: 6, device_read_bytes: 8192 };
        let inexact = Some("no call".into());
        let settings = Settings { inexact, advise: true, ..Settings::new(8 << 20) };
        let said = text(&settings, "x", counted, &whole());
        for part in [
            "budget of *.a: 8.0 MiB, 1 mapping, 2 files read (/data/a \"b\")",
            "in memory 0.0 MiB now, the most not measured: too short; 1 pages came in",
            "the device read 0.0 MiB (2.00 x what came in); 6 faults waited",
            "memory without a file: 8.0 MiB, 0 blocks",
            "advice for *.a: with 4.1 MiB 5.0 % of accesses miss (5.0 % with any budget, being",
            "1.0 MiB        600   60.0 %",
            "in swap 0.0 MiB: 0.0 MiB of memory (2.0 x)",
            "1.0 MiB at most (small allocations, stacks, copies); of the heap 75 % was kept",
            "2 mappings, 3.0 MiB: locked in memory",
            "`pagecache` mode for all, because: no call",
            "refused, because: no scan",
            "were SIGBUS: no device",
        ] {
            assert!(said.contains(part), "{part} is not in {said}");
        }
        let nothing = text(&Settings::new(8 << 20), "x", counted, &Whole::default());
        assert!(nothing.contains("no file mapping to keep within 8.0 MiB"), "{nothing}");
    }
}
