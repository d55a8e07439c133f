//! Promise: `lowtide top` shows real processes on a real terminal, and gives the terminal back
//! however it ends.
//!
//! The terminal is a pseudo-terminal, whose output a parser turns into a screen. The process that
//! is watched is this test itself, started again: it writes a status page as the library does.

use crate::common;
use std::io::Read;
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{lowtide, text};
use lowtide_status::{Curve, Origin, PagerStatus, Point, TenantStat, TenantStatus, Writer};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{read, write};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

/// Nothing is waited for longer than this.
const PATIENCE: Duration = Duration::from_secs(60);
const GIB: u64 = 1 << 30;

/// What the watched process says of itself.
fn pagers(step: u64) -> Vec<PagerStatus> {
    let tenant = |path: &str, share: u64| TenantStatus {
        path: path.into(),
        stat: TenantStat {
            usage_bytes: GIB / share,
            peak_bytes: GIB,
            max_bytes: (share == 2).then_some(GIB),
            faults: step * 1000,
            refaults: step * 100,
            ..TenantStat::default()
        },
        curve: Some(Curve {
            seconds: 60.0,
            accesses: 1000.0,
            samples: 1000,
            missed: 250.0,
            points: (0..=4)
                .map(|at| Point { bytes: GIB / 2 * at, misses: 250.0 * (4 - at) as f64 })
                .collect(),
            ..Curve::default()
        }),
        ..TenantStatus::default()
    };
    vec![PagerStatus {
        policy: "tide".into(),
        tenants: vec![tenant("/", 2), tenant("/users", 4), tenant("/users/ann", 8)],
        ..PagerStatus::default()
    }]
}

#[test]
#[ignore = "the process that other tests watch"]
fn is_watched() {
    let mut writer = Writer::create(Origin::Library).unwrap();
    for step in 1.. {
        writer.publish(pagers(step)).unwrap();
        thread::sleep(Duration::from_millis(100));
    }
}

/// A process that writes its page until it is killed.
struct Watched(Child);

impl Watched {
    fn start() -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "top::is_watched", "--ignored"]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let watched = Self(child);
        let begin = Instant::now();
        while lowtide_status::read(watched.pid()).is_err() {
            assert!(begin.elapsed() < PATIENCE, "it writes no page");
            thread::sleep(Duration::from_millis(20));
        }
        watched
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `lowtide top` on a terminal.
struct Terminal {
    child: Child,
    /// What a user's side of the terminal is; `None` when it was closed.
    master: Option<OwnedFd>,
    /// Kept open, to see in which mode the terminal is.
    slave: OwnedFd,
    screen: vt100::Parser,
}

impl Terminal {
    fn start(size: (u16, u16), args: &[&str], variables: &[(&str, &str)]) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let slave = open(&name, flags, Mode::empty()).unwrap();
        let end = || Stdio::from(slave.try_clone().unwrap());
        // The program becomes the command: its process stays the one that is started here.
        let mut command = Command::new("setsid");
        command.args(["--ctty", common::path(), "top"]).args(args);
        command.env("TERM", "xterm-256color").env("LC_ALL", "C.UTF-8").env_remove("NO_COLOR");
        command.envs(variables.iter().copied());
        command.stdin(end()).stdout(end()).stderr(end());
        let screen = vt100::Parser::new(cells(size.1), cells(size.0), 0);
        set_size(&master, size);
        let child = command.spawn().expect("setsid of util-linux");
        Self { child, master: Some(master), slave, screen }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn keys(&self, keys: &str) {
        write(self.master.as_ref().unwrap(), keys.as_bytes()).unwrap();
    }

    fn resize(&mut self, size: (u16, u16)) {
        self.screen.screen_mut().set_size(cells(size.1), cells(size.0));
        set_size(self.master.as_ref().unwrap(), size);
    }

    /// Takes what the command has written, if it writes something within a short time.
    fn take(&mut self) {
        let master = self.master.as_ref().unwrap();
        let time = rustix::event::Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        let mut fds = [PollFd::new(master, PollFlags::IN)];
        if poll(&mut fds, Some(&time)).unwrap() > 0 {
            let mut bytes = [0; 65536];
            if let Ok(length) = read(master, &mut bytes) {
                self.screen.process(&bytes[..length]);
            }
        }
    }

    fn contents(&self) -> String {
        self.screen.screen().contents()
    }

    /// Waits until all of this is on the screen.
    fn wait_for(&mut self, wanted: &[&str]) {
        let begin = Instant::now();
        while !wanted.iter().all(|wanted| self.contents().contains(wanted)) {
            let screen = self.contents();
            assert!(begin.elapsed() < PATIENCE, "{wanted:?} never came:\n{screen}");
            self.take();
        }
    }

    /// Waits for the end: the exit code, and what is on the screen after it.
    fn end(mut self) -> (Option<i32>, String) {
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(begin.elapsed() < PATIENCE, "it does not end:\n{}", self.contents());
            match &self.master {
                Some(_) => self.take(),
                None => thread::sleep(Duration::from_millis(20)),
            }
        };
        if self.master.is_some() {
            self.take();
            let modes = tcgetattr(&self.slave).unwrap().local_modes;
            assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO), "{modes:?}");
            assert!(!self.screen.screen().alternate_screen(), "still a picture");
            assert!(!self.screen.screen().hide_cursor(), "no cursor");
        }
        (status.code(), self.contents())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn cells(number: u16) -> NonZero<u16> {
    NonZero::new(number).expect("a terminal has cells")
}

fn set_size(terminal: &OwnedFd, (width, height): (u16, u16)) {
    let size = Winsize { ws_row: height, ws_col: width, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).unwrap();
}

#[test]
fn a_process_its_tenants_and_a_tenant_are_shown_at_any_size() {
    let watched = Watched::start();
    let pid = watched.pid().to_string();
    let mut terminal = Terminal::start((80, 24), &["--interval", "0.2"], &[]);
    terminal.wait_for(&["FAULT/s", "REFLT/s", &pid]);
    // Other processes of this user may be under lowtide, too.
    terminal.keys(&format!("/{pid}\r"));
    terminal.wait_for(&["512M", "1G", "library, tide, 3 tenants", &format!("filter: {pid}")]);
    terminal.keys("\r");
    terminal.wait_for(&["TENANT", "users", " ann", "256M", "128M"]);
    terminal.keys("j\r");
    terminal.wait_for(&["> /users", "used 256M", "Pages by age", "Half 512M: 75 %"]);
    terminal.resize((200, 50));
    terminal.wait_for(&["X you are here: 1G", "o used: 256M", "Twice 2G: 0 %, 100 % fewer"]);
    terminal.keys("\x1b");
    terminal.wait_for(&["EVICT/s", "SCAN/s", "ANON"]);
    terminal.resize((50, 10));
    terminal.wait_for(&["needs 60 columns and 15 lines"]);
    terminal.keys("q");
    assert_eq!(terminal.end().0, Some(0));
}

#[test]
fn a_process_that_is_killed_is_said_to_have_ended() {
    let mut watched = Watched::start();
    let pid = watched.pid().to_string();
    let mut terminal = Terminal::start((80, 24), &[&pid, "--interval", "0.1"], &[]);
    terminal.wait_for(&["TENANT", &format!("> {pid} ")]);
    watched.0.kill().unwrap();
    watched.0.wait().unwrap();
    terminal.wait_for(&["(ended)"]);
    terminal.keys("hq");
    assert_eq!(terminal.end().0, Some(0));
    let output = lowtide(&["top", &pid]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("there is no process"), "{}", text(&output.stderr));
}

#[test]
fn the_terminal_is_given_back_by_keys_and_by_signals() {
    let start = || {
        let mut terminal = Terminal::start((80, 24), &[], &[]);
        terminal.wait_for(&["q quit"]);
        assert!(terminal.screen.screen().alternate_screen());
        terminal
    };
    for (keys, code) in [("q", 0), ("\x03", 130), ("/filter\x03", 130)] {
        let terminal = start();
        terminal.keys(keys);
        assert_eq!(terminal.end().0, Some(code), "{keys:?}");
    }
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let terminal = start();
        kill_process(terminal.pid(), signal).unwrap();
        assert_eq!(terminal.end().0, Some(code), "{signal:?}");
    }
}

#[test]
fn a_terminal_that_is_closed_ends_it() {
    let mut terminal = Terminal::start((80, 24), &[], &[]);
    terminal.wait_for(&["q quit"]);
    terminal.master = None;
    assert_eq!(terminal.end().0, Some(129));
}

#[test]
fn without_a_terminal_that_shows_pictures_it_prints_a_table_once() {
    let watched = Watched::start();
    let pid = watched.pid().to_string();
    for args in [&["top"][..], &["top", "--once"]] {
        let output = lowtide(args).output().unwrap();
        let table = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert!(table.starts_with("pid"), "{table}");
        let row = table.lines().find(|line| line.starts_with(&pid)).unwrap();
        assert!(row.contains("library  tide"), "{row}");
    }
    let output = lowtide(&["top", &pid]).output().unwrap();
    assert!(text(&output.stdout).contains("/users/ann"), "{}", text(&output.stdout));
    let terminal = Terminal::start((80, 24), &[&pid], &[("TERM", "dumb")]);
    let (code, screen) = terminal.end();
    assert!(code == Some(0) && screen.contains("/users/ann"), "{code:?}\n{screen}");
}

#[test]
fn a_terminal_without_colours_or_unicode_gets_neither() {
    let watched = Watched::start();
    let pid = watched.pid().to_string();
    let cells = |variables: &[(&str, &str)]| {
        let mut terminal = Terminal::start((120, 40), &[&pid], variables);
        terminal.wait_for(&["TENANT", "users", "/s"]);
        let screen = terminal.screen.screen();
        let cells =
            (0..40).flat_map(|row| (0..120).filter_map(move |column| screen.cell(row, column)));
        let colours = cells.filter(|cell| cell.fgcolor() != vt100::Color::Default).count();
        (colours > 0, terminal.contents().is_ascii())
    };
    assert_eq!(cells(&[]), (true, false));
    assert_eq!(cells(&[("NO_COLOR", "1")]), (false, false));
    assert_eq!(cells(&[("LC_ALL", "C")]), (true, true));
}

#[test]
fn a_program_under_lowtide_run_is_shown() {
    use crate::common::programs::{Files, maps, run};
    let files = Files::new();
    let data = files.data();
    let program = [maps().to_str().unwrap(), "read", &data, "1000000000"];
    let mut command = run(&["--max", "8M"], &program);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut program = Watched(child);
    let begin = Instant::now();
    let page = loop {
        match lowtide_status::read(program.pid()) {
            Ok(page) if !page.pagers.is_empty() => break page,
            _ => assert!(begin.elapsed() < PATIENCE, "no pager in its page"),
        }
        if let Some(status) = program.0.try_wait().unwrap() {
            let mut why = String::new();
            program.0.stderr.take().unwrap().read_to_string(&mut why).unwrap();
            panic!("{status}: {why}");
        }
        thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(page.origin, Origin::Run);
    let pid = program.pid().to_string();
    let mut terminal = Terminal::start((200, 50), &["--interval", "0.2"], &[]);
    terminal.wait_for(&["PID", &pid]);
    terminal.keys(&format!("/{pid}\r"));
    terminal.wait_for(&["maps", "run", "8M"]);
    terminal.keys("\r");
    terminal.wait_for(&["TENANT", ">/"]);
    terminal.keys("q");
    assert_eq!(terminal.end().0, Some(0));
}
