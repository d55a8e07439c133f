//! Variable-length numbers: seven bits to a byte, low ones first, the high bit set while more
//! follow.

/// Appends `number`, 1 to 10 bytes.
#[inline]
pub(super) fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Takes a number from `bytes` at `at`, which is moved behind it. `None` when the bytes end first
/// or the number has more than 64 bits.
#[inline]
pub(super) fn take(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let first = *bytes.get(*at)?;
    *at += 1;
    if first < 0x80 { Some(u64::from(first)) } else { take_more(bytes, at, first) }
}

#[inline]
fn take_more(bytes: &[u8], at: &mut usize, first: u8) -> Option<u64> {
    let mut number = u64::from(first & 0x7F);
    for shift in (7..64).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        // The tenth byte has room for one bit.
        if shift == 63 && byte > 1 {
            return None;
        }
        number |= u64::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

/// A signed difference as a number that is small when the difference is: 0, -1, 1, -2, … become 0,
/// 1, 2, 3, …
#[inline]
pub(super) const fn zigzag(difference: i64) -> u64 {
    (difference << 1 ^ difference >> 63) as u64
}

/// The inverse of [`zigzag`].
#[inline]
pub(super) const fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_number_is_none() {
        assert_eq!(take(&[], &mut 0), None);
        assert_eq!(take(&[0x80], &mut 0), None);
        assert_eq!(take(&[0xFF; 10], &mut 0), None);
        let mut largest = [0xFF; 10];
        largest[9] = 1;
        assert_eq!(take(&largest, &mut 0), Some(u64::MAX));
        largest[9] = 2;
        assert_eq!(take(&largest, &mut 0), None);
    }

    proptest! {
        #[test]
        fn numbers_survive(number: u64, shift in 0_u32..64, difference: i64) {
            let mut bytes = Vec::new();
            put(&mut bytes, number >> shift);
            put(&mut bytes, zigzag(difference >> shift));
            let mut at = 0;
            prop_assert_eq!(take(&bytes, &mut at), Some(number >> shift));
            prop_assert_eq!(take(&bytes, &mut at).map(unzigzag), Some(difference >> shift));
            prop_assert_eq!(at, bytes.len());
        }
    }
}
