//! Parts of a row: structures whose fields are fields of the row in the JSON.
//!
//! An experiment knows what its rows say in addition to the common figures, and nothing else has
//! to: a part is any structure that can be serialised, and is found by its type.

use serde::ser::{Error, Serialize, SerializeMap, Serializer};
use serde_json::Value;
use std::any::Any;
use std::fmt::Debug;

/// A structure of an experiment's own. Fields that are `None` are left out.
pub trait Part: Any + Debug + Send + Sync {
    /// Its fields.
    ///
    /// # Errors
    /// It is no structure, or holds what JSON cannot.
    fn fields(&self) -> serde_json::Result<serde_json::Map<String, Value>>;

    /// The same again.
    fn again(&self) -> Box<dyn Part>;
}

impl<T: Serialize + Clone + Any + Debug + Send + Sync> Part for T {
    fn fields(&self) -> serde_json::Result<serde_json::Map<String, Value>> {
        match serde_json::to_value(self)? {
            Value::Object(fields) => Ok(fields),
            other => Err(Error::custom(format!("a part of a row is no structure: {other}"))),
        }
    }

    fn again(&self) -> Box<dyn Part> {
        Box::new(self.clone())
    }
}

/// The parts of a row, at most one of each type.
#[derive(Debug, Default)]
pub struct Parts(Vec<Box<dyn Part>>);

impl Parts {
    /// The part of a type.
    pub fn get<T: Part>(&self) -> Option<&T> {
        self.0.iter().find_map(|part| (&**part as &dyn Any).downcast_ref())
    }

    /// Puts a part in the place of the one of its type.
    pub fn set<T: Part>(&mut self, part: T) {
        self.0.retain(|known| !(&**known as &dyn Any).is::<T>());
        self.0.push(Box::new(part));
    }
}

impl Clone for Parts {
    fn clone(&self) -> Self {
        Self(self.0.iter().map(|part| part.again()).collect())
    }
}

impl Serialize for Parts {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        for part in &self.0 {
            let fields = part.fields().map_err(S::Error::custom)?;
            for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
                map.serialize_entry(name, value)?;
            }
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use crate::row::{KernelFigures, Row};
    use serde::Serialize;
    use serde_json::json;

    #[derive(Clone, Debug, Default, Serialize)]
    struct Own {
        tides: Option<u64>,
        moon: Option<&'static str>,
    }

    #[test]
    fn parts_and_groups_are_fields_of_the_row_and_what_is_not_known_is_left_out() {
        let kernel = KernelFigures { throttled_ms: Some(f64::NAN), ..KernelFigures::default() };
        let row = Row { workload: "ebb", threads: 2, kernel, ..Row::default() };
        let row = row.with(Own { tides: Some(1), moon: Some("new") });
        let row = row.with(Own { tides: Some(3), ..Own::default() });
        assert_eq!((row.own::<Own>().tides, row.of(|own: &Own| own.moon)), (Some(3), Some(None)));
        let expected = json!({
            "workload": "ebb", "world": "", "system": "", "policy": null, "page_bytes": 0,
            "threads": 2, "throttled_ms": null, "stat": {}, "tides": 3
        });
        assert_eq!(serde_json::to_value(&row).expect("JSON"), expected);
    }
}
