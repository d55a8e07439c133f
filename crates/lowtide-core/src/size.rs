//! Sizes in bytes, as people write them: `64M`, `1.5G`, `4096`, `max`.
//!
//! Units are binary, as in all of the kernel's memory interfaces: `1K` is 1024 bytes. `K`, `KB` and
//! `KiB` mean the same, in either case. A size that is displayed reads back as the same number of
//! bytes.

use std::fmt;
use std::str::FromStr;

/// A number of bytes, or no limit.
///
/// ```
/// use lowtide_core::Size;
///
/// let size: Size = "1.5G".parse()?;
/// assert_eq!(size.bytes(), 3 << 29);
/// assert_eq!(size.to_string(), "1.5G");
/// assert_eq!("1536 MiB".parse::<Size>()?, size);
/// assert!("max".parse::<Size>()?.is_max());
/// # Ok::<(), lowtide_core::SizeError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Size(u64);

/// A text that is not a size. The message says what is accepted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "`{text}` is not a size: {problem}; write a number and perhaps a unit (K, M, G, T, P or E, \
     where 1K is 1024 bytes), \
     such as 4096, 64M or 1.5G, or `max`"
)]
#[non_exhaustive]
pub struct SizeError {
    /// What was given.
    pub text: String,
    problem: Problem,
}

/// What is wrong with a text that is not a size.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
enum Problem {
    /// Nothing, or a unit alone.
    #[error("there is no number")]
    NoNumber,
    /// A sign in front.
    #[error("sizes have no sign")]
    Signed,
    /// Not a decimal number, or an unknown unit.
    #[error("the part after the number is not a unit")]
    UnknownUnit,
    /// More than one point, or none of the digits that should surround it.
    #[error("the number is malformed")]
    Malformed,
    /// A fraction that is not a whole number of bytes, as in `1.5` or `0.3K`.
    #[error("it is not a whole number of bytes")]
    PartOfAByte,
    /// Not below 2^64.
    #[error("it is too large")]
    TooLarge,
}

const UNITS: &[u8; 6] = b"KMGTPE";

impl Size {
    /// No limit. Displayed as `max`.
    pub const MAX: Self = Self(u64::MAX);

    /// A number of bytes.
    #[must_use]
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// A number of KiB, of 1024 bytes each; [`Size::MAX`] if that is more than 2^64 bytes.
    #[must_use]
    pub const fn kib(count: u64) -> Self {
        Self(count.saturating_mul(1 << 10))
    }

    /// A number of MiB; [`Size::MAX`] if that is more than 2^64 bytes.
    #[must_use]
    pub const fn mib(count: u64) -> Self {
        Self(count.saturating_mul(1 << 20))
    }

    /// A number of GiB; [`Size::MAX`] if that is more than 2^64 bytes.
    #[must_use]
    pub const fn gib(count: u64) -> Self {
        Self(count.saturating_mul(1 << 30))
    }

    /// The number of bytes; `u64::MAX` for no limit.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// Whether this is no limit.
    #[must_use]
    pub const fn is_max(self) -> bool {
        self.0 == u64::MAX
    }

    /// Three digits for a reader, rounded to the nearest: `7.8M`, `312M`, `1.2G`. It does not read
    /// back as the same number.
    ///
    /// ```
    /// # use lowtide_core::Size;
    /// assert_eq!(Size::new(8_192_000).short().to_string(), "7.8M");
    /// ```
    #[must_use]
    pub fn short(self) -> impl fmt::Display {
        fmt::from_fn(move |f| {
            let (mut value, mut unit) = (self.0 as f64, None);
            for &next in UNITS {
                if value < 1023.5 {
                    break;
                }
                (value, unit) = (value / 1024.0, Some(char::from(next)));
            }
            let text = format!("{value:.*}", usize::from(unit.is_some() && value < 99.95));
            let text = text.strip_suffix(".0").unwrap_or(&text);
            f.pad(&unit.map_or_else(|| text.to_owned(), |unit| format!("{text}{unit}")))
        })
    }
}

impl From<u64> for Size {
    fn from(bytes: u64) -> Self {
        Self(bytes)
    }
}

impl FromStr for Size {
    type Err = SizeError;

    /// Reads `max`, or a decimal number with an optional unit. Blanks around the parts are allowed.
    /// Fractions are exact.
    fn from_str(text: &str) -> Result<Self, SizeError> {
        let trimmed = text.trim();
        if trimmed.eq_ignore_ascii_case("max") {
            return Ok(Self::MAX);
        }
        parse(trimmed).map(Self).map_err(|problem| SizeError { text: text.to_owned(), problem })
    }
}

fn parse(text: &str) -> Result<u64, Problem> {
    if text.starts_with(['-', '+']) {
        return Err(Problem::Signed);
    }
    let digits =
        text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
    let (number, unit) = text.split_at(digits);
    let shift = shift_of(unit.trim_start());
    if number.is_empty() {
        // `K` has no number, `NaN` and `inf` have no unit either.
        return Err(if shift.is_some() { Problem::NoNumber } else { Problem::UnknownUnit });
    }
    let shift = shift.ok_or(Problem::UnknownUnit)?;
    let (whole, fraction) = match number.split_once('.') {
        Some((whole, fraction)) if !whole.is_empty() && !fraction.is_empty() => (whole, fraction),
        Some(_) => return Err(Problem::Malformed),
        None => (number, ""),
    };
    if fraction.contains('.') {
        return Err(Problem::Malformed);
    }
    let fraction = fraction.trim_end_matches('0');
    let whole: u64 = whole.parse().map_err(|_| Problem::TooLarge)?;
    let whole = u128::from(whole) << shift;
    let part = if fraction.is_empty() { 0 } else { fraction_bytes(fraction, shift)? };
    u64::try_from(whole + u128::from(part)).map_err(|_| Problem::TooLarge)
}

/// Bytes of `0.fraction` units of `2^shift` bytes.
fn fraction_bytes(fraction: &str, shift: u32) -> Result<u64, Problem> {
    // Doubling the decimal digits `shift` times gives the bytes as the carries, exactly and for any
    // length.
    let mut digits: Vec<u8> = fraction.bytes().map(|digit| digit - b'0').collect();
    let mut bytes = 0;
    for _ in 0..shift {
        let mut carry = 0;
        for digit in digits.iter_mut().rev() {
            let doubled = *digit * 2 + carry;
            (*digit, carry) = (doubled % 10, doubled / 10);
        }
        bytes = bytes * 2 + u64::from(carry);
    }
    if digits.iter().all(|&digit| digit == 0) { Ok(bytes) } else { Err(Problem::PartOfAByte) }
}

/// The power of two of a unit: 0 for none, or `None` if it is no unit.
fn shift_of(unit: &str) -> Option<u32> {
    let unit = unit.to_ascii_uppercase();
    let Some((&letter, rest)) = unit.as_bytes().split_first() else { return Some(0) };
    if letter == b'B' && rest.is_empty() {
        return Some(0);
    }
    let power = UNITS.iter().position(|&known| known == letter)? as u32 + 1;
    matches!(rest, b"" | b"B" | b"IB").then_some(10 * power)
}

impl fmt::Display for Size {
    /// The shortest exact form: in the largest unit that needs at most three decimals, and
    /// otherwise in bytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_max() {
            return f.pad("max");
        }
        let thousandths = u128::from(self.0) * 1000;
        for (index, &unit) in UNITS.iter().enumerate().rev() {
            let shift = 10 * (index as u32 + 1);
            if self.0 >> shift > 0 && thousandths.trailing_zeros() >= shift {
                let scaled = (thousandths >> shift) as u64;
                let number = format!("{}.{:03}", scaled / 1000, scaled % 1000);
                let number = number.trim_end_matches('0').trim_end_matches('.');
                return f.pad(&format!("{number}{}", char::from(unit)));
            }
        }
        f.pad(&self.0.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Result<u64, Problem> {
        text.parse().map(Size::bytes).map_err(|error: SizeError| error.problem)
    }

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, expected) in [
            ("0", 0),
            ("512", 512),
            ("512B", 512),
            ("4K", 4096),
            ("4k", 4096),
            ("4KB", 4096),
            ("4KiB", 4096),
            (" 4 kib ", 4096),
            ("64M", 64 << 20),
            ("1.5G", 3 << 29),
            ("0.5K", 512),
            ("1.0", 1),
            ("2.000T", 2 << 40),
            ("3P", 3 << 50),
            ("15E", 15 << 60),
            ("007K", 7 << 10),
            ("0.0009765625K", 1),
            ("max", u64::MAX),
            ("MAX", u64::MAX),
            ("18446744073709551614", u64::MAX - 1),
        ] {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn everything_else_is_refused_with_its_reason() {
        use Problem::{Malformed, NoNumber, PartOfAByte, Signed, TooLarge, UnknownUnit};
        for (text, problem) in [
            ("", NoNumber),
            ("  ", NoNumber),
            ("G", NoNumber),
            ("-1", Signed),
            ("-0", Signed),
            ("+4K", Signed),
            ("NaN", UnknownUnit),
            ("inf", UnknownUnit),
            ("1e3", UnknownUnit),
            ("0x10", UnknownUnit),
            ("4Kx", UnknownUnit),
            ("4KK", UnknownUnit),
            ("10%", UnknownUnit),
            ("1,5G", UnknownUnit),
            ("maximum", UnknownUnit),
            ("4 µ", UnknownUnit),
            (".5G", Malformed),
            ("5.G", Malformed),
            (".", Malformed),
            ("1.2.3G", Malformed),
            ("1.5", PartOfAByte),
            ("1.5B", PartOfAByte),
            ("0.3K", PartOfAByte),
            ("16E", TooLarge),
            ("15.99999999999999999999999999999999999999999999999999999999999E", PartOfAByte),
            ("18446744073709551616", TooLarge),
            ("99999999999999999999999999999999999999999999T", TooLarge),
        ] {
            assert_eq!(bytes(text), Err(problem), "{text:?}");
        }
    }

    #[test]
    fn the_message_says_what_was_given_and_what_is_accepted() {
        let message = "12 parsecs".parse::<Size>().unwrap_err().to_string();
        assert!(message.starts_with("`12 parsecs` is not a size: "), "{message}");
        assert!(message.contains("1.5G") && message.contains("max"), "{message}");
    }

    #[test]
    fn sizes_are_displayed_shortly_and_read_back_as_they_were() {
        for (bytes, expected) in [
            (0, "0"),
            (512, "512"),
            (1023, "1023"),
            (1024, "1K"),
            (1025, "1025"),
            (1536, "1.5K"),
            (3 << 29, "1.5G"),
            (1126 << 20, "1126M"),
            ((1 << 30) + (1 << 27), "1.125G"),
            (u64::MAX, "max"),
        ] {
            assert_eq!(Size::new(bytes).to_string(), expected);
        }
        assert_eq!(format!("[{:>6}] [{:<5}]", Size::new(1 << 20), Size::MAX), "[    1M] [max  ]");

        let mut bytes = 1u64;
        for step in 0..10_000u32 {
            bytes = bytes
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let size = Size::new(bytes >> (step % 64) & (u64::MAX << (step * 7 % 40)));
            assert_eq!(size.to_string().parse(), Ok(size), "{} bytes", size.bytes());
        }
    }

    #[test]
    fn short_sizes_are_rounded_to_the_nearest() {
        for (bytes, text) in [
            (512, "512"),
            (4096, "4K"),
            (1_048_576, "1M"),
            (8_192_000, "7.8M"),
            ((1 << 20) - 1, "1M"),
            (64 << 20, "64M"),
            (326_700_000, "312M"),
            (5 << 29, "2.5G"),
            (3 << 40, "3T"),
            (u64::MAX, "16E"),
        ] {
            assert_eq!(Size::new(bytes).short().to_string(), text);
        }
    }
}
