//! Help, and what is shown where there is nothing to show.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Wrap};

use super::look::Look;
use super::scene::boxed;

/// What keys do.
const KEYS: &str = "\
up down, j k      select a row         Enter, right, l   down, to tenants
PageUp PageDown   a page of rows       Esc, left, h      up
g G               first and last row   s > <             sort by next, last
/                 filter               r                 reverse
p                 pause                + -               interval up, down
q                 quit                 ?                 this help";

/// What the columns mean.
const COLUMNS: &str = "\
USED MAX USE    memory that is charged, its limit, one as a part of the other
FAULT/s         pages that came in;  REFLT/s: that had been evicted before
STALL FULL      time in which some thread, all threads waited for memory
HIT             reads (of a tenant: accesses) that found their page in memory
RD/s WR/s       bytes from and to devices
DIRTY           bytes that wait to be written
EVICT/s SCAN/s  pages that were evicted, that were looked at for that
TEN             tenants
x  ended        ?  page not readable, or not written for 5 seconds
!  threads wait for memory 10 % of the time or more";

/// Keys and columns.
pub(super) fn help(frame: &mut Frame<'_>, area: Rect, look: Look) {
    let inside = boxed(frame, area, "Help: any key goes back", look);
    let mut lines: Vec<Line<'_>> = KEYS.lines().map(Line::from).collect();
    lines.push(Line::from(""));
    lines.extend(COLUMNS.lines().map(Line::from));
    frame.render_widget(Paragraph::new(lines), inside);
}

/// How to get a process that is shown.
pub(in crate::top) const NO_PROCESSES: &str = "\
No process of this user is under lowtide.

A process appears here when it
  is started by the command   lowtide run --max 1G -- PROGRAM
  links the library           and calls Pager::publish_status

It appears within a second or two.";

/// There are none.
pub(super) fn no_processes(frame: &mut Frame<'_>, area: Rect) {
    let inside = Rect { x: area.x + 2, y: area.y + 1, width: area.width - 4, ..area };
    let inside = inside.intersection(area);
    frame.render_widget(Paragraph::new(NO_PROCESSES), inside);
}

/// What was looked at is not there any more.
pub(super) fn gone(frame: &mut Frame<'_>, area: Rect) {
    let text = " It has ended, or was removed. Esc goes up.";
    frame.render_widget(Paragraph::new(text), area);
}

/// There is no room.
pub(super) fn too_small(frame: &mut Frame<'_>, area: Rect, width: u16, height: u16) {
    let text = format!(
        "lowtide top needs {width} columns and {height} lines; here are {} and {}. q quits.",
        area.width, area.height
    );
    frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), area);
}
