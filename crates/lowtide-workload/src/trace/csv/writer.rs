//! Writes the exchange format, one record at a time.

use super::super::error::WriteError;
use super::super::record::{Columns, Head, Names, REQUIRED, TraceRecord, checked, checked_head};
use super::PAGE_COMMENT;
use csv::{ByteRecord, WriterBuilder};
use std::fmt::{Display, Write as _};
use std::io::{self, Write};

/// Writes records in the exchange format.
///
/// Buffers its output; [`finish`](Self::finish) writes the rest and reports its errors, which
/// dropping the writer cannot.
#[derive(Debug)]
pub struct Writer<W: Write> {
    lines: csv::Writer<W>,
    columns: Columns,
    record: ByteRecord,
    field: String,
}

impl<W: Write> Writer<W> {
    /// Starts a trace with what `head` says and the required columns.
    ///
    /// # Errors
    /// [`WriteError::BadPage`]; [`WriteError::Io`] when the header cannot be written.
    pub fn new(mut output: W, head: impl Into<Head>) -> Result<Self, WriteError> {
        let Head { columns, page_bytes } = checked_head(head.into())?;
        if let Some(bytes) = page_bytes {
            writeln!(output, "# {PAGE_COMMENT}: {bytes}")?;
        }
        let mut writer = Self {
            lines: WriterBuilder::new().has_headers(false).from_writer(output),
            columns,
            record: ByteRecord::new(),
            field: String::new(),
        };
        let optional =
            [(columns.time_ns, "time_ns"), (columns.thread, "thread"), (columns.tenant, "tenant")];
        let optional = optional.into_iter().filter_map(|(present, name)| present.then_some(name));
        writer.lines.write_record(REQUIRED.into_iter().chain(optional)).map_err(io_error)?;
        Ok(writer)
    }

    /// Writes one record, whose numbers refer to `names`. Optional values without a column are left
    /// out.
    ///
    /// # Errors
    /// A [`WriteError`]; nothing of the record is then written, except perhaps after
    /// [`WriteError::Io`].
    pub fn write(&mut self, record: &TraceRecord, names: &Names) -> Result<(), WriteError> {
        let op = record.op;
        let (space, tenant) = checked(record, names, self.columns)?;
        self.record.clear();
        self.push(Some(op.kind));
        self.push(Some(space));
        self.push(Some(op.page));
        self.push(Some(op.pages));
        if self.columns.time_ns {
            self.push(record.time_ns);
        }
        if self.columns.thread {
            self.push(record.thread);
        }
        if self.columns.tenant {
            self.push(tenant);
        }
        self.lines.write_byte_record(&self.record).map_err(io_error)?;
        Ok(())
    }

    fn push(&mut self, value: Option<impl Display>) {
        self.field.clear();
        if let Some(value) = value {
            // Formatting into a `String` fails only if the value's own `Display` does, and these do
            // not.
            let _ = write!(self.field, "{value}");
        }
        self.record.push_field(self.field.as_bytes());
    }

    /// Writes what is buffered and gives the output back.
    ///
    /// # Errors
    /// [`WriteError::Io`] when the rest cannot be written.
    pub fn finish(mut self) -> Result<W, WriteError> {
        self.lines.flush()?;
        self.lines.into_inner().map_err(|error| WriteError::Io(io::Error::other(error.to_string())))
    }
}

/// The device's own error, where the CSV writer wraps one.
fn io_error(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        kind => io::Error::other(format!("{kind:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::record::TenantId;
    use super::super::Reader;
    use super::*;
    use crate::op::{OpKind, PageOp, SPACE_PAGES_MAX, Space, SpaceId};
    use proptest::prelude::*;

    const ALL: Columns = Columns { time_ns: true, thread: true, tenant: true };

    fn line(record: TraceRecord, names: &Names) -> Result<(), WriteError> {
        Writer::new(Vec::new(), ALL)?.write(&record, names)
    }

    #[test]
    fn the_text_is_the_documented_one() {
        let mut names = Names::with_spaces([Space::file("index"), Space::anon("heap")]);
        let tenant = names.tenant("web");
        let mut writer =
            Writer::new(Vec::new(), Columns { thread: true, ..Columns::default() }).unwrap();
        let read = PageOp::one(OpKind::Read, SpaceId(0), 17);
        writer.write(&TraceRecord { thread: Some(0), tenant, ..read.into() }, &names).unwrap();
        let store = PageOp { kind: OpKind::Store, space: SpaceId(1), page: 4, pages: 2 };
        writer.write(&store.into(), &names).unwrap();
        let text = String::from_utf8(writer.finish().unwrap()).unwrap();
        assert_eq!(
            text,
            "op,space,page,pages,thread\nread,file:index,17,1,0\nstore,anon:heap,4,2,\n"
        );
    }

    #[test]
    fn the_page_is_said_before_the_header() {
        let head = Head { columns: Columns::default(), page_bytes: Some(1024) };
        let bytes = Writer::new(Vec::new(), head).unwrap().finish().unwrap();
        assert_eq!(String::from_utf8(bytes).unwrap(), "# page_bytes: 1024\nop,space,page,pages\n");
        let head = Head { page_bytes: Some(1000), ..head };
        assert!(matches!(Writer::new(Vec::new(), head), Err(WriteError::BadPage { bytes: 1000 })));
    }

    #[test]
    fn records_that_could_not_be_read_back_are_refused() {
        let names = Names::with_spaces([Space::file("a"), Space::file("b\nc"), Space::file("")]);
        let one = |space| TraceRecord::from(PageOp::one(OpKind::Read, SpaceId(space), 1));
        assert!(line(one(0), &names).is_ok());
        assert!(matches!(line(one(1), &names), Err(WriteError::BadName { .. })));
        assert!(matches!(line(one(2), &names), Err(WriteError::BadName { .. })));
        assert!(matches!(line(one(3), &names), Err(WriteError::UnknownSpace { id: 3, known: 3 })));
        let tenant = TraceRecord { tenant: Some(TenantId(0)), ..one(0) };
        assert!(matches!(line(tenant, &names), Err(WriteError::UnknownTenant { id: 0, known: 0 })));
        for (page, pages) in [(1, 0), (u64::MAX, 1), (SPACE_PAGES_MAX, 1), (SPACE_PAGES_MAX - 1, 2)]
        {
            let op = PageOp { kind: OpKind::Read, space: SpaceId(0), page, pages };
            assert!(matches!(line(op.into(), &names), Err(WriteError::BadRange { .. })));
        }
    }

    #[test]
    fn a_full_disk_is_reported_at_the_latest_by_finish() {
        #[derive(Debug)]
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let writer = Writer::new(Full, ALL).unwrap();
        let Err(WriteError::Io(error)) = writer.finish() else { panic!("an error was expected") };
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }

    prop_compose! {
        fn any_record()(
            kind in prop::sample::select(&OpKind::ALL),
            (space, tenant) in (0..3_u32, prop::option::of(0..2_u32)),
            (page, pages) in (0..SPACE_PAGES_MAX / 2, 1..=1_u32 << 31),
            time_ns: Option<u64>,
            thread: Option<u32>,
        ) -> TraceRecord {
            let op = PageOp { kind, space: SpaceId(space), page, pages };
            TraceRecord { op, time_ns, thread, tenant: tenant.map(TenantId) }
        }
    }

    proptest! {
        #[test]
        fn what_was_written_is_read_back(records in prop::collection::vec(any_record(), 0..50)) {
            let spaces = [Space::file("plain"), Space::anon("with \"quotes\", \
                commas"), Space::file("ü:")];
            let mut names = Names::with_spaces(spaces);
            names.tenant("first");
            names.tenant("second, quoted");
            let mut writer = Writer::new(Vec::new(), ALL).unwrap();
            for record in &records {
                writer.write(record, &names).unwrap();
            }
            let bytes = writer.finish().unwrap();
            let mut reader = Reader::new(bytes.as_slice()).unwrap();
            let read: Vec<TraceRecord> = reader.by_ref().map(Result::unwrap).collect();
            prop_assert_eq!(read.len(), records.len());
            for (mut got, want) in read.into_iter().zip(records) {
                // Numbers are given in order of appearance, so names are what must agree.
                let found = reader.names();
                let (got_space, want_space) = (got.op.space.0 as usize, want.op.space.0 as usize);
                prop_assert_eq!(&found.spaces()[got_space], &names.spaces()[want_space]);
                prop_assert_eq!(
                    got.tenant.map(|id| &found.tenants()[id.0 as usize]),
                    want.tenant.map(|id| &names.tenants()[id.0 as usize])
                );
                (got.op.space, got.tenant) = (want.op.space, want.tenant);
                prop_assert_eq!(got, want);
            }
        }
    }
}
