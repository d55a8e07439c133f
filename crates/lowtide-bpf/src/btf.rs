//! Type information: where the definitions of maps are.
//!
//! A map is a variable in the section `.maps`, and only its type describes it: a structure whose
//! members are pointers. `__uint(max_entries, 64)` makes a pointer to an array of 64
//! integers, `__type(key, __u64)` a pointer to the type itself. So reading a definition means
//! reading the types of the compiler's BTF section: a header, a table of types of variable length
//! that refer to each other by number, and strings.
//!
//! Source: the kernel's document "BPF Type Format (BTF)".

use crate::error::{LoadFault, MapFault};
use crate::isa::SLOT;
use crate::map::MapDef;

const MAGIC: u16 = 0xeb9f;

const INT: u32 = 1;
const PTR: u32 = 2;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const TYPEDEF: u32 = 8;
const VOLATILE: u32 = 9;
const CONST: u32 = 10;
const RESTRICT: u32 = 11;
const FUNC_PROTO: u32 = 13;
const VAR: u32 = 14;
const DATASEC: u32 = 15;
const FLOAT: u32 = 16;
const DECL_TAG: u32 = 17;
const TYPE_TAG: u32 = 18;
const ENUM64: u32 = 19;

/// How far types are followed that refer to types.
const CHAIN_MAX: u32 = 32;

/// A type: its fixed part, and where its variable part is.
#[derive(Clone, Copy, Debug)]
struct Type {
    name: u32,
    kind: u32,
    count: u32,
    /// A size or another type, by kind.
    word: u32,
    /// First byte of the variable part in the table.
    rest: usize,
}

/// The type information of an object.
pub(crate) struct Btf<'a> {
    table: &'a [u8],
    strings: &'a [u8],
    /// Type 0 is `void` and not in the table.
    types: Vec<Type>,
}

fn broken(why: &str) -> LoadFault {
    LoadFault::TypeInformation { why: why.to_owned() }
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

impl<'a> Btf<'a> {
    /// Reads the section `.BTF`.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, LoadFault> {
        if half(bytes, 0) != Some(MAGIC) {
            return Err(broken("does not begin with its magic number"));
        }
        let part = |offset_at: usize| {
            let header = word(bytes, 4)? as usize;
            let start = header.checked_add(word(bytes, offset_at)? as usize)?;
            bytes.get(start..start.checked_add(word(bytes, offset_at + 4)? as usize)?)
        };
        let (Some(table), Some(strings)) = (part(8), part(16)) else {
            return Err(broken("is cut off"));
        };
        let mut types = Vec::new();
        let mut at = 0;
        while at < table.len() {
            let (Some(name), Some(info), Some(own)) =
                (word(table, at), word(table, at + 4), word(table, at + 8))
            else {
                return Err(broken("ends in the middle of a type"));
            };
            let (kind, count) = (info >> 24 & 0x1f, info & 0xffff);
            let rest = at + 12;
            at = rest
                + match kind {
                    INT | VAR | DECL_TAG => 4,
                    ARRAY => 12,
                    STRUCT | UNION | DATASEC | ENUM64 => 12 * count as usize,
                    ENUM | FUNC_PROTO => 8 * count as usize,
                    1..=FLOAT | TYPE_TAG => 0,
                    _ => return Err(broken(&format!("has a type of the unknown kind {kind}"))),
                };
            types.push(Type { name, kind, count, word: own, rest });
        }
        Ok(Self { table, strings, types })
    }

    /// The definition of the map that is the variable `name`.
    pub(crate) fn map(&self, name: &str) -> Result<MapDef, LoadFault> {
        let fail = |why| LoadFault::Map { map: name.to_owned(), why };
        let var = self.variable(name);
        let of = var.and_then(|var| self.plain(var.word)).filter(|t| t.kind == STRUCT);
        let of = of.ok_or_else(|| fail(MapFault::Undefined))?;
        let (mut kind, mut key, mut value, mut entries) = (None, None, None, None);
        for i in 0..of.count as usize {
            let at = of.rest + 12 * i;
            let member = word(self.table, at)
                .and_then(|n| self.string(n))
                .ok_or_else(|| broken("is cut off"))?;
            let points_to = word(self.table, at + 4)
                .and_then(|t| self.plain(t))
                .filter(|t| t.kind == PTR)
                .map(|t| t.word);
            let number = || {
                let array = self.plain(points_to?).filter(|t| t.kind == ARRAY)?;
                word(self.table, array.rest + 8)
            };
            let size = || self.size(points_to?, CHAIN_MAX);
            let unreadable = || broken(&format!("does not say what `{member}` of map {name} is"));
            match member {
                "type" => kind = Some(number().ok_or_else(unreadable)?),
                "key_size" => key = Some(number().ok_or_else(unreadable)?),
                "value_size" => value = Some(number().ok_or_else(unreadable)?),
                "max_entries" => entries = Some(number().ok_or_else(unreadable)?),
                "key" => key = Some(size().ok_or_else(unreadable)?),
                "value" => value = Some(size().ok_or_else(unreadable)?),
                "map_flags" if number() == Some(0) => {}
                _ => return Err(fail(MapFault::Unknown { member: member.to_owned() })),
            }
        }
        let need =
            |member, found: Option<u32>| found.ok_or_else(|| fail(MapFault::Missing { member }));
        let def = MapDef {
            name: name.to_owned(),
            kind: need("type", kind)?,
            key_bytes: need("key", key)?,
            value_bytes: need("value", value)?,
            entries: need("max_entries", entries)?,
        };
        def.check().map_err(fail)?;
        Ok(def)
    }

    /// The names of the structure that the variable `name` is, and of its member at `offset` bytes.
    pub(crate) fn member(&self, name: &str, offset: u64) -> Result<(&'a str, &'a str), LoadFault> {
        let var = self.variable(name);
        let of = var.and_then(|var| self.plain(var.word)).filter(|t| t.kind == STRUCT);
        let of = of.ok_or_else(|| broken(&format!("does not say what {name} is")))?;
        let found = (0..of.count as usize).find_map(|i| {
            let at = of.rest + 12 * i;
            // Bits; the upper eight are a bit field's size, if the structure has bit fields.
            let bits = word(self.table, at + 8)? & 0x00ff_ffff;
            (u64::from(bits) == offset.checked_mul(8)?).then(|| word(self.table, at)).flatten()
        });
        let found = found.and_then(|member| self.string(member)).filter(|name| !name.is_empty());
        let found = found
            .ok_or_else(|| broken(&format!("has no member at byte {offset} of variable {name}")))?;
        Ok((self.string(of.name).unwrap_or_default(), found))
    }

    /// The first field of a kernel structure that the instructions of a section read by the
    /// kernel's layout (a CO-RE relocation in `.BTF.ext`): its slot in the section.
    pub(crate) fn kernel_field(&self, ext: &[u8], section: &str) -> Option<usize> {
        let header = word(ext, 4)? as usize;
        // Older headers end before this part.
        if header < 32 {
            return None;
        }
        let start = header.checked_add(word(ext, 24)? as usize)?;
        let part = ext.get(start..start.checked_add(word(ext, 28)? as usize)?)?;
        let record = word(part, 0)? as usize;
        let mut at = 4usize;
        loop {
            let named = self.is_named(word(part, at)?, section);
            let records = word(part, at + 4)? as usize;
            if records > 0 && named {
                return Some(word(part, at + 8)? as usize / SLOT);
            }
            at = at.checked_add(8)?.checked_add(record.checked_mul(records)?)?;
        }
    }

    fn get(&self, id: u32) -> Option<Type> {
        self.types.get((id as usize).checked_sub(1)?).copied()
    }

    fn variable(&self, name: &str) -> Option<&Type> {
        self.types.iter().find(|t| t.kind == VAR && self.is_named(t.name, name))
    }

    /// Whether a string is this name. Cost: that of the name, however long the string is.
    fn is_named(&self, at: u32, name: &str) -> bool {
        let rest = self.strings.get(at as usize..).and_then(|s| s.strip_prefix(name.as_bytes()));
        rest.and_then(<[u8]>::first) == Some(&0)
    }

    fn string(&self, at: u32) -> Option<&'a str> {
        let rest = self.strings.get(at as usize..)?;
        std::str::from_utf8(&rest[..rest.iter().position(|&b| b == 0)?]).ok()
    }

    /// A type without names and qualifiers.
    fn plain(&self, mut id: u32) -> Option<Type> {
        for _ in 0..CHAIN_MAX {
            let found = self.get(id)?;
            if !matches!(found.kind, TYPEDEF | VOLATILE | CONST | RESTRICT | TYPE_TAG) {
                return Some(found);
            }
            id = found.word;
        }
        None
    }

    /// Bytes of a type.
    fn size(&self, id: u32, chain: u32) -> Option<u32> {
        let found = self.plain(id)?;
        match found.kind {
            INT | STRUCT | UNION | ENUM | FLOAT | ENUM64 => Some(found.word),
            PTR => Some(8),
            ARRAY => {
                let (of, times) =
                    (word(self.table, found.rest)?, word(self.table, found.rest + 8)?);
                self.size(of, chain.checked_sub(1)?)?.checked_mul(times)
            }
            _ => None,
        }
    }
}
