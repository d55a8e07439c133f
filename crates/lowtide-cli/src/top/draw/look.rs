//! Colours and characters.
//!
//! No colour says anything alone: a state has a word or a mark as well. Colours are distinguished
//! by people who do not see red and green as two. `NO_COLOR` removes them. Where the locale is not
//! UTF-8, a finished picture is translated into ASCII, cell by cell, so that no other file has to
//! know.

use std::env;

use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier, Style};

/// How things look here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) has_colour: bool,
    pub(crate) is_ascii: bool,
}

/// Whether the environment's locale has UTF-8: the first of these variables that is set counts.
fn is_utf8(variable: impl Fn(&str) -> Option<String>) -> bool {
    let set = ["LC_ALL", "LC_CTYPE", "LANG"].map(variable);
    let locale = set.into_iter().flatten().find(|value| !value.is_empty());
    let locale = locale.unwrap_or_default().to_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

impl Look {
    /// As the environment wants it.
    pub(crate) fn from_env() -> Self {
        let has_colour = env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { has_colour, is_ascii: !is_utf8(|name| env::var(name).ok()) }
    }

    const fn coloured(self, colour: Color) -> Style {
        if self.has_colour { Style::new().fg(colour) } else { Style::new() }
    }

    /// Titles of columns and boxes.
    pub(crate) const fn title(self) -> Style {
        self.coloured(Color::Cyan).add_modifier(Modifier::BOLD)
    }

    /// What matters less.
    pub(crate) const fn dim(self) -> Style {
        if self.has_colour {
            Style::new().fg(Color::DarkGray)
        } else {
            Style::new().add_modifier(Modifier::DIM)
        }
    }

    /// What needs attention.
    pub(crate) const fn alert(self) -> Style {
        self.coloured(Color::Yellow).add_modifier(Modifier::BOLD)
    }

    /// Bars and lines.
    pub(crate) const fn bar(self) -> Style {
        self.coloured(Color::Blue)
    }

    /// The present size on a curve.
    pub(crate) const fn here(self) -> Style {
        self.coloured(Color::Yellow).add_modifier(Modifier::BOLD)
    }

    /// The selected row.
    pub(crate) const fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// The first and the last line.
    pub(crate) const fn frame(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// Translates a picture, where the terminal knows ASCII alone.
    pub(crate) fn finish(self, picture: &mut Buffer) {
        if !self.is_ascii {
            return;
        }
        for cell in &mut picture.content {
            if !cell.symbol().is_ascii() {
                let c = cell.symbol().chars().next().map_or(' ', ascii);
                cell.set_char(c);
            }
        }
    }
}

/// The nearest character of ASCII.
const fn ascii(c: char) -> char {
    match c {
        '─' | '━' | '╌' => '-',
        '│' | '┃' | '╎' => '|',
        '┌' | '┐' | '└' | '┘' | '├' | '┤' | '┬' | '┴' | '┼' => '+',
        '▁' => '_',
        '▂' => '.',
        '▃' => ':',
        '▄' => '-',
        '▅' => '=',
        '▆' => '+',
        '▇' => '*',
        '█' | '▉' | '▊' | '▋' | '▌' => '#',
        '▍' | '▎' | '▏' => ' ',
        // Lines of dots.
        '\u{2801}'..='\u{28ff}' => '*',
        '\u{2800}' => ' ',
        '•' | '●' => '*',
        _ => '?',
    }
}

/// A bar within brackets, `width` cells in all, filled up to a share from 0 to 1.
pub(crate) fn bar(share: f64, width: usize) -> String {
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let inner = width.saturating_sub(2);
    let eighths = (share.clamp(0.0, 1.0) * inner as f64 * 8.0).round() as usize;
    let mut text = "█".repeat(eighths / 8);
    text.push_str(PARTS[eighths % 8]);
    let filled = text.chars().count();
    format!("[{text}{:blanks$}]", "", blanks = inner.saturating_sub(filled))
}

#[cfg(test)]
mod tests {
    use ratatui::layout::Rect;

    use super::*;

    #[test]
    fn the_first_variable_that_is_set_names_the_locale() {
        let with = |set: &'static [(&str, &str)]| {
            is_utf8(move |name| {
                let found = set.iter().find(|(set, _)| *set == name);
                found.map(|(_, value)| (*value).to_owned())
            })
        };
        assert!(with(&[("LANG", "de_DE.UTF-8")]));
        assert!(with(&[("LANG", "C"), ("LC_ALL", "C.utf8")]));
        assert!(!with(&[("LANG", "en_US.UTF-8"), ("LC_ALL", "C")]));
        assert!(with(&[("LANG", "en_US.UTF-8"), ("LC_ALL", "")]));
        assert!(!with(&[]));
    }

    #[test]
    fn a_bar_is_as_wide_as_it_should_be_whatever_the_share() {
        for width in [2, 6, 24] {
            for share in [-1.0, 0.0, 0.01, 0.5, 0.99, 1.0, 7.0] {
                assert_eq!(bar(share, width).chars().count(), width, "{share} of {width}");
            }
        }
        assert_eq!(bar(0.5, 10), "[████    ]");
        assert_eq!(bar(0.56, 10), "[████▌   ]");
    }

    #[test]
    fn a_picture_in_ascii_has_no_other_character() {
        let mut picture = Buffer::empty(Rect::new(0, 0, 40, 1));
        picture.set_string(0, 0, "┌─▁▄█▌⣿⠀é日 ok", Style::new());
        Look { has_colour: false, is_ascii: true }.finish(&mut picture);
        let text: String = picture.content.iter().map(ratatui::buffer::Cell::symbol).collect();
        assert!(text.is_ascii(), "{text}");
        assert!(text.starts_with("+-_-##* ??"), "{text}");
    }
}
