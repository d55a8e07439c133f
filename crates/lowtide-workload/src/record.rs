//! The benchmark record: 1024 bytes that carry their own key.
//!
//! Wrong bytes are worse than no bytes, so every record carries its key, version and checksum, and
//! every read is verified. The content is a function of key, version and [`Payload`] alone: ten
//! fields of 100 bytes, as YCSB's, that look random to a compressing device, or a document of JSON,
//! which becomes a third of its size.
//!
//! | bytes | field | encoding |
//! |---|---|---|
//! | 0..8 | key | `u64`, little-endian |
//! | 8..16 | version: 0 as loaded, one more with each update | `u64`, little-endian |
//! | 16..24 | checksum of key, version and payload | `u64`, little-endian |
//! | 24..1024 | payload: fields 0 to 9 of 100 bytes each, or JSON | drawn from key and version |
//!
//! The checksum is XXH3 (64 bits) of the payload, into which key and version are folded by
//! SplitMix64's mix. XXH3 was chosen over CRC-32 because it was faster over these 1000 bytes in the
//! default x86-64 build (27 against 42 ns, with SSE2 alone against hardware CRC) and has 64 bits.
//!
//! An update changes one field in YCSB. Here it draws all ten afresh: the page is as dirty, and a
//! torn update (half the slot old, half new) cannot pass.

use crate::prng::{SplitMix64, mix64};
use std::io::Write as _;
use thiserror::Error;
use xxhash_rust::xxh3::xxh3_64;

/// Bytes of a record's slot.
pub const RECORD_BYTES: usize = 1024;
/// Fields of a record.
pub const FIELDS: usize = 10;
/// Bytes of one field.
pub const FIELD_BYTES: usize = 100;
/// What the payload of a record looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Payload {
    /// Random bytes.
    #[default]
    Random,
    /// A document of JSON: names, words, numbers, dates, and some random digits.
    Json,
    /// Lines of text: words and numbers, separated by tabs.
    Text,
}

/// Where the payload starts; before it are key, version and checksum.
const PAYLOAD: usize = RECORD_BYTES - FIELDS * FIELD_BYTES;

/// Why bytes are not the expected record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The slice is not a slot.
    #[error("record {key}: {found} bytes are not a record, which has {RECORD_BYTES}")]
    Length {
        /// The expected key.
        key: u64,
        /// Bytes given.
        found: usize,
    },
    /// All bytes are zero: never written, lost, or a hole in the file.
    #[error("record {key}: all {RECORD_BYTES} bytes are zero; it was never written, or lost")]
    Blank {
        /// The expected key.
        key: u64,
    },
    /// The checksum does not match: torn, damaged, or no record at all.
    #[error(
        "record {key}: checksum does not match (the bytes claim key {found_key}, version \
         {found_version})"
    )]
    Corrupt {
        /// The expected key.
        key: u64,
        /// The key in the bytes.
        found_key: u64,
        /// The version in the bytes.
        found_version: u64,
    },
    /// An intact record, but another one: a read went to the wrong place.
    #[error(
        "record {key}: found the intact record {found_key} (version {found_version}) in its place"
    )]
    WrongKey {
        /// The expected key.
        key: u64,
        /// The key in the bytes.
        found_key: u64,
        /// The version in the bytes.
        found_version: u64,
    },
}

/// Writes the record `key` at `version` into its slot, with random bytes. About 0.16 µs.
///
/// ```
/// use lowtide_workload::record::{RECORD_BYTES, fill, update, verify};
///
/// let mut slot = [0; RECORD_BYTES];
/// fill(7, 0, &mut slot);
/// assert_eq!(verify(7, &slot), Ok(0));
/// assert_eq!(update(7, &mut slot), Ok(1));
/// assert!(verify(8, &slot).is_err());
/// ```
pub fn fill(key: u64, version: u64, slot: &mut [u8; RECORD_BYTES]) {
    fill_with(Payload::Random, key, version, slot);
}

/// As [`fill`], with a payload of this kind. About 1 µs for a document.
pub fn fill_with(payload: Payload, key: u64, version: u64, slot: &mut [u8; RECORD_BYTES]) {
    let mut rng = SplitMix64::new(mix64(key)).fork(version);
    match payload {
        Payload::Random => {
            let (words, _) = slot[PAYLOAD..].as_chunks_mut::<8>();
            for word in words {
                *word = rng.next_u64().to_le_bytes();
            }
        }
        Payload::Json => json(key, version, &mut rng, &mut slot[PAYLOAD..]),
        Payload::Text => text(key, &mut rng, &mut slot[PAYLOAD..]),
    }
    let (header, _) = slot.as_chunks_mut::<8>();
    header[0] = key.to_le_bytes();
    header[1] = version.to_le_bytes();
    let checksum = checksum(key, version, &slot[PAYLOAD..]);
    slot[16..24].copy_from_slice(&checksum.to_le_bytes());
}

/// Checks that `slot` holds the record `expected_key`, whole, and returns its version. About 30 ns.
///
/// # Errors
/// A [`RecordError`] that says in what way the bytes are wrong.
#[inline]
pub fn verify(expected_key: u64, slot: &[u8]) -> Result<u64, RecordError> {
    let Ok(slot) = <&[u8; RECORD_BYTES]>::try_from(slot) else {
        return Err(RecordError::Length { key: expected_key, found: slot.len() });
    };
    let (header, _) = slot.as_chunks::<8>();
    let [key, version, stored] = [header[0], header[1], header[2]].map(u64::from_le_bytes);
    if checksum(key, version, &slot[PAYLOAD..]) == stored && key == expected_key {
        Ok(version)
    } else {
        Err(diagnose(expected_key, slot, key, version, stored))
    }
}

/// Verifies the record in `slot`, then replaces it by its next version, which is returned, with a
/// payload of the same kind.
///
/// # Errors
/// Those of [`verify`]; the slot is then unchanged.
pub fn update(expected_key: u64, slot: &mut [u8; RECORD_BYTES]) -> Result<u64, RecordError> {
    let version = verify(expected_key, slot)?.wrapping_add(1);
    fill_with(payload_of(slot), expected_key, version, slot);
    Ok(version)
}

/// The kind of a record's payload. Random bytes are taken for another once in 2^39 records.
fn payload_of(slot: &[u8; RECORD_BYTES]) -> Payload {
    let payload = &slot[PAYLOAD..];
    if payload.starts_with(JSON_BEGIN) && payload.ends_with(JSON_END) {
        Payload::Json
    } else if payload.starts_with(TEXT_BEGIN) && payload.ends_with(TEXT_END) {
        Payload::Text
    } else {
        Payload::Random
    }
}

/// How a document begins and ends.
const JSON_BEGIN: &[u8] = b"{\"id";
const JSON_END: &[u8] = b"}\n";
/// How text begins and ends.
const TEXT_BEGIN: &[u8] = b"key\t";
const TEXT_END: &[u8] = b"\n";

/// Words of documents and texts.
const WORDS: [&str; 32] = [
    "account",
    "amount",
    "archive",
    "balance",
    "branch",
    "carrier",
    "catalog",
    "channel",
    "city",
    "contract",
    "counter",
    "customer",
    "delivery",
    "discount",
    "invoice",
    "ledger",
    "manual",
    "network",
    "order",
    "parcel",
    "payment",
    "pending",
    "printer",
    "quantity",
    "receipt",
    "region",
    "sample",
    "shipping",
    "station",
    "ticket",
    "voucher",
    "warehouse",
];

/// Writes a document that fills the payload. Its fields, in turn, are as compressible as those of
/// orders in a shop: zstd makes 1.9 of a record alone, and 3 with a dictionary.
fn json(key: u64, version: u64, rng: &mut SplitMix64, payload: &mut [u8]) {
    const NAMES: [&str; 16] = [
        "Ada", "Boris", "Chen", "Dora", "Emil", "Fatima", "Goran", "Hanna", "Igor", "Jana", "Kofi",
        "Lena", "Marek", "Nadia", "Omar", "Petra",
    ];
    const KINDS: u64 = 6;
    let end = payload.len() - JSON_END.len();
    let mut to = &mut payload[..end];
    // What does not fit any more is cut off: the checksum covers what is there.
    let _full = write!(to, "{{\"id\":{key},\"version\":{version}");
    for turn in 0.. {
        if to.is_empty() {
            break;
        }
        let draw = rng.next_u64();
        let word = |shift: u32| WORDS[(draw >> shift) as usize % WORDS.len()];
        let name = |shift: u32| NAMES[(draw >> shift) as usize % NAMES.len()];
        let _full = match turn % KINDS {
            0 => write!(to, ",\"name\":\"{} {}\"", name(0), name(4)),
            1 => write!(to, ",\"total\":{}.{:02}", draw % 10_000, draw >> 32 & 63),
            2 => write!(to, ",\"note\":\"{} {} {} {}\"", word(0), word(5), word(10), word(15)),
            3 => {
                let (month, day, hour) = (draw % 12 + 1, (draw >> 8) % 28 + 1, (draw >> 16) % 24);
                write!(to, ",\"created\":\"2026-{month:02}-{day:02}T{hour:02}:00:00Z\"")
            }
            4 => write!(to, ",\"token\":\"{:08x}\"", draw as u32),
            _ => write!(to, ",\"tags\":[\"{}\",\"{}\"]", word(0), word(5)),
        };
    }
    payload[end..].copy_from_slice(JSON_END);
}

/// Writes lines that fill the payload, as those of a log or a table in text are: zstd makes half of
/// a record alone.
fn text(key: u64, rng: &mut SplitMix64, payload: &mut [u8]) {
    let end = payload.len() - TEXT_END.len();
    let mut to = &mut payload[..end];
    // What does not fit any more is cut off.
    let _full = write!(to, "key\t{key}");
    while !to.is_empty() {
        let draw = rng.next_u64();
        let word = |shift: u32| WORDS[(draw >> shift) as usize % WORDS.len()];
        let _full = match draw >> 62 {
            0 => write!(to, "\n{}\t{}", word(0), draw >> 44 & 0xffff),
            1 => write!(to, "\t{:x}", draw as u16),
            _ => write!(to, "\t{} {} {}", word(0), word(5), word(10)),
        };
    }
    payload[end..].copy_from_slice(TEXT_END);
}

#[inline]
fn checksum(key: u64, version: u64, payload: &[u8]) -> u64 {
    mix64(mix64(mix64(key) ^ version) ^ xxh3_64(payload))
}

/// What is wrong, once something is.
#[cold]
fn diagnose(
    key: u64,
    slot: &[u8; RECORD_BYTES],
    found_key: u64,
    found_version: u64,
    stored: u64,
) -> RecordError {
    if slot.iter().all(|&byte| byte == 0) {
        RecordError::Blank { key }
    } else if checksum(found_key, found_version, &slot[PAYLOAD..]) == stored {
        RecordError::WrongKey { key, found_key, found_version }
    } else {
        RecordError::Corrupt { key, found_key, found_version }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(key: u64, version: u64) -> [u8; RECORD_BYTES] {
        let mut slot = [0; RECORD_BYTES];
        fill(key, version, &mut slot);
        slot
    }

    /// The bytes are an interface: files made by one build must verify in the next.
    #[test]
    fn layout_is_fixed() {
        let slot = record(0x0102_0304_0506_0708, 9);
        assert_eq!(slot[..16], [8, 7, 6, 5, 4, 3, 2, 1, 9, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(xxh3_64(&slot), 0xa40f_8ced_2be4_8a4d);
    }

    #[test]
    fn every_kind_of_wrong_bytes_is_named() {
        assert_eq!(verify(0, &[0; RECORD_BYTES]), Err(RecordError::Blank { key: 0 }));
        assert_eq!(verify(5, &[0; 512]), Err(RecordError::Length { key: 5, found: 512 }));
        assert_eq!(
            verify(5, &record(6, 2)),
            Err(RecordError::WrongKey { key: 5, found_key: 6, found_version: 2 })
        );
        let mut torn = record(5, 2);
        torn[512..].copy_from_slice(&record(5, 1)[512..]);
        assert_eq!(
            verify(5, &torn),
            Err(RecordError::Corrupt { key: 5, found_key: 5, found_version: 2 })
        );
    }

    #[test]
    fn an_update_is_the_next_version_and_refuses_a_bad_slot() {
        let mut slot = record(7, 0);
        assert_eq!(update(7, &mut slot), Ok(1));
        assert_eq!(slot, record(7, 1));
        let before = slot;
        assert!(update(8, &mut slot).is_err());
        assert_eq!(slot, before);
    }

    #[test]
    fn a_document_stays_one_and_looks_like_one() {
        let mut slot = [0; RECORD_BYTES];
        fill_with(Payload::Json, 7, 0, &mut slot);
        assert_eq!(xxh3_64(&slot), 0xa57d_79b9_c912_11ab);
        let text = std::str::from_utf8(&slot[PAYLOAD..]).expect("text");
        assert!(text.starts_with("{\"id\":7,\"version\":0,\"name\":\"") && text.ends_with("}\n"));
        assert_eq!(update(7, &mut slot), Ok(1));
        assert_eq!(payload_of(&slot), Payload::Json);
        assert_eq!(payload_of(&record(7, 1)), Payload::Random);
    }

    #[test]
    fn text_is_lines_with_tabs() {
        let mut slot = [0; RECORD_BYTES];
        fill_with(Payload::Text, 7, 0, &mut slot);
        assert_eq!(xxh3_64(&slot), 0x35d3_a042_a73a_57f0);
        let text = std::str::from_utf8(&slot[PAYLOAD..]).expect("text");
        assert!(text.starts_with("key\t7") && text.lines().count() > 5, "{text}");
    }

    proptest! {
        #[test]
        fn what_was_filled_verifies(key: u64, version: u64, kind in 0..3_usize) {
            let mut slot = [0; RECORD_BYTES];
            let payload = [Payload::Random, Payload::Json, Payload::Text][kind];
            fill_with(payload, key, version, &mut slot);
            prop_assert_eq!(verify(key, &slot), Ok(version));
            prop_assert_eq!(update(key, &mut slot), Ok(version.wrapping_add(1)));
            prop_assert_eq!(payload_of(&slot), payload);
        }

        #[test]
        fn any_flipped_bit_is_noticed(key: u64, version: u64, bit in 0..RECORD_BYTES * 8) {
            let mut slot = record(key, version);
            slot[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(verify(key, &slot).is_err());
        }
    }
}
