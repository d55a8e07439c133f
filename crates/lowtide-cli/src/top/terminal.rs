//! The terminal: as a picture while the command runs, and as it was before, however it ends.
//!
//! It is given back at the end, at an error, at a panic, at a signal, and while the command is
//! stopped by Ctrl-Z. A signal is a byte in a pipe that is waited for along with keys. Should the
//! main thread not come to it within a second (it may be blocked in a write to a terminal that
//! takes nothing), the thread of the signals ends the process itself.
//!
//! ratatui's terminal is never dropped: it would show the cursor once more, and panic where that
//! cannot even be reported, because the terminal was closed.

use std::io::{self, IsTerminal, Read, Write};
use std::mem::ManuallyDrop;
use std::os::unix::net::UnixStream;
use std::panic;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::Duration;

use ratatui::Terminal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGWINCH};
use signal_hook::iterator::Signals;

use super::ansi::{Ansi, ENTER, LEAVE};
use super::keys::{self, Key};

/// How long the main thread has to come to a signal.
const GRACE: Duration = Duration::from_secs(1);
/// How long the next byte of a key may take.
const SEQUENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 25_000_000 };

/// The mode of the terminal before it became a picture, while it is one.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);
static PANICS: Once = Once::new();

/// Whether both ends are a terminal that can show pictures.
pub(crate) fn can_show() -> bool {
    let knows_nothing =
        std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    io::stdin().is_terminal() && io::stdout().is_terminal() && !knows_nothing
}

/// The terminal as a picture.
pub(crate) struct Screen {
    terminal: ManuallyDrop<Terminal<Ansi>>,
}

fn before() -> MutexGuard<'static, Option<Termios>> {
    BEFORE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn say(sequence: &str) -> io::Result<()> {
    let mut out = io::stdout();
    out.write_all(sequence.as_bytes())?;
    out.flush()
}

fn take() -> io::Result<()> {
    let mode = tcgetattr(io::stdin())?;
    let mut raw = mode.clone();
    raw.make_raw();
    tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
    *before() = Some(mode);
    say(ENTER)
}

/// Gives the terminal back, if it was taken. Errors do not matter: there may be none any more.
fn give_back() {
    // The lock is not held while the terminal is written to, which may take nothing any more.
    let mode = before().take();
    if let Some(mode) = mode {
        let _ = say(LEAVE);
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &mode);
    }
}

impl Screen {
    /// Takes the terminal.
    pub(crate) fn take() -> io::Result<Self> {
        PANICS.call_once(|| {
            let before = panic::take_hook();
            panic::set_hook(Box::new(move |panic| {
                give_back();
                before(panic);
            }));
        });
        let taken = take();
        let made = taken.and_then(|()| Terminal::new(Ansi::new()));
        made.map(|terminal| Self { terminal: ManuallyDrop::new(terminal) })
            .inspect_err(|_| give_back())
    }

    /// Draws a picture.
    pub(crate) fn draw(&mut self, picture: impl FnOnce(&mut ratatui::Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(picture).map(drop)
    }

    /// Gives the terminal back, stops the process until it is continued, and takes it again.
    pub(crate) fn suspend(&mut self) -> io::Result<()> {
        give_back();
        let own = rustix::process::getpid();
        rustix::process::kill_process(own, rustix::process::Signal::TSTP)?;
        take()?;
        self.terminal.clear()
    }

    /// Draws everything again: another program wrote on the terminal, and changed its mode.
    pub(crate) fn take_again(&mut self) -> io::Result<()> {
        let mode = before().take();
        take()?;
        // What was found now may be this command's own mode.
        if mode.is_some() {
            *before() = mode;
        }
        self.terminal.clear()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// What was waited for.
#[derive(Debug)]
pub(crate) enum Woke {
    /// Keys were pressed.
    Keys(Vec<Key>),
    /// A signal wants the command to end, or the terminal is gone.
    End(i32),
    /// The process was stopped, and continued.
    Continued,
    /// The size has changed, or the time is over.
    Time,
}

/// Keys and signals.
pub(crate) struct Events {
    signals: UnixStream,
}

impl Events {
    /// Listens from now on.
    pub(crate) fn new() -> io::Result<Self> {
        let (signals, mut writer) = UnixStream::pair()?;
        let mut wanted = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGCONT])?;
        let listen = move || {
            let mut is_second = false;
            for signal in wanted.forever() {
                let _ = writer.write_all(&[signal as u8]);
                if matches!(signal, SIGWINCH | SIGCONT) {
                    continue;
                }
                if !is_second {
                    is_second = true;
                    let last_resort = move || {
                        thread::sleep(GRACE);
                        end_at_once(signal);
                    };
                    if thread::Builder::new().spawn(last_resort).is_ok() {
                        continue;
                    }
                }
                end_at_once(signal);
            }
        };
        thread::Builder::new().name("signals".into()).spawn(listen)?;
        Ok(Self { signals })
    }

    /// Waits for a key or a signal, no longer than some time.
    pub(crate) fn wait(&mut self, time: Option<Duration>) -> io::Result<Woke> {
        let time = time.map(|time| Timespec {
            tv_sec: time.as_secs() as i64,
            tv_nsec: i64::from(time.subsec_nanos()),
        });
        let stdin = io::stdin();
        let mut fds =
            [PollFd::new(&stdin, PollFlags::IN), PollFd::new(&self.signals, PollFlags::IN)];
        match poll(&mut fds, time.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Woke::Time),
            Err(errno) => return Err(errno.into()),
        }
        let [typed, signals] = fds.map(|fd| fd.revents());
        if signals.contains(PollFlags::IN) {
            let mut signal = [0];
            self.signals.read_exact(&mut signal)?;
            return Ok(match i32::from(signal[0]) {
                SIGWINCH => Woke::Time,
                SIGCONT => Woke::Continued,
                signal => Woke::End(signal),
            });
        }
        if typed.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
            return Ok(Woke::End(SIGHUP));
        }
        if !typed.contains(PollFlags::IN) {
            return Ok(Woke::Time);
        }
        let mut bytes = Vec::new();
        loop {
            let mut some = [0; 1024];
            match rustix::io::read(&stdin, &mut some) {
                Ok(0) => return Ok(Woke::End(SIGHUP)),
                Ok(length) => bytes.extend_from_slice(&some[..length]),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(errno) => return Err(errno.into()),
            }
            // A key may be several bytes, which a slow line delivers one by one.
            let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
            if !keys::is_open(&bytes) || !matches!(poll(&mut fds, Some(&SEQUENCE)), Ok(1..)) {
                return Ok(Woke::Keys(keys::parse(&bytes)));
            }
        }
    }
}

/// Ends the process from a thread that is not the main one.
fn end_at_once(signal: i32) -> ! {
    if signal != SIGHUP {
        give_back();
    }
    std::process::exit(128 + signal);
}
