//! `lowtide top`: all processes of this user that are under lowtide, on a full screen.
//!
//! ```text
//! status pages ─ source ─┐                            ┌─ draw ── terminal
//!                        ├─ sample ── model ── rows ──┤
//! recording ──── player ─┘              │             └─ plain
//!                                   navigation ── keys
//! ```
//!
//! | module | concept |
//! |---|---|
//! | `args` | the options |
//! | `source` | where samples come from; what is recorded |
//! | `recording`, `player` | files of samples, and a clock that plays one |
//! | `model` | samples become rows, keys become places: nothing of a terminal |
//! | `draw` | pictures of the model |
//! | `keys` | bytes of a terminal as keys |
//! | `terminal`, `screen` | the terminal, taken and given back; the loop |
//! | `plain` | a table where there is no terminal |
//! | `error` | why it ended |

mod args;
mod draw;
mod error;
mod keys;
mod model;
mod plain;
mod player;
mod recording;
mod screen;
mod source;
mod terminal;
#[cfg(test)]
mod tests;

use std::path::Path;

pub(crate) use self::args::TopArgs;
pub(crate) use self::error::TopError;
use self::model::navigation::Navigation;
use self::model::processes::{Process, Processes};
use self::player::Player;
use self::recording::{Recorder, Recording};
pub(crate) use self::screen::End;
use self::source::{Source, Watch};

/// Shows the processes as the options want it.
pub(crate) fn run(args: &TopArgs) -> Result<End, TopError> {
    let is_plain = args.once || !terminal::can_show();
    match &args.replay {
        Some(path) => replay(args, path, is_plain),
        None => watch(args, is_plain),
    }
}

/// The process of a recording whose number was given.
fn find<'a>(
    processes: &'a Processes,
    pid: Option<u32>,
    path: &Path,
) -> Result<Option<&'a Process>, TopError> {
    let missing = |pid| TopError::NotRecorded { pid, path: path.to_owned() };
    pid.map(|pid| processes.with_pid(pid).ok_or_else(|| missing(pid))).transpose()
}

fn replay(args: &TopArgs, path: &Path, is_plain: bool) -> Result<End, TopError> {
    let mut processes = Processes::default();
    let mut player = Player::new(Recording::open(path)?, args.speed, &mut processes)?;
    if is_plain {
        player.end(&mut processes)?;
        plain::print(&processes, find(&processes, args.pid, path)?);
        return Ok(End::Quit);
    }
    let mut navigation = Navigation::new(true);
    if let Some(process) = find(&processes, args.pid, path)? {
        navigation.enter(process.key);
    }
    screen::show(&mut Source::Player(player), processes, navigation)
}

fn watch(args: &TopArgs, is_plain: bool) -> Result<End, TopError> {
    if let Some(pid) = args.pid {
        // Its error says why there is none.
        lowtide_status::read(pid)?;
    }
    let mut recorder = args.record.as_deref().map(Recorder::create).transpose()?;
    if is_plain {
        let processes = plain::watch(args.interval, &mut recorder)?;
        let of = args.pid.and_then(|pid| processes.with_pid(pid));
        plain::print(&processes, of);
        recorder.map_or(Ok(()), Recorder::finish)?;
        return Ok(End::Quit);
    }
    let mut processes = Processes::default();
    let mut source = Source::Watch(Watch::new(args.interval, recorder, &mut processes)?);
    let mut navigation = Navigation::new(false);
    if let Some(process) = args.pid.and_then(|pid| processes.with_pid(pid)) {
        navigation.enter(process.key);
    }
    let end = screen::show(&mut source, processes, navigation)?;
    source.finish()?;
    Ok(end)
}
