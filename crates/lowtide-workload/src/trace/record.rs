//! What a record of a trace says, and the tables that its names refer to.

use super::error::WriteError;
use crate::op::{PageOp, Space, SpaceId, SpaceKind};
use std::collections::HashMap;

/// The required columns.
pub(super) const REQUIRED: [&str; 4] = ["op", "space", "page", "pages"];
/// The optional columns.
pub(super) const OPTIONAL: [&str; 3] = ["time_ns", "thread", "tenant"];

/// The number of a tenant: an index into [`Names::tenants`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TenantId(pub u32);

/// One operation of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRecord {
    /// What happens; its space is an index into [`Names::spaces`].
    pub op: PageOp,
    /// When, in nanoseconds from any fixed point.
    pub time_ns: Option<u64>,
    /// Which thread does it.
    pub thread: Option<u32>,
    /// Which tenant pays for it.
    pub tenant: Option<TenantId>,
}

impl From<PageOp> for TraceRecord {
    /// The operation alone, without the optional values.
    fn from(op: PageOp) -> Self {
        Self { op, time_ns: None, thread: None, tenant: None }
    }
}

/// Which optional columns a trace has. The default is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// `time_ns`.
    pub time_ns: bool,
    /// `thread`.
    pub thread: bool,
    /// `tenant`.
    pub tenant: bool,
}

/// What a trace says before its first record. The default is no optional column, and nothing about
/// pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The optional columns.
    pub columns: Columns,
    /// Bytes of a page, which [`page_is_possible`] accepts; `None` when the trace does not say.
    pub page_bytes: Option<u64>,
}

impl From<Columns> for Head {
    /// These columns, and nothing about pages.
    fn from(columns: Columns) -> Self {
        Self { columns, page_bytes: None }
    }
}

/// Whether pages of a trace can have this many bytes: a power of two from 512 to 64 KiB, as the
/// pages of the engine.
#[must_use]
pub const fn page_is_possible(bytes: u64) -> bool {
    bytes.is_power_of_two() && bytes >= 512 && bytes <= 64 << 10
}

/// `head`, if its page is valid in a trace.
pub(super) const fn checked_head(head: Head) -> Result<Head, WriteError> {
    match head.page_bytes {
        Some(bytes) if !page_is_possible(bytes) => Err(WriteError::BadPage { bytes }),
        _ => Ok(head),
    }
}

/// The spaces and tenants of a trace, numbered in order of appearance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    spaces: Vec<Space>,
    tenants: Vec<String>,
    space_ids: HashMap<String, SpaceId>,
    tenant_ids: HashMap<String, TenantId>,
}

impl Names {
    /// Tables with these spaces, numbered from 0 in this order, and no tenants.
    #[must_use]
    pub fn with_spaces(spaces: impl IntoIterator<Item = Space>) -> Self {
        let mut names = Self::default();
        for space in spaces {
            names.space_ids.insert(space.to_string(), SpaceId(names.spaces.len() as u32));
            names.spaces.push(space);
        }
        names
    }

    /// The spaces, indexed by [`SpaceId`].
    #[must_use]
    pub fn spaces(&self) -> &[Space] {
        &self.spaces
    }

    /// The tenants, indexed by [`TenantId`].
    #[must_use]
    pub fn tenants(&self) -> &[String] {
        &self.tenants
    }

    /// The number of `space`, which is added if it is new. `None` when 2^32 spaces are taken.
    pub fn space(&mut self, space: Space) -> Option<SpaceId> {
        let text = space.to_string();
        if let Some(&id) = self.space_ids.get(&text) {
            return Some(id);
        }
        let id = SpaceId(u32::try_from(self.spaces.len()).ok()?);
        self.spaces.push(space);
        self.space_ids.insert(text, id);
        Some(id)
    }

    /// The number of the tenant called `name`, which is added if it is new. `None` when 2^32
    /// tenants are taken.
    pub fn tenant(&mut self, name: &str) -> Option<TenantId> {
        if let Some(&id) = self.tenant_ids.get(name) {
            return Some(id);
        }
        let id = TenantId(u32::try_from(self.tenants.len()).ok()?);
        self.tenants.push(name.to_owned());
        self.tenant_ids.insert(name.to_owned(), id);
        Some(id)
    }

    /// The number of the space written as `text`, if it is known.
    pub(super) fn known_space(&self, text: &str) -> Option<SpaceId> {
        self.space_ids.get(text).copied()
    }
}

/// Whether a name is valid in a trace: not empty, no line breaks.
pub(super) fn name_is_possible(name: &str) -> bool {
    !name.is_empty() && !name.contains(['\n', '\r'])
}

/// The names of a record that is to be written, if they are valid in a trace: its space, and its
/// tenant if there is a column for it.
pub(super) fn checked<'a>(
    record: &TraceRecord,
    names: &'a Names,
    columns: Columns,
) -> Result<(&'a Space, Option<&'a str>), WriteError> {
    let op = record.op;
    if !op.range_is_possible() {
        return Err(WriteError::BadRange { page: op.page, pages: op.pages });
    }
    let known = names.spaces.len();
    let space = names
        .spaces
        .get(op.space.0 as usize)
        .ok_or(WriteError::UnknownSpace { id: op.space.0, known })?;
    check_name(&space.name)?;
    let tenant = match record.tenant.filter(|_| columns.tenant) {
        None => None,
        Some(TenantId(id)) => {
            let known = names.tenants.len();
            let name =
                names.tenants.get(id as usize).ok_or(WriteError::UnknownTenant { id, known })?;
            check_name(name)?;
            Some(name.as_str())
        }
    };
    Ok((space, tenant))
}

fn check_name(name: &str) -> Result<(), WriteError> {
    if name_is_possible(name) { Ok(()) } else { Err(WriteError::BadName { name: name.to_owned() }) }
}

/// Parses `file:NAME` or `anon:NAME`.
pub(super) fn parse_space(text: &str) -> Option<Space> {
    let (kind, name) = text.split_once(':')?;
    let kind = match kind {
        "file" => SpaceKind::File,
        "anon" => SpaceKind::Anon,
        _ => return None,
    };
    name_is_possible(name).then(|| Space { kind, name: name.to_owned() })
}

/// Parses a decimal number without sign. `None` when it is not one or does not fit.
#[inline]
pub(super) fn parse_number(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number.checked_mul(10)?.checked_add(u64::from(digit))
    })
}
