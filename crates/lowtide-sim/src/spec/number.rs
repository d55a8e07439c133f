//! Numbers in a machine's file.
//!
//! They are read wider than they are used: a negative or a gigantic number is a number, and the
//! limit of its key gives the error, not the width of a type.

use std::fmt;

use lowtide_core::Size;
use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// A whole number of whatever the key counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whole(pub(crate) i128);

/// A number of bytes: a whole number, or a size as people write it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bytes(pub(super) i128);

impl From<Bytes> for Whole {
    fn from(bytes: Bytes) -> Self {
        Self(bytes.0)
    }
}

struct WholeVisitor;

impl Visitor<'_> for WholeVisitor {
    type Value = Whole;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number without quotes, such as 8 or 90_000")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Whole, E> {
        Ok(Whole(number.into()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Whole, E> {
        Ok(Whole(number.into()))
    }

    fn visit_i128<E: Error>(self, number: i128) -> Result<Whole, E> {
        Ok(Whole(number))
    }
}

struct BytesVisitor;

impl Visitor<'_> for BytesVisitor {
    type Value = Bytes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a size: a whole number of bytes, or text such as \"64M\" or \"1.5G\"")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Bytes, E> {
        Ok(Bytes(number.into()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Bytes, E> {
        Ok(Bytes(number.into()))
    }

    fn visit_i128<E: Error>(self, number: i128) -> Result<Bytes, E> {
        Ok(Bytes(number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Bytes, E> {
        let size: Size = text.parse().map_err(E::custom)?;
        Ok(Bytes(size.bytes().into()))
    }
}

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WholeVisitor)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(BytesVisitor)
    }
}
