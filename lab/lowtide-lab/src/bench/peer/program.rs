//! Other programs as peers: started, watched for Ctrl-C, and read to their end.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use lowtide_bench::error::BenchError;
use lowtide_report::interrupt;

/// Interval at which a wait checks for Ctrl-C.
const POLL: Duration = Duration::from_millis(20);

/// The output of a program.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) out: String,
    pub(crate) err: String,
}

/// The first line of `name --version`, if the program is installed.
pub(crate) fn version(name: &str) -> Option<String> {
    let said = Command::new(name).arg("--version").stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&said.stdout);
    said.status.success().then(|| text.lines().next().unwrap_or_default().trim().to_owned())
}

/// Runs a program to its end.
///
/// # Errors
/// The result of `error` for a program that cannot be started or fails; [`BenchError::Interrupted`]
/// after ending the program.
pub(crate) fn run(
    command: &mut Command,
    name: &str,
    error: impl Fn(String) -> BenchError,
) -> Result<Said, BenchError> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Ctrl-C at a terminal goes to the whole process group; ending the program is the bench's
        // task.
        .process_group(0)
        .spawn()
        .map_err(|source| error(format!("cannot be started: {source}")))?;
    let (out, err) = (drain(child.stdout.take()), drain(child.stderr.take()));
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if interrupt::requested() => {
                end(&mut child);
                interrupt::check(|| format!("running {name}"))?;
            }
            Ok(None) => std::thread::sleep(POLL),
            Err(source) => {
                end(&mut child);
                return Err(error(source.to_string()));
            }
        }
    };
    let said = Said { out: out.join().unwrap_or_default(), err: err.join().unwrap_or_default() };
    if !status.success() {
        let first = said.err.lines().next().unwrap_or("no message");
        return Err(error(format!("failed ({status}): {first}")));
    }
    Ok(said)
}

fn end(child: &mut Child) {
    // The program may already have ended.
    let _ = child.kill();
    let _ = child.wait();
}

/// Reads a pipe to its end in a thread: a program blocks when its pipe is full.
fn drain(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = String::new();
        if let Some(mut pipe) = pipe {
            // The bytes read so far are reported in either case.
            let _ = pipe.read_to_string(&mut text);
        }
        text
    })
}
