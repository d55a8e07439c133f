//! Tables for people, and the numbers in them.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};

/// A table whose first columns, `text_columns` of them, are text and the others numbers.
pub(crate) fn new(headers: &[&str], text_columns: usize) -> Table {
    let mut table = Table::new();
    table.load_preset(NOTHING).set_header(headers);
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if index >= text_columns {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
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

/// Whole mebibytes.
pub(crate) fn mib(bytes: u64) -> String {
    thousands(bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_readable() {
        assert_eq!(thousands(1_234_567.4), "1 234 567");
        assert_eq!(thousands(999.0), "999");
        assert_eq!([us(0.123), us(12.34), us(1234.5)], ["0.12", "12.3", "1 234"]);
        assert_eq!(mib(3 << 20), "3");
    }
}
