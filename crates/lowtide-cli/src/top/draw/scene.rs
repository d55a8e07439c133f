//! What is to be drawn, and what all parts of a picture use.

use lowtide_status::printable;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Span;
use ratatui::widgets::Block;

use super::look::Look;
use crate::top::model::navigation::Navigation;
use crate::top::model::processes::{Processes, State};

/// Where the pictures come from, for the first and the last line.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Caption {
    /// As in `every 1 s`.
    pub(crate) source: String,
    pub(crate) is_paused: bool,
    /// What the reader should know, as that a folder cannot be read.
    pub(crate) note: Option<String>,
}

/// What is to be drawn.
pub(crate) struct Scene<'a> {
    pub(crate) processes: &'a Processes,
    pub(crate) navigation: &'a mut Navigation,
    pub(crate) caption: &'a Caption,
    pub(crate) look: Look,
}

/// A state that is not the usual one, in words.
pub(crate) fn state_text(state: &State) -> Option<String> {
    match state {
        State::Live => None,
        State::Silent(seconds) => Some(format!("has not written its page for {seconds} s")),
        State::Unreadable(why) => Some(format!("page not readable: {}", printable(why))),
        State::Ended(_) => Some("ended".into()),
    }
}

/// Draws a box with a title. Returns the place inside it.
pub(super) fn boxed(frame: &mut Frame<'_>, area: Rect, title: &str, look: Look) -> Rect {
    let title = Span::styled(format!(" {title} "), look.title());
    let block = Block::bordered().border_style(look.dim()).title(title);
    let inside = block.inner(area);
    frame.render_widget(block, area);
    inside
}
