//! Numbers in a machine's file.
//!
//! They are read wider than they are used: a negative or a gigantic number is a number, and the
//! limit of its key gives the error, not the width of a type.

use std::fmt;

use lowtide_core::Size;
use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};

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

/// What reads either: text is a size, where sizes are wanted.
struct Number {
    sizes: bool,
}

impl Visitor<'_> for Number {
    type Value = i128;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.sizes {
            true => "a size: a whole number of bytes, or text such as \"64M\" or \"1.5G\"",
            false => "a whole number without quotes, such as 8 or 90_000",
        })
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<i128, E> {
        Ok(number.into())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<i128, E> {
        Ok(number.into())
    }

    fn visit_i128<E: Error>(self, number: i128) -> Result<i128, E> {
        Ok(number)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<i128, E> {
        if !self.sizes {
            return Err(E::invalid_type(Unexpected::Str(text), &self));
        }
        let size: Size = text.parse().map_err(E::custom)?;
        Ok(size.bytes().into())
    }
}

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Number { sizes: false }).map(Self)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Number { sizes: true }).map(Self)
    }
}
