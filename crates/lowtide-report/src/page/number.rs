//! Numbers as people read them, and the ticks of an axis.

/// A number with three or four digits that mean something, thousands apart by a narrow blank.
pub(super) fn text(value: f64) -> String {
    if !value.is_finite() {
        return "none".into();
    }
    let decimals = match value.abs() {
        v if v == 0.0 || v >= 1000.0 => 0,
        v if v >= 100.0 => 1,
        v if v >= 1.0 => 2,
        v if v >= 0.01 => 3,
        _ => 5,
    };
    let plain = format!("{value:.decimals$}");
    let (whole, rest) = plain.split_at(plain.find('.').unwrap_or(plain.len()));
    let rest = rest.trim_end_matches('0').trim_end_matches('.');
    let (sign, digits) = whole.strip_prefix('-').map_or(("", whole), |digits| ("-", digits));
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push('\u{202f}');
        }
        grouped.push(digit);
    }
    format!("{sign}{grouped}{rest}")
}

/// A time in microseconds, in the unit that suits it.
pub(super) fn microseconds(us: f64) -> String {
    match us {
        us if us >= 1e6 => format!("{}\u{a0}s", text(us / 1e6)),
        us if us >= 1e3 => format!("{}\u{a0}ms", text(us / 1e3)),
        us => format!("{}\u{a0}µs", text(us)),
    }
}

/// An amount of memory.
pub(super) fn bytes(bytes: f64) -> String {
    crate::table::memory(bytes.max(0.0).round() as u64)
}

/// Round values from 0 to at least `most`, at most six of them.
pub(super) fn ticks(most: f64) -> Vec<f64> {
    if !(most > 0.0 && most.is_finite()) {
        return vec![0.0, 1.0];
    }
    let power = 10_f64.powf((most / 5.0).log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|step| step * power);
    let step = steps.into_iter().find(|step| most / step <= 5.0).unwrap_or(10.0 * power);
    let count = (most / step - 1e-9).ceil() as u32;
    (0..=count).map(|tick| f64::from(tick) * step).collect()
}

/// The same in amounts of memory: multiples of a kibibyte, a mebibyte and so on.
pub(super) fn byte_ticks(most: f64) -> Vec<f64> {
    if !(most >= 1.0 && most.is_finite()) {
        return ticks(most);
    }
    let unit = 1024_f64.powi(most.log(1024.0).floor() as i32);
    ticks(most / unit).into_iter().map(|tick| tick * unit).collect()
}

/// Powers of `base` from below the least to above the most, thinned to at most six.
pub(super) fn log_ticks(base: f64, (least, most): (f64, f64)) -> Vec<f64> {
    // A value on a power of the base is its own tick, whatever rounding says.
    let first = (least.log(base) + 1e-9).floor() as i32;
    let last = ((most.log(base) - 1e-9).ceil() as i32).max(first + 1);
    let step = ((last - first) as usize).div_ceil(5).max(1);
    let last = first + (((last - first) as usize).div_ceil(step) * step) as i32;
    (first..=last).step_by(step).map(|power| base.powi(power)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_mean_something() {
        for (value, expected) in [
            (0.0, "0"),
            (78_989.4, "78\u{202f}989"),
            (-1_234_567.0, "-1\u{202f}234\u{202f}567"),
            (1.25, "1.25"),
            (12.5, "12.5"),
            (0.12345, "0.123"),
            (0.0001234, "0.00012"),
            (f64::NAN, "none"),
        ] {
            assert_eq!(text(value), expected);
        }
        assert_eq!(microseconds(1_500.0), "1.5\u{a0}ms");
        assert_eq!(microseconds(42.0), "42\u{a0}µs");
        assert_eq!(microseconds(2.5e6), "2.5\u{a0}s");
    }

    #[test]
    fn ticks_are_round_and_cover_the_values() {
        assert_eq!(ticks(94_077.0), [0.0, 20_000.0, 40_000.0, 60_000.0, 80_000.0, 100_000.0]);
        assert_eq!(ticks(1.0), [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
        assert_eq!(ticks(0.0), [0.0, 1.0]);
        for most in [0.003, 1.0, 7.0, 96.4, 1e9, 3.3e12] {
            let found = ticks(most);
            assert!(found.len() <= 6 && *found.last().unwrap() >= most * (1.0 - 1e-9), "{found:?}");
        }
        let mib = 1_048_576.0;
        assert_eq!(byte_ticks(3.5 * mib), [0.0, mib, 2.0 * mib, 3.0 * mib, 4.0 * mib]);
        assert_eq!(byte_ticks(0.0), [0.0, 1.0]);
        assert_eq!(log_ticks(10.0, (3.0, 800.0)), [1.0, 10.0, 100.0, 1000.0]);
        assert_eq!(log_ticks(2.0, (4096.0, 65_536.0)).len(), 5);
        let wide = log_ticks(2.0, (1.0, 2_f64.powi(30)));
        assert!(wide.len() <= 6 && *wide.last().unwrap() >= 2_f64.powi(30), "{wide:?}");
        assert_eq!(log_ticks(10.0, (5.0, 5.0)), [1.0, 10.0]);
    }
}
