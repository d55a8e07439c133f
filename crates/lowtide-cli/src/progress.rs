//! Progress bars on standard error, for what takes more than two seconds. Invisible when that is not a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// How often a bar is drawn while nothing moves.
const TICK: Duration = Duration::from_millis(500);

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
