//! Progress of long work: one line on standard error that is written over. It appears after two
//! seconds, only on a terminal, and disappears when the work ends.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Time between two drawings of the line.
const TICK: Duration = Duration::from_millis(100);
/// Shorter work shows no line.
const PATIENCE: Duration = Duration::from_secs(2);
/// Width of the bar, in columns.
const BAR: u64 = 30;

/// The unit of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes, shown in MiB.
    Bytes,
    /// Operations done.
    Steps,
}

/// Work whose progress is shown.
#[derive(Debug)]
pub struct Patient {
    what: String,
    unit: Unit,
    total: u64,
    position: u64,
    began: Instant,
    /// When the line was drawn last.
    drawn: Option<Instant>,
}

impl Patient {
    /// Work of `total` units that begins now.
    pub fn new(what: &str, unit: Unit, total: u64) -> Self {
        Self { what: what.into(), unit, total, position: 0, began: Instant::now(), drawn: None }
    }

    /// Work in steps; [`say`](Self::say) names each.
    pub fn steps(total: u64) -> Self {
        Self::new("", Unit::Steps, total)
    }

    /// Corrects the total.
    pub fn of(&mut self, total: u64) {
        self.total = total;
    }

    /// Says what is done now.
    pub fn say(&mut self, what: String) {
        self.what = what;
        self.draw();
    }

    /// Sets the position of the work. Cheap enough to call every millisecond.
    pub fn set(&mut self, position: u64) {
        self.position = position;
        self.draw();
    }

    /// Moves the position forward.
    pub fn add(&mut self, units: u64) {
        self.set(self.position.saturating_add(units));
    }

    /// Takes the line away, for something else to be printed.
    pub fn clear(&mut self) {
        if self.drawn.take().is_some() {
            print("\r\x1b[K");
        }
    }

    fn draw(&mut self) {
        let now = Instant::now();
        let (since, pause) = self.drawn.map_or((self.began, PATIENCE), |drawn| (drawn, TICK));
        if now - since >= pause {
            self.drawn = Some(now);
            let columns =
                rustix::termios::tcgetwinsize(io::stderr()).map_or(80, |size| size.ws_col);
            let line: String = self.line().chars().take(columns.into()).collect();
            print(&format!("\r{line}\x1b[K"));
        }
    }

    fn line(&self) -> String {
        let Self { what, position, total, .. } = self;
        let filled =
            u128::from(BAR) * u128::from(*position.min(total)) / u128::from(*total.max(&1));
        let bar = "=".repeat(filled as usize);
        let seconds = self.began.elapsed().as_secs();
        let far = match self.unit {
            Unit::Bytes => format!("{}/{} MiB", position >> 20, total >> 20),
            Unit::Steps => format!("{position}/{total}"),
        };
        format!("[{bar:width$}] {far} {what} ({seconds} s)", width = BAR as usize)
    }
}

fn print(text: &str) {
    let mut out = io::stderr().lock();
    if out.is_terminal() {
        // A terminal that is gone is no reason to stop.
        let _ = out.write_all(text.as_bytes());
    }
}

impl Drop for Patient {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_how_far_the_work_is() {
        let mut work = Patient::new("reading", Unit::Bytes, 40 << 20);
        work.set(10 << 20);
        let bar = format!("[{}{}]", "=".repeat(7), " ".repeat(23));
        assert_eq!(work.line(), format!("{bar} 10/40 MiB reading (0 s)"));
        // More than was thought, and of a total that is not known.
        work.set(50 << 20);
        assert!(work.line().starts_with(&format!("[{}] 50/40", "=".repeat(30))));
        work.of(0);
        assert!(work.line().starts_with(&format!("[{}] 50/0", " ".repeat(30))));
    }
}
