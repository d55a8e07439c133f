//! Promise: what belongs to a program stays the program's, in every way, but for what
//! `guest/differs.csv` lists.
//!
//! A program says what it owns, row by row, at several moments (`guest/guest.h`), once with lowtide
//! and once without, and both are compared. A difference that the list has not is one that lowtide
//! must not make; one that is gone must leave the list. The table of `docs/production.md` is made
//! of the list.
//!
//! ```text
//! cargo test -p lowtide-programs --test it guest:: -- --nocapture
//! GUEST_WAY=c GUEST_ROW=setuid cargo test ...         one way, one row of acts; or `look`
//! GUEST_WRITE=1 cargo test ...                         writes docs/production.md
//! ```

#![allow(clippy::print_stdout, reason = "the table is for people")]

use crate::python;
use lowtide_programs::play::{End, watch};
use lowtide_programs::stage::Stage;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const HERE: &str = env!("CARGO_MANIFEST_DIR");
/// A play hangs that takes longer.
const LIMIT: Duration = Duration::from_secs(30);
/// Plays at a time.
const AT_A_TIME: usize = 4;
/// Rows at least: a guest that says nothing is like any other.
const ROWS: usize = 60;
const SOURCES: [&str; 5] = ["guest.c", "observer.c", "status.c", "reads.c", "acts.c"];
const BEGIN: &str = "<!-- guest: begin -->\n";
const FINISH: &str = "<!-- guest: end -->\n";

/// A way in which lowtide comes into a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Way {
    name: &'static str,
    /// In the table.
    title: &'static str,
    program: Program,
    /// The program's first argument.
    how: &'static str,
    /// That of the same program without lowtide.
    plain: &'static str,
    /// Options of `lowtide run`, if it comes so.
    options: &'static [&'static str],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Program {
    Plain,
    C,
    Rust,
    Python,
}

const WAYS: [Way; 8] = {
    use Program::{C, Plain, Python, Rust};
    const fn way(
        name: &'static str,
        title: &'static str,
        program: Program,
        how: &'static str,
        plain: &'static str,
        options: &'static [&'static str],
    ) -> Way {
        Way { name, title, program, how, plain, options }
    }
    [
        way("run-userfault", "`run`", Plain, "plain", "plain", &["--mode", "userfault"]),
        way(
            "run-pagecache",
            "`run`, page cache",
            Plain,
            "plain",
            "plain",
            &["--mode", "pagecache"],
        ),
        way("run-read", "`run --files`", Plain, "plain", "plain", &["--files"]),
        way("rust", "Rust", Rust, "userfault", "plain", &[]),
        way("rust-pagecache", "Rust, page cache", Rust, "pagecache", "plain", &[]),
        way("c", "C", C, "kept", "plain", &[]),
        way("memmap2", "memmap2", Rust, "memmap2", "plain-map", &[]),
        way("python", "Python", Python, "kept", "plain", &[]),
    ]
};

/// What plays need, in a folder that goes with it.
struct Guest {
    stage: Stage,
    /// The acts that the library knows.
    acts: Vec<String>,
}

fn compile(command: &mut Command) {
    let output = command.output().expect("a C compiler");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
}

impl Guest {
    fn build() -> Self {
        let stage = Stage::build(Path::new(env!("CARGO_TARGET_TMPDIR")), None);
        let guest = Self { stage: stage.expect("what plays need"), acts: Vec::new() };
        let sources = Path::new(HERE).join("guest");
        let cc = || {
            let mut cc = Command::new("cc");
            cc.args(["-O1", "-g", "-pthread", "-Wall", "-Wextra", "-Werror"]);
            cc
        };
        let library = guest.path("libguest.so");
        compile(
            cc().args(["-shared", "-fPIC", "-o"])
                .arg(&library)
                .args(SOURCES.map(|name| sources.join(name))),
        );
        let folder = guest.stage.folder().display().to_string();
        let found = [format!("-L{folder}"), "-lguest".into(), format!("-Wl,-rpath,{folder}")];
        compile(
            cc().arg("-o").arg(guest.path("plain")).arg(sources.join("ways/plain.c")).args(&found),
        );
        // The name that the library says it has, beside the file that Cargo makes.
        let built = guest.stage.lowtide.with_file_name("liblowtide_c.so");
        std::os::unix::fs::symlink(&built, guest.path("liblowtide.so.0")).expect("a link");
        let header = format!("-I{HERE}/../../bindings/c/include");
        let mut c = cc();
        c.arg("-o").arg(guest.path("c")).arg(sources.join("ways/c.c")).arg(header).args(&found);
        compile(c.arg(&built));
        let folder = guest.path("package");
        python::package(guest.stage.lowtide.parent().expect("a folder"), &folder);
        let acts = fs::read_to_string(sources.join("acts.c")).expect("the acts");
        let table = acts.split_once("ACTS[] = {").and_then(|(_, rest)| rest.split_once("};"));
        let lines = table.expect("a table of acts").0.lines();
        let acts = lines.filter_map(|line| line.split('"').nth(1)).map(str::to_owned).collect();
        Self { acts, ..guest }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.stage.folder().join(name)
    }

    /// What a program says that does one act, or looks at everything.
    fn play(&self, way: Option<Way>, plain: Way, act: &str) -> Said {
        let program = way.unwrap_or(plain);
        let folder = tempfile::Builder::new().prefix("guest-").tempdir_in(self.stage.folder());
        let folder = folder.expect("a folder");
        let lowtide = &self.stage.lowtide;
        let (program, how) = match program.program {
            Program::Plain => (vec![self.path("plain")], "plain"),
            Program::C => (vec![self.path("c")], program.how),
            Program::Rust => (vec![lowtide.with_file_name("examples/guest")], program.how),
            Program::Python => {
                (vec!["python3".into(), Path::new(HERE).join("guest/ways/python.py")], program.how)
            }
        };
        let how = if way.is_none() { plain.plain } else { how };
        let mut command = match way {
            Some(way) if !way.options.is_empty() => {
                let mut command = Command::new(lowtide);
                command.args(["run", "--max", "256M", "--threshold", "64K"]);
                command.args(["--summary", "/dev/null"]).args(way.options).arg("--");
                command.arg(&program[0]);
                command
            }
            _ => Command::new(&program[0]),
        };
        if plain.options.is_empty() {
            command.env("LOWTIDE_MAX", "256M");
        }
        command.args(&program[1..]).arg(how).arg(act);
        command
            .env("GUEST_PLAIN", self.path("plain"))
            .env("GUEST_LIBRARY", self.path("libguest.so"));
        command.env("PYTHONPATH", self.path("package")).env("PYTHONDONTWRITEBYTECODE", "1");
        command.env("LD_LIBRARY_PATH", self.stage.folder()).env_remove("LD_PRELOAD");
        command.current_dir(folder.path()).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let (said, complained, end) = watch(&mut child, LIMIT).expect("its end");
        let text = String::from_utf8_lossy(&said).into_owned();
        Said::new(&text, &end, &String::from_utf8_lossy(&complained), act)
    }
}

/// Values by row and moment.
#[derive(Debug, Default)]
struct Said(BTreeMap<String, BTreeMap<String, String>>);

impl Said {
    fn new(text: &str, end: &End, complained: &str, act: &str) -> Self {
        let mut all = Self::default();
        for line in text.lines() {
            let mut parts = line.splitn(3, '|');
            let (Some(moment), Some(row), Some(value)) = (parts.next(), parts.next(), parts.next())
            else {
                continue;
            };
            // What an act says in several lines is one value.
            let before = all.0.entry(row.into()).or_default().entry(moment.into()).or_default();
            if !before.is_empty() {
                before.push_str("; ");
            }
            before.push_str(value);
        }
        let is_look = act == "look";
        let end = match end {
            End::Never { places, .. } => format!("does not end: {}", places.join("; ")),
            other => format!("{other:?}"),
        };
        let moment = if is_look { "end" } else { "act" };
        let row = if is_look { "a program that ends" } else { act };
        let value = all.0.entry(row.into()).or_default().entry(moment.into()).or_default();
        // What the program's language says of a signal is its own.
        let said = complained.lines().next().filter(|_| !end.contains("Signal"));
        *value = [Some(value.as_str()), Some(end.as_str()), said]
            .into_iter()
            .flatten()
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join("; ");
        all
    }

    /// Rows that differ, whether they do at the end, and the first difference. A way that leaves a
    /// moment out is compared at the others.
    fn differences(&self, plain: &Self) -> BTreeMap<String, (bool, String)> {
        let mut all = BTreeMap::new();
        for (row, moments) in &self.0 {
            let differs = |(moment, value): (&String, &String)| {
                let should = plain.0.get(row).and_then(|moments| moments.get(moment));
                (should != Some(value)).then(|| {
                    let should = should.map_or("nothing", String::as_str);
                    (moment.clone(), format!("{moment}: {value} (plain: {should})"))
                })
            };
            let found: Vec<_> = moments.iter().filter_map(differs).collect();
            if let Some((_, text)) = found.first() {
                let stays = found.iter().any(|(moment, _)| moment == "end" || moment == "act");
                all.insert(row.clone(), (stays, text.clone()));
            }
        }
        for row in plain.0.keys().filter(|row| !self.0.contains_key(*row)) {
            all.insert(row.clone(), (true, "it says nothing".into()));
        }
        all
    }
}

/// A line of the list: a row, its ways, when, and why.
struct Differs {
    row: String,
    ways: Vec<String>,
    stays: bool,
    why: String,
}

fn list() -> Vec<Differs> {
    let text = fs::read_to_string(Path::new(HERE).join("guest/differs.csv")).expect("the list");
    let line = |line: &str| {
        let mut parts = line.splitn(4, ',');
        let mut next = || parts.next().unwrap_or_else(|| panic!("four columns: {line}")).to_owned();
        let (row, ways, when, why) = (next(), next(), next(), next());
        let ways: Vec<_> = ways.split(' ').map(str::to_owned).collect();
        for way in &ways {
            assert!(WAYS.iter().any(|known| known.name == way), "no way {way}: {line}");
        }
        let stays = match when.as_str() {
            "stays" => true,
            "meanwhile" => false,
            _ => panic!("`stays` or `meanwhile`: {line}"),
        };
        Differs { row, ways, stays, why }
    };
    text.lines().skip(1).map(line).collect()
}

/// All plays of a way, several at a time.
fn plays(guest: &Guest, way: Option<Way>, plain: Way) -> Said {
    let only = std::env::var("GUEST_ROW").ok();
    let acts = guest.acts.iter().map(String::as_str).chain(["look"]);
    let acts: Vec<_> = acts.filter(|act| only.as_deref().is_none_or(|only| only == *act)).collect();
    let (next, all) = (AtomicUsize::new(0), Mutex::new(Said::default()));
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let Some(act) = acts.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let said = guest.play(way, plain, act);
                    all.lock().expect("no panic").0.extend(said.0);
                }
            });
        }
    });
    all.into_inner().expect("no panic")
}

#[test]
fn what_belongs_to_a_program_stays_the_programs_in_every_way() {
    let guest = Guest::build();
    let only = std::env::var("GUEST_WAY").ok();
    let is_part = std::env::var("GUEST_ROW").is_ok();
    let list = list();
    let mut plains: BTreeMap<(Program, &str), Said> = BTreeMap::new();
    let (mut wrong, mut rows) = (Vec::new(), BTreeSet::new());
    for way in WAYS.iter().filter(|way| only.as_deref().is_none_or(|only| only == way.name)) {
        if way.program == Program::Python && !python::is_here() {
            println!("SKIPPED: no Python 3.11 for the way {}", way.name);
            continue;
        }
        let key = (way.program, way.plain);
        let plain = plains.entry(key).or_insert_with(|| plays(&guest, None, *way));
        rows.extend(plain.0.keys().cloned());
        let said = plays(&guest, Some(*way), *way);
        let found = said.differences(plain);
        let of_way = |line: &&Differs| line.ways.iter().any(|name| name == way.name);
        println!("\n{}: {} rows, {} differ", way.name, said.0.len(), found.len());
        for (row, (stays, text)) in &found {
            let when = if *stays { "stays" } else { "meanwhile" };
            let known = list.iter().filter(of_way).find(|line| line.row == *row);
            let is_known = known.is_some_and(|line| line.stays == *stays);
            println!("  {} {row} ({when}): {text}", if is_known { ' ' } else { '!' });
            if !is_known {
                wrong.push(format!("{row},{},{when}: {text}", way.name));
            }
        }
        for line in list.iter().filter(of_way).filter(|_| !is_part) {
            if !found.contains_key(&line.row) {
                wrong.push(format!(
                    "`{}` does not differ any more in {}: take it from guest/differs.csv",
                    line.row, way.name
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{} in all:\n{}", wrong.len(), wrong.join("\n"));
    assert!(rows.len() >= ROWS || is_part, "{} rows", rows.len());
}

/// The ways in which a row differs, and whether to the end.
type Signs = BTreeMap<String, bool>;

/// The table of the page: rows that differ, and where; those that differ alike are one. `~` is only
/// while lowtide serves it.
fn table() -> String {
    let mut text = String::from("| what differs |");
    for way in WAYS {
        text.push_str(&format!(" {} |", way.title));
    }
    text.push_str(" because |\n|---|");
    text.push_str(&"---|".repeat(WAYS.len() + 1));
    text.push('\n');
    // By reason, in the list's order: what differs where, and how.
    let mut reasons: Vec<(String, BTreeMap<String, Signs>)> = Vec::new();
    for line in list() {
        if reasons.iter().all(|(why, _)| *why != line.why) {
            reasons.push((line.why.clone(), BTreeMap::new()));
        }
        let rows = reasons.iter_mut().find(|(why, _)| *why == line.why).expect("it is there");
        let ways = rows.1.entry(line.row).or_default();
        ways.extend(line.ways.into_iter().map(|way| (way, line.stays)));
    }
    for (why, rows) in reasons {
        let mut alike: Vec<(Signs, Vec<String>)> = Vec::new();
        for (row, ways) in rows {
            match alike.iter_mut().find(|(known, _)| *known == ways) {
                Some((_, rows)) => rows.push(row),
                None => alike.push((ways, vec![row])),
            }
        }
        for (ways, rows) in alike {
            let sign = |way: &Way| match ways.get(way.name) {
                None => " |",
                Some(true) => " yes |",
                Some(false) => " ~ |",
            };
            let signs: String = WAYS.iter().map(sign).collect();
            text.push_str(&format!("| {} |{signs} {why} |\n", rows.join(", ")));
        }
    }
    text
}

#[test]
fn the_page_says_what_differs() {
    let path = Path::new(HERE).join("../../docs/production.md");
    let page = fs::read_to_string(&path).expect("the page");
    let (before, rest) = page.split_once(BEGIN).expect("a place for the table");
    let (now, after) = rest.split_once(FINISH).expect("its end");
    let table = table();
    if std::env::var_os("GUEST_WRITE").is_some() {
        fs::write(&path, [before, BEGIN, &table, FINISH, after].concat()).expect("the page");
    } else {
        assert!(now == table, "GUEST_WRITE=1 writes the table:\n{table}");
    }
}
