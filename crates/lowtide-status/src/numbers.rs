//! Numbers of the table of counters as fields of the object around them: `#[serde(flatten, with)]`.

use lowtide_core::counters::{Numbers, Rendering, Value, list};
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serializer};
use std::fmt;
use std::marker::PhantomData;

pub(crate) fn serialize<T: Numbers, S: Serializer>(of: &T, to: S) -> Result<S::Ok, S::Error> {
    let all = list(of, Rendering::Page);
    let mut map = to.serialize_map(Some(all.len()))?;
    for (counter, value) in all {
        match value {
            Value::Absent => map.serialize_entry(counter.name, &None::<u64>)?,
            Value::Whole(number) => map.serialize_entry(counter.name, &number)?,
            Value::Real(share) => map.serialize_entry(counter.name, &share)?,
        }
    }
    map.end()
}

pub(crate) fn deserialize<'de, T, D>(from: D) -> Result<T, D::Error>
where
    T: Numbers + Default,
    D: Deserializer<'de>,
{
    from.deserialize_map(All(PhantomData))
}

struct All<T>(PhantomData<T>);

impl<'de, T: Numbers + Default> Visitor<'de> for All<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("numbers by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
        let mut all = T::default();
        while let Some(name) = map.next_key::<String>()? {
            if let Some(value) = map.next_value::<Shown>()?.0 {
                // Names of newer versions are not known here.
                all.set(&name, value);
            }
        }
        Ok(all)
    }
}

/// A number, or what is none of ours.
struct Shown(Option<Value>);

impl<'de> Deserialize<'de> for Shown {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Any {
            Whole(u64),
            Real(f64),
            Absent(()),
            Other(IgnoredAny),
        }
        Ok(Self(match Any::deserialize(from)? {
            Any::Whole(number) => Some(Value::Whole(number)),
            Any::Real(share) => Some(Value::Real(share)),
            Any::Absent(()) => Some(Value::Absent),
            Any::Other(IgnoredAny) => None,
        }))
    }
}
