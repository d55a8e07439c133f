//! Tables for people, and the numbers in them.

use std::fmt;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Row};

use crate::legend;

/// A table. It displays without blanks at the ends of its lines, and with what its headers mean
/// below it.
#[derive(Debug)]
pub(crate) struct Table {
    cells: comfy_table::Table,
    headers: Vec<String>,
}

/// A table whose first columns, `text_columns` of them, are text and the others numbers.
pub(crate) fn new(headers: &[&str], text_columns: usize) -> Table {
    let mut cells = comfy_table::Table::new();
    cells.load_preset(NOTHING).set_header(headers);
    for (index, column) in cells.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if index >= text_columns {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    Table { cells, headers: headers.iter().copied().map(String::from).collect() }
}

impl Table {
    /// Adds a row of as many cells as there are headers.
    pub(crate) fn add_row(&mut self, row: impl Into<Row>) {
        self.cells.add_row(row);
    }

    /// Takes the cells of a column of text for numbers.
    pub(crate) fn align_right(&mut self, column: usize) {
        if let Some(column) = self.cells.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cells = self.cells.to_string();
        let lines: Vec<&str> = cells.lines().map(str::trim_end).collect();
        f.write_str(&lines.join("\n"))?;
        let width =
            legend::of(&self.headers).map(|(word, _)| word.chars().count()).max().unwrap_or(0);
        for (number, (word, meaning)) in legend::of(&self.headers).enumerate() {
            let before = if number == 0 { "\n\n" } else { "\n" };
            write!(f, "{before}  {word:<width$}  {meaning}")?;
        }
        Ok(())
    }
}

/// A whole number with its thousands set apart.
pub(crate) fn thousands(number: f64) -> String {
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

/// Microseconds, with as many digits as are known.
pub(crate) fn us(us: f64) -> String {
    if us < 10.0 {
        format!("{us:.2}")
    } else if us < 100.0 {
        format!("{us:.1}")
    } else {
        thousands(us)
    }
}

/// An amount of memory for people, rounded to the nearest: three digits and more, as `7.8M`, `312M`
/// or `1.2G`.
pub(crate) fn memory(bytes: u64) -> String {
    let (unit, name) = match bytes {
        0..1024 => return bytes.to_string(),
        1024..0x10_0000 => (1024.0, 'K'),
        0x10_0000..0x4000_0000 => (f64::from(1 << 20), 'M'),
        0x4000_0000..0x100_0000_0000 => (f64::from(1 << 30), 'G'),
        0x100_0000_0000..0x4_0000_0000_0000 => (f64::from(1 << 30) * 1024.0, 'T'),
        _ => (f64::from(1 << 30) * f64::from(1 << 30), 'E'),
    };
    let number = bytes as f64 / unit;
    let text = format!("{number:.*}", usize::from(number < 99.95));
    format!("{}{name}", text.strip_suffix(".0").unwrap_or(&text))
}

/// Whole mebibytes.
pub(crate) fn mib(bytes: u64) -> String {
    thousands(bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_of_a_table_ends_in_blanks_and_words_are_explained_below() {
        let mut table = new(&["policy", "B/page"], 1);
        table.add_row(vec!["mglru", "7"]);
        let text = table.to_string();
        assert!(text.lines().all(|line| line == line.trim_end()), "{text:?}");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..3], ["policy  B/page", "mglru        7", ""]);
        assert!(lines[3].starts_with("  B/page  bytes of memory"), "{text}");
        assert_eq!(new(&["policy"], 1).to_string(), "policy");
    }

    #[test]
    fn numbers_are_short_and_readable() {
        assert_eq!(thousands(1_234_567.4), "1 234 567");
        assert_eq!(thousands(999.0), "999");
        assert_eq!([us(0.123), us(12.34), us(1234.5)], ["0.12", "12.3", "1 234"]);
        assert_eq!(mib(3 << 20), "3");
    }

    #[test]
    fn memory_is_rounded_to_the_nearest() {
        for (bytes, text) in [
            (512, "512"),
            (4096, "4K"),
            (1_048_576, "1M"),
            (8_192_000, "7.8M"),
            (64 << 20, "64M"),
            (326_700_000, "312M"),
            (5 << 29, "2.5G"),
            (3 << 40, "3T"),
            (u64::MAX, "16E"),
        ] {
            assert_eq!(memory(bytes), text);
        }
    }
}
