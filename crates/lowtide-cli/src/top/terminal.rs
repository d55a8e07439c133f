//! The terminal: as a picture while the command runs, and as it was before, however it ends.
//!
//! It is given back at the end, at an error, at a panic, at a signal, and while the command is
//! stopped by Ctrl-Z. A signal is a byte in a pipe that is waited for along with keys. Should the
//! main thread not come to it within a second (it may be blocked in a write to a terminal that
//! takes nothing), the thread of the signals ends the process itself.
//!
//! ratatui's terminal is never dropped: it would show the cursor once more, and panic where that
//! cannot even be reported, because the terminal was closed.

use std::io::{self, BufWriter, IsTerminal, Read, Stdout, Write};
use std::mem::ManuallyDrop;
use std::os::unix::net::UnixStream;
use std::panic;
use std::sync::Once;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::event::KeyEvent;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGWINCH};
use signal_hook::iterator::Signals;

use super::keys;

/// How long the main thread has to come to a signal.
const GRACE: Duration = Duration::from_secs(1);
/// How long the next byte of a key may take.
const SEQUENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 25_000_000 };
/// Bytes of a picture are written at once.
const PICTURE: usize = 1 << 16;

/// Whether the terminal is a picture now.
static TAKEN: AtomicBool = AtomicBool::new(false);
static PANICS: Once = Once::new();

/// Whether both ends are a terminal that can show pictures.
pub(crate) fn can_show() -> bool {
    let knows_nothing =
        std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    io::stdin().is_terminal() && io::stdout().is_terminal() && !knows_nothing
}

/// The terminal as a picture.
pub(crate) struct Screen {
    terminal: ManuallyDrop<Terminal<CrosstermBackend<BufWriter<Stdout>>>>,
}

fn take() -> io::Result<()> {
    enable_raw_mode()?;
    TAKEN.store(true, SeqCst);
    execute!(io::stdout(), EnterAlternateScreen, Hide)
}

/// Gives the terminal back, if it was taken. Errors do not matter: there may be none any more.
fn give_back() {
    if TAKEN.swap(false, SeqCst) {
        let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
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
        let made = taken.and_then(|()| {
            Terminal::new(CrosstermBackend::new(BufWriter::with_capacity(PICTURE, io::stdout())))
        });
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

    /// Draws everything again: another program wrote on the terminal, and changed its mode without
    /// the knowledge of this process, which would not set it again.
    pub(crate) fn take_again(&mut self) -> io::Result<()> {
        disable_raw_mode()?;
        take()?;
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
    Keys(Vec<KeyEvent>),
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
