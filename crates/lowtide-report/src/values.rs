//! Single values: what each may be. The argument parser reports these errors with the name of the
//! option.

use std::time::Duration;

use lowtide::Size;

use crate::span::Span;

/// Data sizes are multiples of this, so that every possible page divides them.
pub const GRAIN_BYTES: u64 = 64 << 10;
/// The default page of lowtide: the kernel's.
pub const PAGE: &str = "4K";
/// The same in bytes.
pub const PAGE_BYTES: u64 = 4096;

fn bytes(text: &str) -> Result<Size, String> {
    text.parse::<Size>().map_err(|error| error.to_string())
}

/// A memory budget, in bytes.
pub fn budget(text: &str) -> Result<u64, String> {
    let max = bytes(text)?;
    if max.is_max() || max.bytes() == 0 {
        return Err("this is not a budget; give a size that fits in memory, such as 256M".into());
    }
    Ok(max.bytes())
}

/// An amount of data, in bytes.
pub fn size(text: &str) -> Result<u64, String> {
    let size = bytes(text)?;
    if size.is_max() || size.bytes() == 0 {
        return Err("the size is zero; give a size such as 256M".into());
    }
    Ok(size.bytes())
}

/// The data as a multiple of the budget.
pub fn scale(text: &str) -> Result<f64, String> {
    let possible = |scale: &f64| (0.01..=1e6).contains(scale);
    let scale = text.parse().ok().filter(possible);
    scale.ok_or_else(|| "give a number from 0.01 to 1000000, such as 4".into())
}

/// A part of a published size.
pub fn part(text: &str) -> Result<f64, String> {
    let part = text.parse().ok().filter(|part| *part > 0.0 && *part <= 1.0);
    part.ok_or_else(|| "give a number above 0 and up to 1, such as 0.001".into())
}

/// A number of seconds: positive and less than a month.
pub fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| *seconds > 0.0 && *seconds < 2.6e6);
    seconds.ok_or_else(|| "give a number of seconds above 0, such as 5".into())
}

/// A time between checkpoints.
pub fn interval(text: &str) -> Result<Duration, String> {
    let span: Span = text.parse().map_err(|error| format!("{error}"))?;
    if span.0 < Duration::from_millis(1) {
        return Err("give a time of at least 1ms, such as 10s".into());
    }
    Ok(span.0)
}

/// A base page of lowtide, in bytes.
pub fn page(text: &str) -> Result<u64, String> {
    let page = bytes(text)?.bytes();
    if !page.is_power_of_two() || !(512..=GRAIN_BYTES).contains(&page) {
        return Err("give a power of two from 512 bytes to 64K, such as 4K".into());
    }
    Ok(page)
}

/// A whole number of grains, at least one.
pub fn grain(bytes: u64) -> u64 {
    bytes
        .checked_next_multiple_of(GRAIN_BYTES)
        .unwrap_or(u64::MAX - GRAIN_BYTES + 1)
        .max(GRAIN_BYTES)
}

/// The size of the data, `scale` times a budget.
pub fn scaled(budget: u64, scale: f64) -> u64 {
    grain((budget as f64 * scale) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_make_no_sense_are_answered_with_one_that_does() {
        for (answer, example) in [
            (budget("0").unwrap_err(), "256M"),
            (budget("max").unwrap_err(), "256M"),
            (size("0").unwrap_err(), "256M"),
            (scale("nan").unwrap_err(), "such as 4"),
            (scale("0").unwrap_err(), "such as 4"),
            (part("1.5").unwrap_err(), "0.001"),
            (part("0").unwrap_err(), "0.001"),
            (seconds("-1").unwrap_err(), "such as 5"),
            (seconds("inf").unwrap_err(), "such as 5"),
            (interval("1us").unwrap_err(), "10s"),
            (page("3K").unwrap_err(), "power of two"),
            (page("128K").unwrap_err(), "4K"),
        ] {
            assert!(answer.contains(example), "{answer}");
        }
        assert_eq!(page(PAGE), Ok(PAGE_BYTES));
        assert_eq!(scaled(100 << 10, 1.0), 128 << 10);
    }
}
