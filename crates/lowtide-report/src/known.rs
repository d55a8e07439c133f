//! Objects of JSON without what is not known: a field that is `None` is left out, so that no field
//! has to say so itself.

use serde::ser::{Impossible, Serialize, SerializeMap, SerializeStruct, Serializer};
use std::fmt;

/// A serializer of a structure, for one that is derived (`serde(remote = "Self")`).
pub(crate) struct Known<S>(pub(crate) S);

/// Structures of which all that is known is serialised.
macro_rules! known {
    ($($Name:ident),*) => {
        $(impl serde::Serialize for $Name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                Self::serialize(self, $crate::known::Known(to))
            }
        })*
    };
}
pub(crate) use known;

/// The fields that are known so far.
pub(crate) struct Fields<M>(M);

impl<M: SerializeMap> SerializeStruct for Fields<M> {
    type Ok = M::Ok;
    type Error = M::Error;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        key: &'static str,
        value: &T,
    ) -> Result<(), M::Error> {
        if is_none(value) { Ok(()) } else { self.0.serialize_entry(key, value) }
    }

    fn end(self) -> Result<M::Ok, M::Error> {
        self.0.end()
    }
}

impl<M: SerializeMap> SerializeMap for Fields<M> {
    type Ok = M::Ok;
    type Error = M::Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), M::Error> {
        self.0.serialize_key(key)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), M::Error> {
        self.0.serialize_value(value)
    }

    fn serialize_entry<K: Serialize + ?Sized, V: Serialize + ?Sized>(
        &mut self,
        key: &K,
        value: &V,
    ) -> Result<(), M::Error> {
        if is_none(value) { Ok(()) } else { self.0.serialize_entry(key, value) }
    }

    fn end(self) -> Result<M::Ok, M::Error> {
        self.0.end()
    }
}

/// Whether a value is `None`. It is looked at no further than that: anything else is an error.
fn is_none<T: Serialize + ?Sized>(value: &T) -> bool {
    value.serialize(Probe).is_ok()
}

struct Probe;

/// Methods of a serializer with the same answer for values of a type.
macro_rules! answers {
    ($answer:expr; $($method:ident($($type:ty),*) -> $ok:ty;)*) => {
        $(fn $method(self, $(_: $type),*) -> Result<$ok, Self::Error> { Err($answer) })*
    };
}

/// The same answer for all values but none and objects.
macro_rules! values {
    ($answer:expr; $ok:ty, $never:ty) => {
        answers! {
            $answer;
            serialize_bool(bool) -> $ok;
            serialize_i8(i8) -> $ok;
            serialize_i16(i16) -> $ok;
            serialize_i32(i32) -> $ok;
            serialize_i64(i64) -> $ok;
            serialize_u8(u8) -> $ok;
            serialize_u16(u16) -> $ok;
            serialize_u32(u32) -> $ok;
            serialize_u64(u64) -> $ok;
            serialize_f32(f32) -> $ok;
            serialize_f64(f64) -> $ok;
            serialize_char(char) -> $ok;
            serialize_str(&str) -> $ok;
            serialize_bytes(&[u8]) -> $ok;
            serialize_unit() -> $ok;
            serialize_unit_struct(&'static str) -> $ok;
            serialize_unit_variant(&'static str, u32, &'static str) -> $ok;
            serialize_seq(Option<usize>) -> $never;
            serialize_tuple(usize) -> $never;
            serialize_tuple_struct(&'static str, usize) -> $never;
            serialize_tuple_variant(&'static str, u32, &'static str, usize) -> $never;
            serialize_struct_variant(&'static str, u32, &'static str, usize) -> $never;
        }

        fn serialize_some<T: Serialize + ?Sized>(self, _: &T) -> Result<$ok, Self::Error> {
            Err($answer)
        }

        fn serialize_newtype_variant<T: Serialize + ?Sized>(
            self,
            _: &'static str,
            _: u32,
            _: &'static str,
            _: &T,
        ) -> Result<$ok, Self::Error> {
            Err($answer)
        }
    };
}

type Never = Impossible<(), fmt::Error>;

/// An error of a serializer that is given something else than a structure.
fn no_structure<E: serde::ser::Error>() -> E {
    E::custom("no structure")
}

impl<S: Serializer> Serializer for Known<S> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = Impossible<S::Ok, S::Error>;
    type SerializeTuple = Impossible<S::Ok, S::Error>;
    type SerializeTupleStruct = Impossible<S::Ok, S::Error>;
    type SerializeTupleVariant = Impossible<S::Ok, S::Error>;
    type SerializeMap = Fields<S::SerializeMap>;
    type SerializeStruct = Fields<S::SerializeMap>;
    type SerializeStructVariant = Impossible<S::Ok, S::Error>;

    values! { no_structure(); S::Ok, Impossible<S::Ok, S::Error> }

    answers! { no_structure(); serialize_none() -> S::Ok; }

    fn serialize_map(self, _: Option<usize>) -> Result<Self::SerializeMap, S::Error> {
        // How many are known is not known yet.
        self.0.serialize_map(None).map(Fields)
    }

    fn serialize_struct(
        self,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStruct, S::Error> {
        self.0.serialize_map(None).map(Fields)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        value.serialize(self)
    }
}

impl Serializer for Probe {
    type Ok = ();
    type Error = fmt::Error;
    type SerializeSeq = Never;
    type SerializeTuple = Never;
    type SerializeTupleStruct = Never;
    type SerializeTupleVariant = Never;
    type SerializeMap = Never;
    type SerializeStruct = Never;
    type SerializeStructVariant = Never;

    fn serialize_none(self) -> Result<(), fmt::Error> {
        Ok(())
    }

    values! { fmt::Error; (), Never }

    answers! {
        fmt::Error;
        serialize_map(Option<usize>) -> Never;
        serialize_struct(&'static str, usize) -> Never;
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), fmt::Error> {
        value.serialize(self)
    }
}
