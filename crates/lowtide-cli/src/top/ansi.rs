//! Pictures as the sequences of ECMA-48 that all terminals of Linux know, for ratatui.
//!
//! ratatui has backends of its own. Each brings a library for terminals of all systems, of which a
//! picture needs the few sequences below: crossterm's would be eleven crates.

use std::fmt::{self, Display};
use std::io::{self, BufWriter, Stdout, Write};

use ratatui::backend::{Backend, ClearType, WindowSize};
use ratatui::buffer::Cell;
use ratatui::layout::{Position, Size};
use ratatui::style::{Color, Modifier};

/// To a picture without a cursor, and back.
pub(super) const ENTER: &str = "\x1b[?1049h\x1b[?25l";
pub(super) const LEAVE: &str = "\x1b[?1049l\x1b[?25h";
/// Bytes of a picture are written at once.
const PICTURE: usize = 1 << 16;

/// Standard output as a picture.
pub(super) struct Ansi {
    out: BufWriter<Stdout>,
}

impl Ansi {
    /// A picture that nothing was drawn on.
    pub(super) fn new() -> Self {
        Self { out: BufWriter::with_capacity(PICTURE, io::stdout()) }
    }

    /// Writes at once.
    fn say(&mut self, sequence: impl Display) -> io::Result<()> {
        write!(self.out, "{sequence}")?;
        self.out.flush()
    }
}

/// How a cell looks, as the sequence that makes it so whatever was before.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Rendition {
    fore: Color,
    back: Color,
    modifier: Modifier,
}

impl Rendition {
    const USUAL: Self =
        Self { fore: Color::Reset, back: Color::Reset, modifier: Modifier::empty() };

    const fn of(cell: &Cell) -> Self {
        Self { fore: cell.fg, back: cell.bg, modifier: cell.modifier }
    }
}

impl Display for Rendition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMED: [(Modifier, u8); 6] = [
            (Modifier::BOLD, 1),
            (Modifier::DIM, 2),
            (Modifier::ITALIC, 3),
            (Modifier::UNDERLINED, 4),
            (Modifier::REVERSED, 7),
            (Modifier::CROSSED_OUT, 9),
        ];
        f.write_str("\x1b[0")?;
        for (modifier, code) in NAMED {
            if self.modifier.contains(modifier) {
                write!(f, ";{code}")?;
            }
        }
        for (colour, base) in [(self.fore, 30), (self.back, 40)] {
            match colour {
                Color::Reset => {}
                Color::Indexed(index) => write!(f, ";{};5;{index}", base + 8)?,
                Color::Rgb(r, g, b) => write!(f, ";{};2;{r};{g};{b}", base + 8)?,
                named => write!(f, ";{}", base + u16::from(place(named)))?,
            }
        }
        f.write_str("m")
    }
}

/// The place of a named colour: bright ones begin at 60.
const fn place(colour: Color) -> u8 {
    match colour {
        Color::Black => 0,
        Color::Red => 1,
        Color::Green => 2,
        Color::Yellow => 3,
        Color::Blue => 4,
        Color::Magenta => 5,
        Color::Cyan => 6,
        Color::Gray => 7,
        Color::DarkGray => 60,
        Color::LightRed => 61,
        Color::LightGreen => 62,
        Color::LightYellow => 63,
        Color::LightBlue => 64,
        Color::LightMagenta => 65,
        Color::LightCyan => 66,
        Color::White => 67,
        // The default colour.
        _ => 9,
    }
}

/// The sequence that moves the cursor.
fn to(at: Position) -> impl Display {
    fmt::from_fn(move |f| write!(f, "\x1b[{};{}H", u32::from(at.y) + 1, u32::from(at.x) + 1))
}

impl Backend for Ansi {
    type Error = io::Error;

    fn draw<'a, I>(&mut self, content: I) -> io::Result<()>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        let mut rendition = Rendition::USUAL;
        let mut next = None;
        for (x, y, cell) in content {
            if next != Some((x, y)) {
                write!(self.out, "{}", to(Position { x, y }))?;
            }
            next = Some((x + 1, y));
            if Rendition::of(cell) != rendition {
                rendition = Rendition::of(cell);
                write!(self.out, "{rendition}")?;
            }
            self.out.write_all(cell.symbol().as_bytes())?;
        }
        write!(self.out, "{}", Rendition::USUAL)
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        self.say("\x1b[?25l")
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        self.say("\x1b[?25h")
    }

    /// A picture has no cursor.
    fn get_cursor_position(&mut self) -> io::Result<Position> {
        Ok(Position::ORIGIN)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        self.say(to(position.into()))
    }

    fn clear(&mut self) -> io::Result<()> {
        self.clear_region(ClearType::All)
    }

    fn clear_region(&mut self, part: ClearType) -> io::Result<()> {
        self.say(match part {
            ClearType::All => "\x1b[2J",
            ClearType::AfterCursor => "\x1b[0J",
            ClearType::BeforeCursor => "\x1b[1J",
            ClearType::CurrentLine => "\x1b[2K",
            ClearType::UntilNewLine => "\x1b[0K",
        })
    }

    fn size(&self) -> io::Result<Size> {
        let size = rustix::termios::tcgetwinsize(io::stdout())?;
        Ok(Size::new(size.ws_col, size.ws_row))
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        let size = rustix::termios::tcgetwinsize(io::stdout())?;
        let pixels = Size::new(size.ws_xpixel, size.ws_ypixel);
        Ok(WindowSize { columns_rows: Size::new(size.ws_col, size.ws_row), pixels })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_is_one_sequence_whatever_was_before() {
        let usual = Rendition::USUAL;
        let text = |of: Rendition| of.to_string();
        assert_eq!(text(usual), "\x1b[0m");
        let title = Rendition { fore: Color::Cyan, modifier: Modifier::BOLD, ..usual };
        assert_eq!(text(title), "\x1b[0;1;36m");
        let dim = Rendition { fore: Color::DarkGray, back: Color::Indexed(7), ..usual };
        assert_eq!(text(dim), "\x1b[0;90;48;5;7m");
        assert_eq!(to(Position { x: 0, y: 2 }).to_string(), "\x1b[3;1H");
    }
}
