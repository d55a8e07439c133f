//! Standard output, for a reader that may go away.
//!
//! `println!` panics when the reader of a pipe has left (`lowtide bench … | head`). Here that is not an error: the
//! lines are simply not wanted any more, and the work (a JSON file, the exit code) goes on.

use std::fmt::Display;
use std::io::{self, Write};

/// Prints one line to standard output.
pub(crate) fn line(text: impl Display) {
    let mut out = io::stdout().lock();
    // Nobody can be told that standard output is closed or full.
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// Writes a whole result to standard output.
///
/// # Errors
/// Those of writing; a reader that has left is none.
pub(crate) fn all(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Prints a note for the user to standard error, where it does not mix with results.
pub(crate) fn note(text: impl Display) {
    let _ = writeln!(io::stderr(), "lowtide: {text}");
}
