//! Progress bars on standard error, for work of more than two seconds. Invisible unless it is a
//! terminal.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Interval at which an idle bar is redrawn.
const TICK: Duration = Duration::from_millis(500);
/// Shorter work shows no bar.
const PATIENCE: Duration = Duration::from_secs(2);

/// A bar over bytes.
pub fn bytes(what: &'static str, total: u64) -> ProgressBar {
    bar(what, total, "{msg} [{bar:30}] {bytes}/{total_bytes} ({eta})")
}

/// A bar over steps; the message names the step.
pub fn steps(what: &'static str, total: u64) -> ProgressBar {
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

/// The unit of a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes read.
    Bytes,
    /// Operations done.
    Steps,
}

/// A bar that appears after two seconds, and disappears on drop.
#[derive(Debug)]
pub struct Patient {
    what: &'static str,
    unit: Unit,
    total: u64,
    began: Instant,
    bar: Option<ProgressBar>,
}

impl Patient {
    /// Work of `total` units that begins now.
    pub fn new(what: &'static str, unit: Unit, total: u64) -> Self {
        Self { what, unit, total, began: Instant::now(), bar: None }
    }

    /// Corrects the total.
    pub fn of(&mut self, total: u64) {
        self.total = total;
        if let Some(bar) = &self.bar {
            bar.set_length(total);
        }
    }

    /// Sets the position of the work. Cheap enough to call every millisecond.
    pub fn set(&mut self, position: u64) {
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
