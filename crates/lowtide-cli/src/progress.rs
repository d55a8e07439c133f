//! Progress bars on standard error, for what takes more than two seconds. Invisible when that is
//! not a terminal.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// How often a bar is drawn while nothing moves.
const TICK: Duration = Duration::from_millis(500);
/// What is over sooner needs no bar.
const PATIENCE: Duration = Duration::from_secs(2);

/// A bar over bytes.
pub(crate) fn bytes(what: &'static str, total: u64) -> ProgressBar {
    bar(what, total, "{msg} [{bar:30}] {bytes}/{total_bytes} ({eta})")
}

/// A bar over steps; the message says which.
pub(crate) fn steps(what: &'static str, total: u64) -> ProgressBar {
    bar(what, total, "[{bar:30}] {pos}/{len} {msg} ({elapsed})")
}

fn bar(what: &'static str, total: u64, template: &str) -> ProgressBar {
    let bar = ProgressBar::new(total).with_message(what);
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    if !bar.is_hidden() {
        bar.enable_steady_tick(TICK);
    }
    bar
}

/// What a bar counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Bytes read.
    Bytes,
    /// Operations done.
    Steps,
}

/// A bar that appears when the work has taken longer than anybody waits without one, and goes when
/// it is dropped.
#[derive(Debug)]
pub(crate) struct Patient {
    what: &'static str,
    unit: Unit,
    total: u64,
    began: Instant,
    bar: Option<ProgressBar>,
}

impl Patient {
    /// Work of `total` units that begins now.
    pub(crate) fn new(what: &'static str, unit: Unit, total: u64) -> Self {
        Self { what, unit, total, began: Instant::now(), bar: None }
    }

    /// Corrects the total.
    pub(crate) fn of(&mut self, total: u64) {
        self.total = total;
        if let Some(bar) = &self.bar {
            bar.set_length(total);
        }
    }

    /// Says how far the work is. Cheap enough to be called every millisecond.
    pub(crate) fn set(&mut self, position: u64) {
        if self.bar.is_none() && self.began.elapsed() < PATIENCE {
            return;
        }
        let make = || match self.unit {
            Unit::Bytes => bytes(self.what, self.total),
            Unit::Steps => steps(self.what, self.total),
        };
        self.bar.get_or_insert_with(make).set_position(position);
    }
}

impl Drop for Patient {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
