//! The full screen: draw, wait, and do what a key, a signal or the time wants.

use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT};

use super::draw::look::Look;
use super::draw::{self, Scene};
use super::error::TopError;
use super::model::navigation::{Effect, Navigation};
use super::model::processes::Processes;
use super::source::Source;
use super::terminal::{Events, Screen, Woke};

/// What a terminal that was closed answers.
const EIO: i32 = Errno::IO.raw_os_error();

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// By `q`.
    Quit,
    /// By a signal, or a key or an event that stands for one.
    Signal(i32),
}

/// Shows it until it is ended.
pub(crate) fn show(
    source: &mut Source,
    processes: Processes,
    navigation: Navigation,
) -> Result<End, TopError> {
    match watch(source, processes, navigation) {
        // The terminal was closed, which a picture noticed before the signal came.
        Err(TopError::Terminal(error)) if error.raw_os_error() == Some(EIO) => {
            Ok(End::Signal(SIGHUP))
        }
        ended => ended,
    }
}

fn watch(
    source: &mut Source,
    mut processes: Processes,
    mut navigation: Navigation,
) -> Result<End, TopError> {
    let look = Look::from_env();
    let mut events = Events::new().map_err(TopError::Terminal)?;
    let mut screen = Screen::take().map_err(TopError::Terminal)?;
    loop {
        let caption = source.caption();
        let drawn = screen.draw(|frame| {
            let navigation = &mut navigation;
            let scene = Scene { processes: &processes, navigation, caption: &caption, look };
            draw::screen(frame, scene);
        });
        drawn.map_err(TopError::Terminal)?;
        match events.wait(source.due()).map_err(TopError::Terminal)? {
            Woke::End(signal) => return Ok(End::Signal(signal)),
            Woke::Continued => screen.take_again().map_err(TopError::Terminal)?,
            Woke::Time => {}
            Woke::Keys(keys) => {
                for key in keys {
                    match navigation.press(key, &processes) {
                        Effect::Quit => return Ok(End::Quit),
                        Effect::Interrupt => return Ok(End::Signal(SIGINT)),
                        Effect::Suspend => screen.suspend().map_err(TopError::Terminal)?,
                        effect => source.obey(effect),
                    }
                }
            }
        }
        source.pass(&mut processes)?;
    }
}
