//! A row of the table, and structures of rows.
//!
//! ```text
//! numbers! {
//!     pub struct IoStat {
//!         ahead_used: u64 = pages("Pages that were read ahead and used");
//!         throttled: Duration = time("Seconds that threads slept ...").named("throttled_ns");
//!     }
//! }
//! ```
//!
//! is a structure with these fields and documents, and [`Numbers`] for it. A row begins with its
//! unit and its meaning; builders say what else there is to say.

use std::time::Duration;

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Occurrences.
    Events,
    /// Base pages.
    Pages,
    /// Bytes.
    Bytes,
    /// Nanoseconds; seconds as a metric.
    Time,
    /// Percent.
    Share,
}

/// Where numbers are shown under their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rendering {
    /// On status pages.
    Page,
    /// As a metric.
    Metric,
    /// In Python's dictionaries. C has those with a place.
    Python,
}

/// A number: its name, unit and meaning. Names are an interface, and so are places in C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// Its name: the field's, unless the row says otherwise.
    pub name: &'static str,
    /// What it counts.
    pub unit: Unit,
    /// Whether it grows from zero, so that differences have a meaning, or says what is now.
    pub grows: bool,
    /// What it means, without a full stop.
    pub help: &'static str,
    /// The kernel's names that follow it in `memory.stat`, of what does not exist here.
    pub(super) followed_by: &'static [&'static str],
    /// Whether `memory.stat` has it.
    pub(super) is_kernels: bool,
    /// Where it is not shown.
    hidden: &'static [Rendering],
    metric: Option<&'static str>,
    /// Its place among the fields of `lt_stats`, and its name there.
    pub c: Option<(usize, &'static str)>,
    /// A phrase for people, `{}` being the number.
    pub phrase: Option<&'static str>,
    /// Its name in the summary of `lowtide run`.
    pub summary: Option<&'static str>,
}

/// The beginnings of rows.
macro_rules! units {
    ($($name:ident: $Unit:ident),*) => {
        $(pub(super) const fn $name(help: &'static str) -> Self {
            Self::new(Unit::$Unit, help)
        })*
    };
}

impl Counter {
    const fn new(unit: Unit, help: &'static str) -> Self {
        Self {
            name: "",
            unit,
            grows: true,
            help,
            followed_by: &[],
            is_kernels: true,
            hidden: &[],
            metric: None,
            c: None,
            phrase: None,
            summary: None,
        }
    }

    units! { events: Events, pages: Pages, bytes: Bytes, time: Time, share: Share }

    /// It says what is now.
    pub(super) const fn now(mut self) -> Self {
        self.grows = false;
        self
    }

    /// It has another name than the field.
    pub(super) const fn named(mut self, name: &'static str) -> Self {
        self.name = name;
        self
    }

    /// With the field's name, unless it has one.
    pub(super) const fn of_field(mut self, field: &'static str) -> Self {
        if self.name.is_empty() {
            self.name = field;
        }
        self
    }

    /// In `memory.stat` these names follow.
    pub(super) const fn followed_by(mut self, names: &'static [&'static str]) -> Self {
        self.followed_by = names;
        self
    }

    /// The kernel has no line of this name in `memory.stat`.
    pub(super) const fn ours(mut self) -> Self {
        self.is_kernels = false;
        self
    }

    pub(super) const fn hidden(mut self, from: &'static [Rendering]) -> Self {
        self.hidden = from;
        self
    }

    /// As a metric it is not called what [`metric`](Self::metric) makes of its name.
    pub(super) const fn metric_name(mut self, name: &'static str) -> Self {
        self.metric = Some(name);
        self
    }

    /// It is in C's structure, in this place. Places are given once: new ones are at the end.
    pub(super) const fn c(mut self, place: usize, name: &'static str) -> Self {
        self.c = Some((place, name));
        self
    }

    /// One after its place in C.
    pub(super) const fn c_places(&self) -> usize {
        match self.c {
            Some((place, _)) => place + 1,
            None => 0,
        }
    }

    pub(super) const fn phrase(mut self, phrase: &'static str) -> Self {
        self.phrase = Some(phrase);
        self
    }

    pub(super) const fn summary(mut self, name: &'static str) -> Self {
        self.summary = Some(name);
        self
    }

    /// Whether it is shown there.
    #[must_use]
    pub fn is_shown(&self, rendering: Rendering) -> bool {
        !self.hidden.contains(&rendering)
    }

    /// Its name as a metric, after the kind of object: as Prometheus wants it, with the unit at the
    /// end, and time in seconds.
    #[must_use]
    pub fn metric(&self) -> String {
        let name = self.metric.unwrap_or(self.name);
        match self.unit {
            Unit::Pages if !name.ends_with("_pages") => format!("{name}_pages"),
            Unit::Time => format!("{}_seconds", name.trim_end_matches("_ns")),
            _ => name.to_owned(),
        }
    }
}

/// A number as it is shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// There is none: a limit that is not set.
    Absent,
    /// Events, pages, bytes, nanoseconds.
    Whole(u64),
    /// A share.
    Real(f64),
}

impl Value {
    /// The number; zero for what is none.
    #[must_use]
    pub const fn whole(self) -> u64 {
        match self {
            Self::Whole(number) => number,
            Self::Absent | Self::Real(_) => 0,
        }
    }
}

/// A type of a field.
pub(super) trait Number: Copy {
    fn value(self) -> Value;
    fn of(value: Value) -> Self;

    /// Both together.
    fn plus(self, other: Self) -> Self;

    /// What was counted since an earlier reading.
    fn since(self, earlier: Self) -> Self;
}

impl Number for u64 {
    fn value(self) -> Value {
        Value::Whole(self)
    }

    fn of(value: Value) -> Self {
        value.whole()
    }

    fn plus(self, other: Self) -> Self {
        self + other
    }

    fn since(self, earlier: Self) -> Self {
        self.saturating_sub(earlier)
    }
}

impl Number for bool {
    fn value(self) -> Value {
        Value::Whole(self.into())
    }

    fn of(value: Value) -> Self {
        value.whole() > 0
    }

    fn plus(self, other: Self) -> Self {
        self || other
    }

    fn since(self, earlier: Self) -> Self {
        self && !earlier
    }
}

impl Number for Duration {
    fn value(self) -> Value {
        Value::Whole(u64::try_from(self.as_nanos()).unwrap_or(u64::MAX))
    }

    fn of(value: Value) -> Self {
        Self::from_nanos(value.whole())
    }

    fn plus(self, other: Self) -> Self {
        self + other
    }

    fn since(self, earlier: Self) -> Self {
        self.saturating_sub(earlier)
    }
}

impl Number for Option<u64> {
    fn value(self) -> Value {
        self.map_or(Value::Absent, Value::Whole)
    }

    fn of(value: Value) -> Self {
        match value {
            Value::Whole(number) => Some(number),
            Value::Absent | Value::Real(_) => None,
        }
    }

    fn plus(self, other: Self) -> Self {
        self.zip(other).map(|(a, b)| a + b)
    }

    fn since(self, earlier: Self) -> Self {
        self.zip(earlier).map(|(a, b)| a.saturating_sub(b))
    }
}

impl Number for f64 {
    fn value(self) -> Value {
        Value::Real(self)
    }

    fn of(value: Value) -> Self {
        match value {
            Value::Real(share) => share,
            Value::Whole(number) => number as Self,
            Value::Absent => 0.0,
        }
    }

    fn plus(self, other: Self) -> Self {
        self + other
    }

    fn since(self, earlier: Self) -> Self {
        self - earlier
    }
}

/// A structure of rows. Its order is that of the table.
pub trait Numbers {
    /// Places that its rows have in `lt_stats` of C: one after the last.
    const C_PLACES: usize;

    /// Calls with each number: its own, then what is computed from them, then those of its parts.
    fn each(&self, to: &mut dyn FnMut(&'static Counter, Value));

    /// Sets the number of a name, and says whether there is one that is kept.
    fn set(&mut self, name: &str, value: Value) -> bool;

    /// Adds another's numbers.
    fn add(&mut self, other: &Self);

    /// What was counted since an earlier reading, and what is now.
    #[must_use]
    fn since(&self, earlier: &Self) -> Self;
}

/// The numbers of a structure that are shown in a rendering.
pub fn list<T: Numbers>(of: &T, shown: Rendering) -> Vec<(&'static Counter, Value)> {
    let mut all = Vec::new();
    of.each(&mut |counter, value| {
        if counter.is_shown(shown) {
            all.push((counter, value));
        }
    });
    all
}

/// Makes a structure of rows: see the file's header. `parts` are structures of their own, whose
/// rows follow; `counted` is a structure of atomics that threads add to; `beside` are fields that
/// are shown otherwise; `computed` are rows without a field.
macro_rules! numbers {
    (
        $(#[$doc:meta])*
        pub struct $Name:ident {
            $(
                $(#[$more:meta])*
                $field:ident: $type:ty =
                    $unit:ident($help:literal) $(.$with:ident($($arg:expr),*))*;
            )*
        }
        $(parts { $($(#[$part_doc:meta])* $part:ident: $Part:ty,)* })?
        $(counted { $(#[$counts_doc:meta])* $Counts:ident })?
        $(beside { $($(#[$beside_doc:meta])* $beside:ident: $Beside:ty,)* })?
        $(computed {
            $($of:ident($of_help:literal) $(.$of_with:ident($($of_arg:expr),*))* => $get:expr;)*
        })?
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        pub struct $Name {
            $(
                #[doc = concat!($help, ".")]
                $(#[$more])*
                pub $field: $type,
            )*
            $($($(#[$part_doc])* pub $part: $Part,)*)?
            $($($(#[$beside_doc])* pub $beside: $Beside,)*)?
        }

        impl $crate::counters::table::Numbers for $Name {
            const C_PLACES: usize = {
                use $crate::counters::table::Counter;
                let places = [
                    $(Counter::$unit($help) $(.$with($($arg),*))* .c_places(),)*
                    $($(Counter::$of($of_help) $(.$of_with($($of_arg),*))* .c_places(),)*)?
                    $($(<$Part as $crate::counters::table::Numbers>::C_PLACES,)*)?
                ];
                let (mut most, mut at) = (0, 0);
                while at < places.len() {
                    most = if places[at] > most { places[at] } else { most };
                    at += 1;
                }
                most
            };

            fn each(
                &self,
                to: &mut dyn FnMut(
                    &'static $crate::counters::table::Counter,
                    $crate::counters::table::Value,
                ),
            ) {
                use $crate::counters::table::{Counter, Number};
                $(to(
                    const {
                        &Counter::$unit($help) $(.$with($($arg),*))* .of_field(stringify!($field))
                    },
                    Number::value(self.$field),
                );)*
                $($(
                    let get: fn(&Self) -> u64 = $get;
                    to(
                        const { &Counter::$of($of_help) $(.$of_with($($of_arg),*))* },
                        $crate::counters::table::Value::Whole(get(self)),
                    );
                )*)?
                $($(self.$part.each(to);)*)?
            }

            fn set(&mut self, name: &str, value: $crate::counters::table::Value) -> bool {
                use $crate::counters::table::{Counter, Number};
                $(
                    let name_here = const {
                        Counter::$unit($help) $(.$with($($arg),*))* .of_field(stringify!($field))
                    };
                    if name_here.name == name {
                        self.$field = Number::of(value);
                        return true;
                    }
                )*
                false $($(|| self.$part.set(name, value))*)?
            }

            fn add(&mut self, other: &Self) {
                use $crate::counters::table::Number;
                $(self.$field = Number::plus(self.$field, other.$field);)*
                $($(self.$part.add(&other.$part);)*)?
            }

            fn since(&self, earlier: &Self) -> Self {
                use $crate::counters::table::{Counter, Number};
                let mut since = *self;
                $(if const { Counter::$unit($help) $(.$with($($arg),*))* .grows } {
                    since.$field = Number::since(self.$field, earlier.$field);
                })*
                $($(since.$part = self.$part.since(&earlier.$part);)*)?
                since
            }
        }

        numbers!(@counted $($(#[$counts_doc])* $Counts)? => $Name { $($field,)* });
    };
    (@counted => $($rest:tt)*) => {};
    (@counted $(#[$doc:meta])* $Counts:ident => $Name:ident { $($field:ident,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Default)]
        #[expect(missing_docs, reason = "they are those of the snapshot")]
        pub struct $Counts {
            $(pub $field: std::sync::atomic::AtomicU64,)*
        }

        impl $Counts {
            /// What was counted so far.
            #[must_use]
            pub fn snapshot(&self) -> $Name {
                use $crate::counters::table::{Number, Value};
                use std::sync::atomic::Ordering::Relaxed;
                $Name { $($field: Number::of(Value::Whole(self.$field.load(Relaxed))),)* }
            }
        }
    };
}
pub(super) use numbers;
