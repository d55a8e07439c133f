//! Standard output, whose reader may exit early, and standard error.
//!
//! `println!` panics when the reader of a pipe has exited (`lowtide bench … | head`). Here that is
//! not an error: the lines are no longer needed, and the work (a JSON file, the exit code)
//! continues. Any other error, such as a full device, loses results: it is stored, and the command
//! fails with it at the end.

use std::fmt::Display;
use std::io::{self, Write};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, OnceLock, PoisonError};

/// The first failure of a line.
static FAILED: Mutex<Option<io::Error>> = Mutex::new(None);

/// The command that prints notes.
static SPEAKER: OnceLock<&str> = OnceLock::new();

/// Whether lines are printed.
static QUIET: AtomicBool = AtomicBool::new(false);

/// Prints no lines from now on, or prints them again: a command that performs others shows what
/// follows from their results, and not their tables.
pub fn be_quiet(quiet: bool) {
    QUIET.store(quiet, Relaxed);
}

/// Prints one line to standard output. [`failure`] returns any error.
pub fn line(text: impl Display) {
    if QUIET.load(Relaxed) {
        return;
    }
    let mut out = io::stdout().lock();
    if let Err(error) = unless_left(writeln!(out, "{text}").and_then(|()| out.flush())) {
        FAILED.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }
}

/// Writes a whole result to standard output.
///
/// # Errors
/// Those of writing, except a reader that has exited.
pub fn all(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    unless_left(out.write_all(bytes).and_then(|()| out.flush()))
}

/// The first error of printing. Called once, at the end.
pub fn failure() -> Option<io::Error> {
    FAILED.lock().unwrap_or_else(PoisonError::into_inner).take()
}

fn unless_left(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Prints a note for the user to standard error, separate from results, after the command's name.
pub fn note(text: impl Display) {
    let _ = writeln!(io::stderr(), "{}: {text}", SPEAKER.get().unwrap_or(&"lowtide"));
}

/// Notes are this command's from now on, and not those of `lowtide`. The first call decides.
pub fn speak_as(command: &'static str) {
    let _ = SPEAKER.set(command);
}
