//! `lowtide top`: all processes of this user that are under lowtide, on a full screen.
//!
//! ```text
//!                                                ┌─ draw ── terminal
//! status pages ─ source ─ sample ─ model ─ rows ─┤
//!                                    │           └─ plain
//!                                navigation ── keys
//! ```
//!
//! | module | concept |
//! |---|---|
//! | `args` | the options |
//! | `source` | samples from time to time |
//! | `model` | samples become rows, keys become places: nothing of a terminal |
//! | `draw` | pictures of the model |
//! | `keys`, `ansi` | bytes of a terminal as keys; pictures as bytes |
//! | `terminal`, `screen` | the terminal, taken and given back; the loop |
//! | `plain` | a table where there is no terminal |
//! | `error` | why it ended |

mod ansi;
mod args;
mod draw;
mod error;
mod keys;
mod model;
mod plain;
mod screen;
mod source;
mod terminal;
#[cfg(test)]
mod tests;

pub(crate) use self::args::TopArgs;
pub(crate) use self::error::TopError;
use self::model::navigation::Navigation;
use self::model::processes::Processes;
pub(crate) use self::screen::End;
use self::source::Source;

/// Shows the processes as the options want it.
pub(crate) fn run(args: &TopArgs) -> Result<End, TopError> {
    if let Some(pid) = args.pid {
        // Its error says why there is none.
        lowtide_status::read(pid)?;
    }
    if args.once || !terminal::can_show() {
        let processes = plain::watch(args.interval)?;
        let of = args.pid.and_then(|pid| processes.with_pid(pid));
        plain::print(&processes, of);
        return Ok(End::Quit);
    }
    let mut processes = Processes::default();
    let mut source = Source::new(args.interval, &mut processes)?;
    let mut navigation = Navigation::new();
    if let Some(process) = args.pid.and_then(|pid| processes.with_pid(pid)) {
        navigation.enter(process.key);
    }
    screen::show(&mut source, processes, navigation)
}
