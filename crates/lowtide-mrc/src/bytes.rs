//! Amounts of memory in a readable form.

use std::fmt;

const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// A number of bytes that displays in the largest binary unit of which it has at least one, with
/// three significant digits: `960 MiB`, `1.5 GiB`, `12.3 MiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Bytes(pub(crate) u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut unit = (self.0.max(1).ilog2() / 10) as usize;
        let mut value = self.0 as f64 / (1_u64 << (10 * unit)) as f64;
        if value >= 1023.5 && unit + 1 < UNITS.len() {
            unit += 1;
            value /= 1024.0;
        }
        let decimals = match value {
            _ if unit == 0 => 0,
            v if v < 9.995 => 2,
            v if v < 99.95 => 1,
            _ => 0,
        };
        let number = format!("{value:.decimals$}");
        let number =
            if decimals > 0 { number.trim_end_matches('0').trim_end_matches('.') } else { &number };
        f.pad(&format!("{number} {}", UNITS[unit]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_count() {
        let cases = [
            (0, "0 B"),
            (1023, "1023 B"),
            (4096, "4 KiB"),
            (1 << 20, "1 MiB"),
            ((1 << 20) - 1, "1 MiB"),
            (12_900_000, "12.3 MiB"),
            (100 << 20, "100 MiB"),
            (1_610_612_736, "1.5 GiB"),
            (1_234_567_890, "1.15 GiB"),
            (u64::MAX, "16 EiB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(Bytes(bytes).to_string(), text, "{bytes}");
        }
        assert_eq!(format!("{:>8}|", Bytes(4096)), "   4 KiB|");
    }
}
