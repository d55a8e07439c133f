//! A program that is traced from its beginning, by `strace` or a debugger.
//!
//! A page that lowtide serves itself comes in when one of its threads runs. A tracer stops threads
//! and reads the memory of others meanwhile (`process_vm_readv(2)`), which waits for the page: both
//! wait forever if the thread that serves it is stopped. Nothing in this process can prevent that.
//! So nothing is served in a traced process: files are kept in `pagecache` mode. A tracer that
//! comes later is not noticed.

use crate::descriptors;
use lowtide_run::settings::{Mode, Settings};

/// The process that traces another; none if there is none, or if /proc does not say.
fn tracer_of(process: &str) -> Option<i32> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    tracer(&status)
}

fn tracer(status: &str) -> Option<i32> {
    let line = status.lines().find_map(|line| line.strip_prefix("TracerPid:"))?;
    line.trim().parse().ok().filter(|tracer| *tracer != 0)
}

/// The settings without what makes a tracer wait, if there is one. Says so where the user demanded
/// it, unless the process that started this one has the same tracer, and has said it; otherwise the
/// summary says it.
pub(crate) fn without_waiting(settings: Settings) -> Settings {
    if !settings.mode.mirrors() {
        return settings;
    }
    let Some(tracer) = tracer_of("self") else { return settings };
    let is_demanded = settings.mode == Mode::Userfault;
    let parent = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    if is_demanded && tracer_of(&parent.to_string()) != Some(tracer) {
        let text = format!(
            "lowtide: process {tracer} traces the program, and would wait forever for a page that \
             a stopped thread serves: no --mode userfault; files are kept in `pagecache` mode\n"
        );
        descriptors::say(text.as_bytes());
    }
    let inexact = Some(format!("process {tracer} traces the program"));
    Settings { mode: Mode::Pagecache, inexact, ..settings }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_who_traces() {
        let status = |tracer: u32| format!("Name:\tx\nPid:\t5\nTracerPid:\t{tracer}\nUid:\t0\n");
        assert_eq!(tracer(&status(7)), Some(7));
        assert_eq!(tracer(&status(0)), None);
        assert_eq!(tracer(""), None, "another system");
    }
}
