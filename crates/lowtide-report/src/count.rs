//! Counts on the command line: `50M` accesses are 50,000,000. Units are decimal, unlike those of
//! sizes in bytes, because counts are not powers of two.

use std::str::FromStr;

use thiserror::Error;

/// A number of operations, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count(pub u64);

/// The text is not a count.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "`{0}` is not a number of operations; write a whole number from 1, perhaps with k, M or G, \
     such as 200k, 50M or 1.5G"
)]
pub struct CountError(String);

impl FromStr for Count {
    type Err = CountError;

    fn from_str(text: &str) -> Result<Self, CountError> {
        parse(text).filter(|&count| count > 0).map(Self).ok_or_else(|| CountError(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<u64> {
    let (number, digits) = match text.char_indices().next_back()? {
        (at, 'k' | 'K') => (&text[..at], 3),
        (at, 'm' | 'M') => (&text[..at], 6),
        (at, 'g' | 'G') => (&text[..at], 9),
        _ => (text, 0),
    };
    let (whole, fraction) = match number.split_once('.') {
        Some((_, "")) => return None,
        Some(parts) => parts,
        None => (number, ""),
    };
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || fraction.len() > digits || !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    let unit = 10_u64.pow(digits as u32);
    let part = if fraction.is_empty() { 0 } else { fraction.parse::<u64>().ok()? };
    let part = part * 10_u64.pow((digits - fraction.len()) as u32);
    whole.parse::<u64>().ok()?.checked_mul(unit)?.checked_add(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_decimal_and_fractions_exact() {
        for (text, count) in [
            ("1", 1),
            ("50M", 50_000_000),
            ("200k", 200_000),
            ("200K", 200_000),
            ("1.5G", 1_500_000_000),
            ("0.001k", 1),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(text.parse(), Ok(Count(count)), "{text}");
        }
    }

    #[test]
    fn what_is_no_number_of_things_is_refused() {
        for text in [
            "",
            "0",
            "0k",
            "-1",
            "+1",
            "1.5",
            "1.0001k",
            "1.",
            ".5k",
            "M",
            "1e6",
            "99999999999G",
            "1 k",
            "٣",
        ] {
            let error = text.parse::<Count>().unwrap_err();
            assert!(error.to_string().contains("50M"), "{text}");
        }
    }
}
