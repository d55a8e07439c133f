//! Settings that `lowtide run` passes to the library in the program: environment variables.
//!
//! Every program that the first one starts inherits them, so the whole tree of processes has the
//! same settings, and shares one budget if a table for it can be made.
//!
//! | variable | meaning | if it is missing |
//! |---|---|---|
//! | `LOWTIDE_RUN_MAX` | the budget, in bytes | the library does nothing at all |
//! | `LOWTIDE_RUN_AUTO` | `BYTES MILLIONTHS`: its lower bound; what may be waited | fixed |
//! | `LOWTIDE_RUN_BOUND` | what its upper bound is, in words | the user has given it |
//! | `LOWTIDE_RUN_HIGH` | where trimming begins, in bytes | a little below the budget |
//! | `LOWTIDE_RUN_MODE` | `userfault`, `auto`: an exact budget, where possible | `pagecache` |
//! | `LOWTIDE_RUN_INEXACT` | why it is possible for no file, in words | it is, or is not wanted |
//! | `LOWTIDE_RUN_FILES` | `1`: what is read of files, and written, too | left to the kernel |
//! | `LOWTIDE_RUN_POLICY` | policy of the engine | the engine's default |
//! | `LOWTIDE_RUN_MAPS` | lines `BYTES GLOB`: files with a budget of their own | none |
//! | `LOWTIDE_RUN_THRESHOLD` | smaller mappings are left alone, in bytes | 1 MiB |
//! | `LOWTIDE_RUN_READ_AHEAD` | `keep`: the kernel reads ahead | lowtide reads ahead |
//! | `LOWTIDE_RUN_SUMMARY` | file to which summaries are appended | standard error |
//! | `LOWTIDE_RUN_JSON` | `1`: a summary is a line of JSON | text |
//! | `LOWTIDE_RUN_ADVISE` | `1`: a summary says how large the budget should be | it does not |
//! | `LOWTIDE_RUN_RECORD` | file to which accesses are recorded | none are |
//! | `LOWTIDE_RUN_WARM` | file with the pages that the first process had | the start is cold |
//! | `LOWTIDE_RUN_SHARE` | `by-benefit`: files get parts of a budget, by their curves | none has |
//! | `LOWTIDE_RUN_FOLLOW` | `0`: programs that the first one starts are left alone | followed |
//! | `LOWTIDE_RUN_SHARED` | table by which processes share the budget | each has one of its own |
//! | `LOWTIDE_RUN_PID` | the first process, which always gives a summary | none does so |
//! | `LOWTIDE_RUN_GLIBC` | the library for programs of glibc | they start without one |
//! | `LOWTIDE_RUN_MUSL` | the library for programs of musl | the same |
//!
//! `LD_PRELOAD` has the library itself, before what was there already.
//!
//! The command and the library both use this file, so they cannot differ.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::elf::CLibrary;

const MAX: &str = "LOWTIDE_RUN_MAX";
const AUTO: &str = "LOWTIDE_RUN_AUTO";
const BOUND: &str = "LOWTIDE_RUN_BOUND";
const HIGH: &str = "LOWTIDE_RUN_HIGH";
const MODE: &str = "LOWTIDE_RUN_MODE";
const INEXACT: &str = "LOWTIDE_RUN_INEXACT";
const FILES: &str = "LOWTIDE_RUN_FILES";
const POLICY: &str = "LOWTIDE_RUN_POLICY";
const MAPS: &str = "LOWTIDE_RUN_MAPS";
const THRESHOLD: &str = "LOWTIDE_RUN_THRESHOLD";
const READ_AHEAD: &str = "LOWTIDE_RUN_READ_AHEAD";
const SUMMARY: &str = "LOWTIDE_RUN_SUMMARY";
const JSON: &str = "LOWTIDE_RUN_JSON";
const ADVISE: &str = "LOWTIDE_RUN_ADVISE";
const RECORD: &str = "LOWTIDE_RUN_RECORD";
const WARM: &str = "LOWTIDE_RUN_WARM";
const SHARE: &str = "LOWTIDE_RUN_SHARE";
const FOLLOW: &str = "LOWTIDE_RUN_FOLLOW";
const SHARED: &str = "LOWTIDE_RUN_SHARED";
const PID: &str = "LOWTIDE_RUN_PID";
const GLIBC: &str = "LOWTIDE_RUN_GLIBC";
const MUSL: &str = "LOWTIDE_RUN_MUSL";

/// Every variable of ours, for a process that shall not hand them on.
pub const ALL: [&str; 22] = [
    MAX, AUTO, BOUND, HIGH, MODE, INEXACT, FILES, POLICY, MAPS, THRESHOLD, READ_AHEAD, SUMMARY,
    JSON, ADVISE, RECORD, WARM, SHARE, FOLLOW, SHARED, PID, GLIBC, MUSL,
];

/// The variable of the dynamic linker that names libraries to load first.
pub const LD_PRELOAD: &str = "LD_PRELOAD";

/// Mappings, and files that are read, below this are left alone, unless a glob names their file.
pub const THRESHOLD_DEFAULT: u64 = 1 << 20;

/// How mappings of files are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The kernel's own, watched and trimmed.
    #[default]
    Pagecache,
    /// Mirrors of files that do not change, since the user demands it.
    Userfault,
    /// Mirrors where they are the better way, since they are possible.
    Auto,
    /// The same, but each mapping changes its way at every look: for proofs.
    Restless,
}

impl Mode {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pagecache => "pagecache",
            Self::Userfault => "userfault",
            Self::Auto => "auto",
            Self::Restless => "restless",
        }
    }

    /// Whether there are mirrors of files that do not change.
    pub const fn mirrors(self) -> bool {
        !matches!(self, Self::Pagecache)
    }
}

const BY_BENEFIT: &str = "by-benefit";

/// A budget that sets itself, up to the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Auto {
    /// Its lower bound, in bytes.
    pub least: u64,
    /// Millionths of the time that threads may wait for pages that it has dropped.
    pub stall: u32,
}

impl Auto {
    fn to_env(self) -> String {
        let Self { least, stall } = self;
        format!("{least} {stall}")
    }

    fn from_env(text: &str) -> Option<Self> {
        let (least, stall) = text.split_once(' ')?;
        Some(Self { least: least.parse().ok()?, stall: stall.parse().ok()? })
    }
}

/// What the library is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The budget, in bytes.
    pub max: u64,
    /// The budget sets itself below that.
    pub auto: Option<Auto>,
    /// What the budget is, in words, where it is not what the user has given.
    pub bound: Option<String>,
    /// Where trimming begins, in bytes.
    pub high: Option<u64>,
    /// How mappings of files are kept.
    pub mode: Mode,
    /// Why mirrors are out of the question, where they would have been made.
    pub inexact: Option<String>,
    /// What is read of files, and written, through descriptors is kept, too.
    pub files: bool,
    /// Name of the policy.
    pub policy: Option<String>,
    /// Files with a budget of their own: a glob, and bytes. The first that matches counts.
    pub maps: Vec<(OsString, u64)>,
    /// Smaller mappings are left alone.
    pub threshold: u64,
    /// The kernel's read-ahead stays as it is.
    pub keep_read_ahead: bool,
    /// Where summaries go; standard error if there is none.
    pub summary: Option<PathBuf>,
    /// Summaries are JSON.
    pub json: bool,
    /// Summaries say how large the budget should be.
    pub advise: bool,
    /// Where the first process records accesses; those that it starts add their number to the name.
    pub record: Option<PathBuf>,
    /// Where the first process finds and leaves the list of pages to begin with.
    pub warm: Option<PathBuf>,
    /// A budget is divided among its files by their curves.
    pub by_benefit: bool,
    /// Programs that the first one starts are served too.
    pub follow: bool,
    /// The table by which processes share the budget.
    pub shared: Option<PathBuf>,
    /// The first process.
    pub pid: Option<u32>,
    /// Our library for programs of glibc.
    pub glibc: Option<PathBuf>,
    /// Our library for programs of musl.
    pub musl: Option<PathBuf>,
}

/// Where our library for programs of a C library is.
pub fn library(of: CLibrary, get: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    get(variable(of)).map(PathBuf::from)
}

const fn variable(of: CLibrary) -> &'static str {
    match of {
        CLibrary::Gnu => GLIBC,
        CLibrary::Musl => MUSL,
    }
}

/// One more byte than a path may have, with its end.
const TOO_LONG: usize = 4096;

/// A library, as the list of the dynamic linker names it ([`LD_PRELOAD`]).
///
/// What a C library starts by itself (`system(3)`, `execl(3)`) has the list of its parent, whatever
/// it is made for; and a program of glibc ends if it gets the library for musl. But the linker of
/// glibc passes over a name that is longer than a path may be, and says nothing. For it names end
/// at a colon or a blank; for that of musl at any white space. So what is behind this name counts
/// for one of them only. It is a character that no terminal shows.
pub fn in_list(of: CLibrary, path: &Path) -> OsString {
    let mut name = path.as_os_str().as_bytes().to_vec();
    if of == CLibrary::Musl {
        name.resize(name.len() + TOO_LONG, b'\r');
    }
    OsString::from_vec(name)
}

impl Settings {
    /// Settings with this budget, and the default of everything else.
    pub fn new(max: u64) -> Self {
        Self {
            max,
            auto: None,
            bound: None,
            high: None,
            mode: Mode::Pagecache,
            inexact: None,
            files: false,
            policy: None,
            maps: Vec::new(),
            threshold: THRESHOLD_DEFAULT,
            keep_read_ahead: false,
            summary: None,
            json: false,
            advise: false,
            record: None,
            warm: None,
            by_benefit: false,
            follow: true,
            shared: None,
            pid: None,
            glibc: None,
            musl: None,
        }
    }

    /// Whether this process is the first one.
    pub fn is_first(&self) -> bool {
        self.pid == Some(std::process::id())
    }

    /// The variables that say this. Variables of [`ALL`] that are not among them must be unset.
    pub fn to_env(&self) -> Vec<(&'static str, OsString)> {
        let mut all: Vec<(&'static str, OsString)> = vec![
            (MAX, self.max.to_string().into()),
            (THRESHOLD, self.threshold.to_string().into()),
        ];
        let number = |value: Option<u64>| value.map(|bytes| bytes.to_string().into());
        all.extend(self.auto.map(|auto| (AUTO, auto.to_env().into())));
        all.extend(number(self.high).map(|bytes| (HIGH, bytes)));
        all.extend(number(self.pid.map(u64::from)).map(|pid| (PID, pid)));
        all.extend(self.bound.as_ref().map(|what| (BOUND, what.into())));
        all.extend(self.inexact.as_ref().map(|why| (INEXACT, why.into())));
        all.extend(self.policy.as_ref().map(|name| (POLICY, name.into())));
        all.extend(self.summary.as_ref().map(|path| (SUMMARY, path.into())));
        all.extend(self.record.as_ref().map(|path| (RECORD, path.into())));
        all.extend(self.warm.as_ref().map(|path| (WARM, path.into())));
        all.extend(self.shared.as_ref().map(|path| (SHARED, path.into())));
        all.extend(self.glibc.as_ref().map(|path| (GLIBC, path.into())));
        all.extend(self.musl.as_ref().map(|path| (MUSL, path.into())));
        let flags = [
            (self.files, FILES, "1"),
            (self.mode.mirrors(), MODE, self.mode.name()),
            (self.keep_read_ahead, READ_AHEAD, "keep"),
            (self.json, JSON, "1"),
            (self.advise, ADVISE, "1"),
            (self.by_benefit, SHARE, BY_BENEFIT),
            (!self.follow, FOLLOW, "0"),
        ];
        let set = flags.into_iter().filter(|(is_set, ..)| *is_set);
        all.extend(set.map(|(_, name, value)| (name, value.into())));
        let mut lines = Vec::new();
        for (glob, bytes) in &self.maps {
            lines.extend_from_slice(format!("{bytes} ").as_bytes());
            lines.extend_from_slice(glob.as_bytes());
            lines.push(b'\n');
        }
        if !lines.is_empty() {
            all.push((MAPS, OsString::from_vec(lines)));
        }
        all
    }

    /// What the variables say; `None` without a budget. What cannot be read counts as missing: the
    /// command wrote it, and a program must start whatever is in its environment.
    pub fn from_env(get: impl Fn(&str) -> Option<OsString>) -> Option<Self> {
        let text = |name| get(name).and_then(|value| value.into_string().ok());
        let number = |name| text(name).and_then(|value| value.parse::<u64>().ok());
        let mut settings = Self::new(number(MAX)?);
        settings.auto = text(AUTO).as_deref().and_then(Auto::from_env);
        settings.bound = text(BOUND);
        settings.high = number(HIGH);
        let all = [Mode::Userfault, Mode::Auto, Mode::Restless];
        let named = |mode: &Mode| text(MODE).as_deref() == Some(mode.name());
        settings.mode = all.into_iter().find(named).unwrap_or_default();
        settings.inexact = text(INEXACT);
        settings.files = text(FILES).as_deref() == Some("1");
        settings.policy = text(POLICY);
        settings.threshold = number(THRESHOLD).unwrap_or(THRESHOLD_DEFAULT);
        settings.keep_read_ahead = text(READ_AHEAD).as_deref() == Some("keep");
        settings.summary = get(SUMMARY).map(PathBuf::from);
        settings.json = text(JSON).as_deref() == Some("1");
        settings.advise = text(ADVISE).as_deref() == Some("1");
        settings.record = get(RECORD).map(PathBuf::from);
        settings.warm = get(WARM).map(PathBuf::from);
        settings.by_benefit = text(SHARE).as_deref() == Some(BY_BENEFIT);
        settings.follow = text(FOLLOW).as_deref() != Some("0");
        settings.shared = get(SHARED).map(PathBuf::from);
        settings.pid = number(PID).and_then(|pid| u32::try_from(pid).ok());
        settings.glibc = library(CLibrary::Gnu, &get);
        settings.musl = library(CLibrary::Musl, &get);
        let lines = get(MAPS).unwrap_or_default();
        let lines = lines.as_bytes().split(|byte| *byte == b'\n');
        settings.maps = lines.filter_map(map_of_line).collect();
        Some(settings)
    }
}

fn map_of_line(line: &[u8]) -> Option<(OsString, u64)> {
    let space = line.iter().position(|byte| *byte == b' ')?;
    let bytes = std::str::from_utf8(&line[..space]).ok()?.parse().ok()?;
    Some((OsStr::from_bytes(&line[space + 1..]).to_owned(), bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn round_trip(settings: &Settings) -> Option<Settings> {
        let all: HashMap<&str, OsString> = settings.to_env().into_iter().collect();
        assert!(all.keys().all(|name| ALL.contains(name)), "{all:?}");
        Settings::from_env(|name| all.get(name).cloned())
    }

    #[test]
    fn what_the_command_says_is_what_the_library_reads() {
        let plain = Settings::new(1 << 30);
        assert_eq!(round_trip(&plain).as_ref(), Some(&plain));
        let full = Settings {
            max: 7,
            auto: Some(Auto { least: 3, stall: 10_000 }),
            bound: Some("a part".into()),
            high: Some(5),
            mode: Mode::Auto,
            inexact: Some("no call".into()),
            files: true,
            policy: Some("lru".into()),
            maps: vec![("*.sst".into(), 1), (OsString::from_vec(b"/a b/\xff=".to_vec()), 2)],
            threshold: 3,
            keep_read_ahead: true,
            summary: Some("/tmp/a b".into()),
            json: true,
            advise: true,
            record: Some("/tmp/c d".into()),
            warm: Some("/tmp/e".into()),
            by_benefit: true,
            follow: false,
            shared: Some("/dev/shm/a b".into()),
            pid: Some(4),
            glibc: Some("/lib/a b".into()),
            musl: Some("/lib/c".into()),
        };
        assert_eq!(round_trip(&full).as_ref(), Some(&full));
        let other = Settings { mode: Mode::Userfault, ..full };
        assert_eq!(round_trip(&other).as_ref(), Some(&other));
    }

    #[test]
    fn nonsense_in_the_environment_is_no_setting_and_no_panic() {
        assert_eq!(Settings::from_env(|_| None), None);
        assert_eq!(Settings::from_env(|_| Some("x".into())), None);
        let only_max = |name: &str| Some(if name == MAX { "9" } else { "\u{1}" }.into());
        let read = Settings::from_env(only_max).expect("there is a budget");
        assert_eq!((read.max, read.threshold, read.maps.len()), (9, THRESHOLD_DEFAULT, 0));
    }
}
