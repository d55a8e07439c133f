//! Promise: a trace is read as it was written or not at all. Whatever is cut off or damaged,
//! reading ends in an error with a place inside the file, or in a prefix where the format has no
//! end of its own; it never panics, and the compact format notices every damaged byte.

use std::io::Cursor;
use std::path::Path;

use lowtide_workload::trace::{
    Columns, CompactWriter, Format, Head, Names, TenantId, Trace, TraceError, TraceFault,
    TraceFileError, TraceRecord, Writer, read_from,
};
use lowtide_workload::{OpKind, PageOp, SPACE_PAGES_MAX, Space, SpaceId};
use proptest::prelude::*;

const ALL: Columns = Columns { time_ns: true, thread: true, tenant: true };

fn trace(bytes: &[u8], format: Option<Format>) -> Result<Trace, TraceFileError> {
    read_from(Cursor::new(bytes.to_vec()), Path::new("trace"), format)
}

fn read(bytes: &[u8], format: Option<Format>) -> Result<Vec<TraceRecord>, TraceError> {
    match trace(bytes, format).and_then(Iterator::collect) {
        Ok(records) => Ok(records),
        Err(TraceFileError::Content { source, .. }) => Err(source),
        Err(error) => panic!("{error}"),
    }
}

fn names() -> Names {
    let mut names = Names::with_spaces([
        Space::file("index"),
        Space::anon("with \"quotes\", commas"),
        Space::file("ü:"),
    ]);
    names.tenant("first");
    names.tenant("second, quoted");
    names
}

fn some_records(count: u32) -> Vec<TraceRecord> {
    (0..count)
        .map(|n| TraceRecord {
            op: PageOp {
                kind: OpKind::ALL[n as usize % 6],
                space: SpaceId(n / 3 % 3),
                page: u64::from(n.wrapping_mul(2_654_435_761) >> 8),
                pages: n % 4 * n % 7 + 1,
            },
            time_ns: (n % 11 > 0).then_some(u64::from(n) * 1000),
            thread: (n % 7 > 0).then_some(n / 5 % 4),
            tenant: (n % 5 > 0).then_some(TenantId(n / 4 % 2)),
        })
        .collect()
}

fn compact(records: &[TraceRecord], columns: Columns) -> Vec<u8> {
    let mut writer = CompactWriter::new(Vec::new(), columns).unwrap();
    records.iter().for_each(|record| writer.write(record, &names()).unwrap());
    writer.finish().unwrap()
}

fn csv(records: &[TraceRecord], columns: Columns) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), columns).unwrap();
    records.iter().for_each(|record| writer.write(record, &names()).unwrap());
    writer.finish().unwrap()
}

fn oracle(records: u32) -> Vec<u8> {
    let record = |n: u32| {
        let next = if n.is_multiple_of(3) { -1 } else { i64::from(n) + 5 };
        let (object, bytes) = (u64::from(n % 17) << 20, n % 5 * 3000 + 1);
        [
            (n / 2).to_le_bytes().as_slice(),
            &object.to_le_bytes(),
            &bytes.to_le_bytes(),
            &next.to_le_bytes(),
        ]
        .concat()
    };
    (0..records).flat_map(record).collect()
}

const OBJECTS: &str =
    "time,id,size,op\n1,a,100,get\n2.5,\"b,c\",70000,set\n3,a,100,delete\n4,d,5,get\n";
const MSR: &str =
    "128166372003061629,hm,0,Read,8192,4096,100\n128166372003061630,hm,1,Write,4095,2,7\n";
const LACKEY: &str =
    "==9== Lackey\nI  0401ab70,3\n S 1fff000658,8\n L 1ffefffffc,8\n M 04226b90,4\n==9== end\n";
const FILEMAP: &str = "# tracer: nop\n\
    x-1 [000] ..... 1.000001: mm_filemap_get_pages: dev=8:1 ino=1f ofs=0-16383\n\
    x-1 [000] ..... 1.000002: mm_filemap_delete_from_page_cache: dev 8:1 ino 1f pfn=0x1 ofs=0 \
    order=0\n\
    x-2 [001] ..... 1.000003: mm_filemap_fault: dev=8:1 ino=1f ofs=12288\n";

fn samples() -> Vec<(Format, Vec<u8>)> {
    vec![
        (Format::Csv, csv(&some_records(12), ALL)),
        (Format::Compact, compact(&some_records(40), ALL)),
        (Format::OracleGeneral, oracle(20)),
        (Format::ObjectCsv, OBJECTS.into()),
        (Format::Msr, MSR.into()),
        (Format::Lackey, LACKEY.into()),
        (Format::Filemap, FILEMAP.into()),
    ]
}

#[test]
fn both_formats_say_the_page_and_foreign_ones_have_the_reader_s() {
    let head = |page_bytes| Head { columns: ALL, page_bytes };
    for page in [None, Some(512), Some(4096), Some(65536)] {
        let text = Writer::new(Vec::new(), head(page)).unwrap().finish().unwrap();
        let binary = CompactWriter::new(Vec::new(), head(page)).unwrap().finish().unwrap();
        for bytes in [text, binary] {
            assert_eq!(trace(&bytes, None).unwrap().page_bytes(), page);
        }
    }
    for (format, bytes) in samples() {
        let own = matches!(format, Format::Csv | Format::Compact);
        assert_eq!(trace(&bytes, None).unwrap().page_bytes(), (!own).then_some(4096), "{format}");
    }
    assert!(CompactWriter::new(Vec::new(), head(Some(3000))).is_err());
}

#[test]
fn compact_traces_of_version_1_are_read_and_do_not_say_the_page() {
    let with_header = |change: &dyn Fn(&mut [u8])| {
        let mut bytes = compact(&some_records(40), ALL);
        change(&mut bytes[..12]);
        let crc = crc32fast::hash(&bytes[..12]);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    };
    let old = with_header(&|header| header[8] = 1);
    let mut read = trace(&old, None).unwrap();
    assert_eq!(read.page_bytes(), None);
    assert_eq!(read.by_ref().map(Result::unwrap).count(), 40);
    // A version and a page: what version 1 has no place for, and what no version has.
    for (version, page) in [(1, 12), (2, 1), (2, 200), (3, 0)] {
        let bytes = with_header(&|header| (header[8], header[10]) = (version, page));
        let error = trace(&bytes, None).unwrap_err().to_string();
        assert!(error.contains("version"), "{error}");
    }
}

#[test]
fn every_format_is_told_by_its_content_whatever_its_compression() {
    for (format, bytes) in samples() {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut gzip, &bytes).unwrap();
        let zstd = zstd::encode_all(bytes.as_slice(), 1).unwrap();
        let mut found = [bytes, gzip.finish().unwrap(), zstd].into_iter().map(|bytes| {
            let trace = trace(&bytes, None).unwrap();
            assert_eq!(trace.format(), format);
            trace.collect::<Result<Vec<_>, _>>().unwrap()
        });
        let plain = found.next().unwrap();
        assert!(!plain.is_empty());
        found.for_each(|records| assert_eq!(records, plain, "{format}"));
    }
}

#[test]
fn a_cut_anywhere_is_an_error_or_a_prefix_between_records() {
    for (format, bytes) in samples() {
        let whole = read(&bytes, None).unwrap();
        for cut in 0..bytes.len() {
            for forced in [None, Some(format)] {
                match read(&bytes[..cut], forced) {
                    Ok(records) => {
                        let between = match format {
                            Format::Compact => false,
                            Format::OracleGeneral => cut % 24 == 0,
                            _ => bytes[..cut].ends_with(b"\n"),
                        };
                        assert!(between, "{format} cut at {cut} was taken for whole");
                        assert_eq!(records, whole[..records.len()], "{format} cut at {cut}");
                    }
                    Err(error) => {
                        assert!(error.byte_offset <= cut as u64, "{format} cut at {cut}: {error}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_damaged_byte_never_panics_and_compact_always_notices() {
    for (format, bytes) in samples() {
        for at in 0..bytes.len() {
            for damage in [1, 0x80, bytes[at], bytes[at] ^ b'\n', bytes[at] ^ b','] {
                if damage == 0 {
                    continue;
                }
                let mut damaged = bytes.clone();
                damaged[at] ^= damage;
                // Forced, so that damage at the start does not hide the reader from it; and
                // recognised by content.
                for forced in [Some(format), None] {
                    let found = read(&damaged, forced);
                    if let Err(error) = &found {
                        assert!(error.byte_offset <= bytes.len() as u64, "{format}: {error}");
                    }
                    if format == Format::Compact {
                        assert!(found.is_err(), "byte {at} ^ {damage:#x} went unnoticed");
                    }
                }
            }
        }
    }
}

#[test]
fn a_compact_trace_of_many_blocks_is_as_watchful() {
    let records = some_records(60_000);
    let bytes = compact(&records, ALL);
    let blocks = bytes.len() >> 16;
    assert!(blocks >= 4, "{} bytes are not many blocks", bytes.len());
    assert_eq!(read(&bytes, None).unwrap().len(), records.len());
    for step in 0..100 {
        let at = step * 7919 * 31 % bytes.len();
        let error = read(&bytes[..at], Some(Format::Compact)).unwrap_err();
        assert!(error.byte_offset <= at as u64, "cut at {at}: {error}");
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (step % 8);
        let error = read(&damaged, None).unwrap_err();
        // The place is that of the block, which begins at or before the damage.
        assert!(error.byte_offset <= at as u64, "damaged at {at}: {error}");
    }
    let twice = [bytes.as_slice(), &bytes].concat();
    assert!(read(&twice, None).is_err(), "something follows the end mark");
}

#[test]
fn a_block_that_is_lost_or_there_twice_is_noticed() {
    let bytes = compact(&some_records(60_000), ALL);
    let first = 16;
    let length = u32::from_le_bytes(bytes[first..first + 4].try_into().unwrap()) as usize;
    let second = first + 16 + length;
    let lost = [&bytes[..first], &bytes[second..]].concat();
    let doubled = [&bytes[..second], &bytes[first..]].concat();
    for bytes in [lost, doubled] {
        let error = read(&bytes, None).unwrap_err();
        assert!(matches!(error.what, TraceFault::Damaged { .. }), "{error}");
    }
}

#[test]
fn gigantic_numbers_are_refused_with_their_place() {
    let line = |text: &str| {
        let error = read(text.as_bytes(), None).unwrap_err();
        (error.line, error.what)
    };
    let limit = SPACE_PAGES_MAX;
    let own = format!("op,space,page,pages\nread,file:a,{},1\nread,file:a,{limit},1\n", limit - 1);
    assert!(matches!(line(&own), (Some(3), TraceFault::TooFar { .. })));
    let volume = format!("1,hm,0,Read,{},4096,0\n", u64::MAX - 4096);
    assert!(matches!(line(&volume), (Some(1), TraceFault::TooFar { .. })));
    let cache = format!("mm_filemap_fault: dev=8:1 ino=1 ofs={}\n", limit * 4096);
    assert!(matches!(line(&cache), (Some(1), TraceFault::TooFar { .. })));
    let objects = format!("id,size\n1,{}\n", (1_u64 << 40) + 1);
    assert!(matches!(line(&objects), (Some(2), TraceFault::ObjectTooLarge { .. })));
    assert!(matches!(line(" L fffffffffffffffff,8\n"), (None, TraceFault::UnknownFormat)));
    assert!(matches!(
        line("I  04,1\n L fffffffffffffffff,8\n"),
        (Some(2), TraceFault::BadLine { .. })
    ));
}

/// What a trace says, with names instead of numbers.
fn said(bytes: &[u8]) -> Vec<(TraceRecord, Space, Option<String>)> {
    let mut trace = trace(bytes, None).unwrap();
    let mut said = Vec::new();
    while let Some(record) = trace.next() {
        let record = record.unwrap();
        let names = trace.names();
        let tenant = record.tenant.map(|id| names.tenants()[id.0 as usize].clone());
        let space = names.spaces()[record.op.space.0 as usize].clone();
        let op = PageOp { space: SpaceId(0), ..record.op };
        said.push((TraceRecord { op, tenant: None, ..record }, space, tenant));
    }
    said
}

prop_compose! {
    fn any_record()(
        kind in prop::sample::select(&OpKind::ALL),
        (space, tenant) in (0..3_u32, prop::option::of(0..2_u32)),
        (page, pages) in prop_oneof![
            (0..SPACE_PAGES_MAX / 2, 1..=1_u32 << 31),
            (0..100_u64, 1..4_u32),
            Just((SPACE_PAGES_MAX - 1, 1)),
        ],
        time_ns: Option<u64>,
        thread: Option<u32>,
    ) -> TraceRecord {
        let op = PageOp { kind, space: SpaceId(space), page, pages };
        TraceRecord { op, time_ns, thread, tenant: tenant.map(TenantId) }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn both_formats_say_what_was_written(
        records in prop::collection::vec(any_record(), 0..60),
        time_ns: bool,
        thread: bool,
        tenant: bool,
    ) {
        let columns = Columns { time_ns, thread, tenant };
        let want: Vec<_> = records
            .iter()
            .map(|record| {
                let op = PageOp { space: SpaceId(0), ..record.op };
                let kept = TraceRecord {
                    op,
                    time_ns: record.time_ns.filter(|_| time_ns),
                    thread: record.thread.filter(|_| thread),
                    tenant: None,
                };
                let tenant = record.tenant.filter(|_| tenant);
                let tenant = tenant.map(|id| names().tenants()[id.0 as usize].clone());
                (kept, names().spaces()[record.op.space.0 as usize].clone(), tenant)
            })
            .collect();
        for bytes in [csv(&records, columns), compact(&records, columns)] {
            prop_assert_eq!(&said(&bytes), &want);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes: Vec<u8>, head in 0_usize..8) {
            let start = samples().get(head).map(|(_, bytes)| bytes.clone()).unwrap_or_default();
        let input = [start, bytes].concat();
        for format in Format::ALL.map(Some).into_iter().chain([None]) {
            if let Err(error) = read(&input, format) {
                prop_assert!(error.byte_offset <= input.len() as u64);
            }
        }
    }
}
