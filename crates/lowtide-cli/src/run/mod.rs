//! `lowtide run`: a program under a budget that knows nothing of lowtide.
//!
//! The command looks at the program, finds the library, writes the settings into the environment
//! and becomes the program (`execve`). There is no process between the program and its parent:
//! signals, exit codes, the terminal and `$!` are the program's own. What happens then is in the
//! crate `lowtide-preload`.

mod args;
mod budget;
mod embedded;
mod error;
mod library;
mod program;

use std::convert::Infallible;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{self, Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use lowtide_host::reach;
use lowtide_report::out;

pub(crate) use args::RunArgs;
use args::{ModeName, ShareName};
use budget::Decided;
use error::{Lack, RunError};
use lowtide_run::elf::CLibrary;
use lowtide_run::place;
use lowtide_run::settings::{self, Mode, Settings};
use lowtide_watch::address;
use lowtide_watch::companion::{self, CompanionError, Export};
use lowtide_watch::file::FileError;
use rustix::fs::{Access, access};

/// Seconds between two writes of the file of metrics.
const METRICS_INTERVAL: u64 = 15;

/// Becomes the program; returns only with an error.
pub(crate) fn become_program(args: &RunArgs) -> RunError {
    match start(args) {
        Err(error) => error,
        Ok(never) => match never {},
    }
}

fn start(args: &RunArgs) -> Result<Infallible, RunError> {
    let mut settings = settings_of(args)?;
    let (name, arguments) = args.command.split_first().ok_or(RunError::NoProgram)?;
    let path = program::find(name)?;
    let needed = accept(args.force, program::check(&path))?.flatten().unwrap_or(CLibrary::Gnu);
    let library = library_for(needed, &path, args.force, &mut settings)?;
    accept(args.force, lacking(&settings))?;
    if let Some(summary) = &settings.summary {
        // The library appends; an older summary is not part of this one.
        let made = File::create(summary);
        made.map_err(|source| RunError::Summary { path: summary.clone(), source })?;
    }
    let mut command = Command::new(&path);
    command.arg0(name).args(arguments);
    for variable in settings::ALL {
        command.env_remove(variable);
    }
    command.envs(settings.to_env());
    if let Some(library) = library {
        let others = env::var_os(settings::LD_PRELOAD);
        command.env(settings::LD_PRELOAD, before_others(library, others));
    }
    export(args)?;
    let source = command.exec();
    Err(RunError::CannotExecute { path, source })
}

/// Starts the process that exports metrics, where that is wanted.
fn export(args: &RunArgs) -> Result<(), RunError> {
    if args.metrics.is_none() && args.metrics_file.is_none() {
        return Ok(());
    }
    let listener = args.metrics.map(address::listen).transpose()?;
    let whole = |file: &PathBuf| {
        let failed = |source| FileError { path: file.clone(), source };
        path::absolute(file).map_err(failed)
    };
    let file = args.metrics_file.as_ref().map(whole).transpose()?;
    let interval = Duration::from_secs(args.metrics_interval.unwrap_or(METRICS_INTERVAL));
    companion::start(Export { listener, file, interval }).map_err(|error| match error {
        CompanionError::File(error) => RunError::MetricsFile(error),
        other => RunError::Companion(other),
    })
}

/// What of these settings cannot be had on this machine. Where nothing lacks, the program says so
/// of single files in its summary.
fn lacking(settings: &Settings) -> Result<(), Lack> {
    reach::files().map_err(|why| Lack::Files { why })?;
    if settings.mode == Mode::Userfault {
        reach::exact().map_err(|why| Lack::Exact { why })?;
    }
    Ok(())
}

/// What the list of the dynamic linker gets, if anything, for a program of this C library. The
/// settings get both libraries: the program may start others.
fn library_for(
    needed: CLibrary,
    path: &Path,
    force: bool,
    settings: &mut Settings,
) -> Result<Option<OsString>, RunError> {
    let (glibc, musl) = (library::find(CLibrary::Gnu), library::find(CLibrary::Musl));
    settings.glibc = glibc.as_ref().ok().cloned();
    settings.musl = musl.as_ref().ok().cloned();
    let path = path.to_owned();
    if needed == CLibrary::Gnu {
        return Ok(Some(glibc?.into()));
    }
    if settings.files {
        accept(force, Err::<(), _>(Lack::GlibcOnly { option: "--files", path: path.clone() }))?;
    }
    let musl = accept(force, musl.map_err(|why| Lack::Musl { path, why: Box::new(why) }))?;
    // Without the other one this is a machine of musl alone.
    let listed = |library: PathBuf| match settings.glibc {
        Some(_) => settings::in_list(CLibrary::Musl, &library),
        None => library.into(),
    };
    Ok(musl.map(listed))
}

/// Goes on without what is lacking, if that is wanted, and says so.
fn accept<T>(force: bool, checked: Result<T, Lack>) -> Result<Option<T>, Lack> {
    match checked {
        Err(lack) if force => {
            out::note(lack);
            Ok(None)
        }
        checked => checked.map(Some),
    }
}

/// The library, and behind it what was to be loaded anyway: not a library of ours that this command
/// has itself, which may be for the other C library.
fn before_others(library: OsString, others: Option<OsString>) -> OsString {
    let others = others.unwrap_or_default().into_vec();
    let others = others.split(|byte| b": ".contains(byte));
    let ours = [CLibrary::Gnu, CLibrary::Musl].map(CLibrary::file);
    let is_other = |path: &&[u8]| {
        let name = Path::new(OsStr::from_bytes(path.trim_ascii_end())).file_name();
        name.is_some_and(|name| !ours.iter().any(|ours| name == *ours))
    };
    let mut all = library;
    for other in others.filter(is_other) {
        all.push(":");
        all.push(OsStr::from_bytes(other));
    }
    all
}

fn settings_of(args: &RunArgs) -> Result<Settings, RunError> {
    let of_heaps = [
        (args.anon, "--anon"),
        (args.swap.is_some(), "--swap"),
        (args.allow_io_uring, "--allow-io-uring"),
    ];
    if let Some((_, option)) = of_heaps.into_iter().find(|(is_set, _)| *is_set) {
        return Err(RunError::Heap { option });
    }
    let Decided { max, auto, bound } = budget::decide(args)?;
    let mut settings = Settings::new(max);
    (settings.auto, settings.bound, settings.high) = (auto, bound, args.high);
    settings.mode = match args.mode {
        Some(ModeName::Pagecache) => Mode::Pagecache,
        Some(ModeName::Userfault) => Mode::Userfault,
        Some(ModeName::Restless) => Mode::Restless,
        None | Some(ModeName::Auto) => Mode::Auto,
    };
    // Nothing is refused: what can be had is taken, and the summary says why it is not more.
    if matches!(settings.mode, Mode::Auto | Mode::Restless)
        && let Err(why) = reach::exact()
    {
        (settings.mode, settings.inexact) = (Mode::Pagecache, Some(why));
    }
    settings.files = args.files;
    settings.policy = args.policy.as_ref().map(ToString::to_string);
    settings.maps = args.map.clone();
    settings.threshold = args.threshold.unwrap_or(settings::THRESHOLD_DEFAULT);
    settings.keep_read_ahead = args.keep_read_ahead;
    settings.json = args.json;
    settings.advise = args.advise;
    settings.by_benefit = args.share == Some(ShareName::ByBenefit);
    settings.follow = !args.no_follow;
    settings.shared = if args.per_process { None } else { place::new_path() };
    settings.pid = Some(std::process::id());
    if let Some(summary) = &args.summary {
        let whole = path::absolute(summary);
        let whole = whole.map_err(|source| RunError::Summary { path: summary.clone(), source })?;
        settings.summary = Some(whole);
    }
    if let Some(record) = &args.record {
        let whole = path::absolute(record).and_then(|path| File::create(&path).map(|_| path));
        let whole = whole.map_err(|source| RunError::Record { path: record.clone(), source })?;
        settings.record = Some(whole);
    }
    if let Some(warm) = &args.warm {
        let whole = path::absolute(warm).and_then(|path| {
            // A list that is there stays until another one is saved.
            access(path.parent().unwrap_or(&path), Access::WRITE_OK | Access::EXEC_OK)?;
            Ok(path)
        });
        let whole = whole.map_err(|source| RunError::Warm { path: warm.clone(), source })?;
        settings.warm = Some(whole);
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_that_were_to_be_loaded_are_loaded_too() {
        let ours = || OsString::from("/l/ours.so");
        assert_eq!(before_others(ours(), None), "/l/ours.so");
        assert_eq!(before_others(ours(), Some(OsString::new())), "/l/ours.so");
        assert_eq!(before_others(ours(), Some("a.so b.so".into())), "/l/ours.so:a.so:b.so");
        let nested = "/x/liblowtide_preload.so:a.so:/y/liblowtide_preload-musl.so\r\r";
        assert_eq!(before_others(ours(), Some(nested.into())), "/l/ours.so:a.so");
    }
}
