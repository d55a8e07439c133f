//! Accesses to objects as CSV with a header: what key-value caches and content networks publish.
//!
//! | column | also called | value |
//! |---|---|---|
//! | `id` | `obj_id`, `key` | the object: any text |
//! | `size` | `obj_size` | its size in bytes |
//! | `time` | `timestamp` | optional: seconds, with or without decimals |
//! | `op` | `operation` | optional: the operation; without it every access is a read |
//!
//! Columns may stand in any order, and others are ignored. Names of columns and operations are
//! compared without regard to case. The operation is
//!
//! * a read for `get`, `gets`, `read`, `load` and `head`;
//! * a write for `set`, `put`, `add`, `replace`, `cas`, `append`, `prepend`, `incr`, `decr`,
//!   `write`, `update` and `store`;
//! * for `delete`, `del`, `remove` and `free`, the object's pages are given up.
//!
//! Objects are identified by a 64-bit hash of their text. Two of a billion objects share one with a
//! chance of three percent, and then are taken for one object.

use super::super::error::TraceFault;
use super::super::record::{Names, TraceRecord};
use super::super::text::{Fields, LineParser, Lines, number, parse_seconds, shown};
use super::objects::Arena;
use crate::op::OpKind;
use std::io::Read;
use xxhash_rust::xxh3::xxh3_64;

const ID: [&str; 3] = ["id", "obj_id", "key"];
const SIZE: [&str; 2] = ["size", "obj_size"];
const TIME: [&str; 2] = ["time", "timestamp"];
const OP: [&str; 2] = ["op", "operation"];
const READS: [&str; 5] = ["get", "gets", "read", "load", "head"];
const WRITES: [&str; 12] = [
    "set", "put", "add", "replace", "cas", "append", "prepend", "incr", "decr", "write", "update",
    "store",
];
const FREES: [&str; 4] = ["delete", "del", "remove", "free"];

/// Whether a line is the header of such a trace: it names an object's identity and its size.
pub(in super::super) fn is_header(line: &[u8]) -> bool {
    Fields::of(line).any(|field| is_one_of(&ID, &field))
        && Fields::of(line).any(|field| is_one_of(&SIZE, &field))
}

fn is_one_of(names: &[&str], field: &[u8]) -> bool {
    names.iter().any(|name| name.as_bytes().eq_ignore_ascii_case(field))
}

/// Reads lines below the header.
#[derive(Debug)]
pub(in super::super) struct ObjectCsv {
    columns: usize,
    id: usize,
    size: usize,
    time: Option<usize>,
    op: Option<usize>,
    arena: Arena,
}

impl ObjectCsv {
    /// Reads the header, which is the first line that is not blank.
    ///
    /// # Errors
    /// [`TraceFault::NoObjectColumn`], [`TraceFault::Truncated`] and what else can be wrong with a
    /// line.
    pub(in super::super) fn new<R: Read>(lines: &mut Lines<R>) -> Result<Self, TraceFault> {
        let header = lines.advance_to_text()?.ok_or(TraceFault::Empty)?;
        let find = |names: &[&str]| Fields::of(header).position(|field| is_one_of(names, &field));
        let need = |names| {
            find(names).ok_or_else(|| TraceFault::NoObjectColumn { names: names.join(" or ") })
        };
        Ok(Self {
            columns: Fields::of(header).count(),
            id: need(&ID)?,
            size: need(&SIZE)?,
            time: find(&TIME),
            op: find(&OP),
            arena: Arena::new(),
        })
    }
}

impl LineParser for ObjectCsv {
    fn parse(&mut self, line: &[u8], names: &mut Names) -> Result<Option<TraceRecord>, TraceFault> {
        if line.is_empty() {
            return Ok(None);
        }
        let (mut id, mut size, mut time, mut op) = (None, None, None, None);
        let mut found = 0;
        for field in Fields::of(line) {
            let here = Some(found);
            if found == self.id {
                id = Some(field);
            } else if found == self.size {
                size = Some(field);
            } else if self.time == here {
                time = Some(field);
            } else if self.op == here {
                op = Some(field);
            }
            found += 1;
        }
        let (Some(id), Some(size), true) = (id, size, found == self.columns) else {
            return Err(TraceFault::FieldCount { expected: self.columns, found });
        };
        let id = xxh3_64(&id);
        let size = number("size", &size, u64::MAX)?;
        let time_ns = match time.as_deref() {
            None | Some([]) => None,
            Some(text) => Some(parse_seconds(text).ok_or_else(|| TraceFault::BadLine {
                text: shown(text),
                expected: "a time in seconds",
            })?),
        };
        let kind = match op {
            None => OpKind::Read,
            Some(op) => parse_op(&op)?,
        };
        let op = match kind {
            OpKind::Free => self.arena.free(id, names)?,
            kind => Some(self.arena.access(kind, id, size, names)?),
        };
        Ok(op.map(|op| TraceRecord { time_ns, ..op.into() }))
    }
}

fn parse_op(op: &[u8]) -> Result<OpKind, TraceFault> {
    let kinds = [
        (READS.as_slice(), OpKind::Read),
        (WRITES.as_slice(), OpKind::Write),
        (FREES.as_slice(), OpKind::Free),
    ];
    let kind = kinds.into_iter().find(|(names, _)| is_one_of(names, op));
    kind.map(|(_, kind)| kind).ok_or_else(|| TraceFault::BadLine {
        text: shown(op),
        expected: "an operation on an object, such as get, set or delete",
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::input::Input;
    use super::super::super::text::Text;
    use super::*;
    use std::io::Cursor;

    fn read(text: &str) -> Result<Vec<TraceRecord>, (u64, TraceFault)> {
        let mut lines = Lines::new(Input::new(Cursor::new(text.to_owned())).unwrap());
        let parser = ObjectCsv::new(&mut lines).map_err(|fault| (1, fault))?;
        let mut reader = Text::new(lines, parser);
        let mut records = Vec::new();
        loop {
            match reader.next() {
                Ok(Some(record)) => records.push(record),
                Ok(None) => return Ok(records),
                Err(error) => return Err((error.line.unwrap(), error.what)),
            }
        }
    }

    #[test]
    fn objects_are_read_written_and_given_up() {
        let text = "Timestamp,ttl,KEY,obj_size,operation\n\
                    1.5,0,\"a,b\",5000,get\n\
                    2,0,other,10,SET\n\
                    ,0,\"a,b\",9000,append\n\
                    3,0,unknown,0,delete\n\
                    4,0,other,0,delete\n";
        let found: Vec<_> = read(text)
            .unwrap()
            .into_iter()
            .map(|record| (record.time_ns, record.op.kind, record.op.page, record.op.pages))
            .collect();
        let want = [
            (Some(1_500_000_000), OpKind::Read, 0, 2),
            (Some(2_000_000_000), OpKind::Write, 2, 1),
            (None, OpKind::Write, 3, 3),
            (Some(4_000_000_000), OpKind::Free, 2, 1),
        ];
        assert_eq!(found, want);
    }

    #[test]
    fn without_time_and_op_everything_is_read() {
        let records = read("id,size\n1,1\n1,1\n").unwrap();
        assert!(
            records.iter().all(|record| record.op.kind == OpKind::Read && record.time_ns.is_none())
        );
        assert_eq!(records.len(), 2);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        assert!(matches!(read("id,bytes\n"), Err((1, TraceFault::NoObjectColumn { .. }))));
        assert!(matches!(read("id,size\n1,2\n1\n"), Err((3, TraceFault::FieldCount { .. }))));
        assert!(matches!(read("id,size\n1,2,3\n"), Err((2, TraceFault::FieldCount { .. }))));
        assert!(matches!(read("id,size\n1,x\n"), Err((2, TraceFault::BadNumber { .. }))));
        assert!(matches!(
            read("id,size\n1,1099511627777\n"),
            Err((2, TraceFault::ObjectTooLarge { .. }))
        ));
        assert!(matches!(read("id,size,op\n1,1,fly\n"), Err((2, TraceFault::BadLine { .. }))));
        assert!(matches!(read("id,size,time\n1,1,noon\n"), Err((2, TraceFault::BadLine { .. }))));
    }
}
