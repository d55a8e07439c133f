//! Tables, and the numbers in them.
//!
//! A table wider than `WIDTH` columns is split into parts, one below the other; each part repeats
//! the columns that name the rows. `--wide` disables the split ([`be_wide`]). Two blanks separate
//! columns and no cell contains two consecutive blanks, so `awk -F '  +'` can split them. On a
//! terminal a blank separates thousands; elsewhere a number is one word.

use std::fmt;
use std::io::IsTerminal;
use std::sync::LazyLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use comfy_table::CellAlignment;
use comfy_table::presets::NOTHING;
use lowtide_core::Size;

use crate::legend;

/// The largest width of a table.
const WIDTH: usize = 100;
/// Blanks between two columns.
const GAP: usize = 2;

/// Whether tables are never split.
static WIDE: AtomicBool = AtomicBool::new(false);
/// Whether standard output is a terminal.
static TERMINAL: LazyLock<bool> = LazyLock::new(|| std::io::stdout().is_terminal());

/// Disables the split of wide tables.
pub fn be_wide() {
    WIDE.store(true, Relaxed);
}

/// A table. It displays without trailing blanks, and with the meaning of its headers below.
#[derive(Debug)]
pub struct Table {
    headers: Vec<String>,
    rows: Vec<Vec<String>>,
    /// The first columns, which are left-aligned text.
    text: Vec<bool>,
    /// The first columns, which name the rows.
    names: usize,
}

/// A table whose first columns, `text_columns` of them, are text and the others numbers.
pub fn new(headers: &[&str], text_columns: usize) -> Table {
    Table {
        headers: headers.iter().copied().map(String::from).collect(),
        rows: Vec::new(),
        text: (0..headers.len()).map(|column| column < text_columns).collect(),
        names: text_columns.min(headers.len() - 1),
    }
}

impl Table {
    /// Adds a row of as many cells as there are headers.
    pub fn add_row(&mut self, row: impl IntoIterator<Item = String>) {
        self.rows.push(row.into_iter().collect());
    }

    /// Aligns a column of text like numbers.
    pub fn align_right(&mut self, column: usize) {
        self.text[column] = false;
        self.names = 1;
    }

    /// The columns of each part, so that only a part with a single column can be too wide.
    fn parts(&self, most: usize) -> Vec<Vec<usize>> {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            let cells = cells.chain([&self.headers[column]]);
            GAP + cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let names: usize = (0..self.names).map(width).sum();
        let mut parts: Vec<Vec<usize>> = Vec::new();
        let mut left = 0;
        for column in self.names..self.headers.len() {
            if parts.is_empty() || left < width(column) {
                parts.push((0..self.names).collect());
                left = (most + GAP).saturating_sub(names);
            }
            parts.last_mut().into_iter().for_each(|part| part.push(column));
            left = left.saturating_sub(width(column));
        }
        parts
    }

    fn part(&self, columns: &[usize]) -> String {
        let mut cells = comfy_table::Table::new();
        let pick = |row: &Vec<String>| -> Vec<String> {
            columns.iter().map(|&column| row.get(column).cloned().unwrap_or_default()).collect()
        };
        cells.load_preset(NOTHING).set_header(pick(&self.headers));
        for (at, &column) in columns.iter().enumerate() {
            if let Some(shown) = cells.column_mut(at) {
                shown.set_padding((0, GAP as u16));
                if !self.text[column] {
                    shown.set_cell_alignment(CellAlignment::Right);
                }
            }
        }
        for row in &self.rows {
            cells.add_row(pick(row));
        }
        let cells = cells.to_string();
        cells.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most = if WIDE.load(Relaxed) { usize::MAX - GAP } else { WIDTH };
        let parts: Vec<String> = self.parts(most).iter().map(|part| self.part(part)).collect();
        f.write_str(&parts.join("\n\n"))?;
        let width =
            legend::of(&self.headers).map(|(word, _)| word.chars().count()).max().unwrap_or(0);
        for (number, (word, meaning)) in legend::of(&self.headers).enumerate() {
            let before = if number == 0 { "\n\n" } else { "\n" };
            write!(f, "{before}  {word:<width$}  ")?;
            let indent = format!("\n{:blanks$}", "", blanks = width + 2 * GAP);
            f.write_str(&wrap(meaning, WIDTH - width - 2 * GAP).join(&indent))?;
        }
        Ok(())
    }
}

/// Splits a text into lines of at most `most` characters, between words.
fn wrap(text: &str, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= most => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// A whole number; on a terminal a blank separates its thousands.
pub fn thousands(number: f64) -> String {
    if *TERMINAL { grouped(number) } else { format!("{number:.0}") }
}

/// A whole number with a blank between its thousands.
fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// Microseconds, with only significant digits.
pub fn us(us: f64) -> String {
    if us < 10.0 {
        format!("{us:.2}")
    } else if us < 100.0 {
        format!("{us:.1}")
    } else {
        thousands(us)
    }
}

/// An amount of memory for display.
pub fn memory(bytes: u64) -> String {
    Size::new(bytes).short().to_string()
}

/// Whole mebibytes.
pub fn mib(bytes: u64) -> String {
    thousands(bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_of_a_table_ends_in_blanks_and_words_are_explained_below() {
        let mut table = new(&["policy", "B/page"], 1);
        table.add_row(["mglru", "7"].map(String::from));
        let text = table.to_string();
        assert!(text.lines().all(|line| line == line.trim_end()), "{text:?}");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..3], ["policy  B/page", "mglru        7", ""]);
        assert!(lines[3].starts_with("  B/page  simulator memory"), "{text}");
    }

    #[test]
    fn a_wide_table_is_cut_into_parts_that_name_their_rows() {
        let headers: Vec<String> = (0..30).map(|column| format!("column {column}")).collect();
        let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
        let mut table = new(&headers, 1);
        table.add_row((0..30).map(|column| format!("cell {column}")));
        let text = table.to_string();
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        let parts: Vec<&str> = text.split("\n\n").collect();
        assert!(parts.len() > 1 && parts.iter().all(|part| part.starts_with("column 0")), "{text}");
        for column in 1..30 {
            assert_eq!(
                text.matches(&format!("cell {column} ")).count()
                    + text.matches(&format!("cell {column}\n")).count()
                    + usize::from(text.ends_with(&format!("cell {column}"))),
                1,
                "{column}: {text}"
            );
        }
        assert_eq!(table.parts(usize::MAX - GAP).len(), 1, "--wide");
    }

    #[test]
    fn what_words_mean_is_wrapped() {
        let lines = wrap(&"words ".repeat(40), 30);
        assert!(lines.len() > 7 && lines.iter().all(|line| line.len() <= 30), "{lines:?}");
        assert_eq!(lines.join(" "), "words ".repeat(40).trim_end());
    }

    #[test]
    fn numbers_are_short_and_readable() {
        assert_eq!(grouped(1_234_567.4), "1 234 567");
        assert_eq!(grouped(999.0), "999");
        assert_eq!([us(0.123), us(12.34)], ["0.12", "12.3"]);
        assert_eq!(mib(3 << 20), "3");
    }
}
