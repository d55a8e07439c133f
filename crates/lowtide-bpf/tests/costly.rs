//! Objects of which a part is as large as an object may be, and refers to another large part again
//! and again: loading costs what the object has, and not one part times the other.
//!
//! No test looks at a clock. Where that promise is broken, a test takes minutes and gigabytes.

use crate::common::*;
use lowtide_bpf::limits::{OBJECT_BYTES_MAX, SECTIONS_MAX};
use lowtide_bpf::{LoadFault, MapFault, Programs};

const PROGBITS: u32 = 1;
const SYMTAB: u32 = 2;
const STRTAB: u32 = 3;
const REL: u32 = 9;
/// A global function, a global variable.
const FUNCTION: u8 = 0x12;
const VARIABLE: u8 = 0x11;

fn row(name: &'static str, kind: u32, content: Vec<u8>) -> Row {
    Row { name, kind, flags: 0, content, link: 0, info: 0, entry: 0 }
}

fn code(name: &'static str) -> Row {
    Row { flags: 6, ..row(name, PROGBITS, [mov(0, 0), exit()].concat()) }
}

fn fault(rows: &[Row]) -> LoadFault {
    let object = elf(247, rows);
    assert!(object.len() <= OBJECT_BYTES_MAX, "{} bytes", object.len());
    Programs::load(&object, "costly").expect_err("it is refused").what
}

/// Type information with a structure `memcg_bpf_ops`, whose first member is `below_low`, and a
/// variable `v` of it.
fn operations() -> Vec<u8> {
    let strings = b"\0v\0memcg_bpf_ops\0below_low\0";
    let (structure, variable) = (4 << 24 | 1, 14 << 24);
    type_information(&[3, structure, 64, 17, 0, 0, 1, variable, 1, 1], strings)
}

/// A table of operations with `count` pointers to one program, all in the place of the first
/// member, and one more where there is no variable.
fn table_of(count: usize) -> Vec<Row> {
    let mut pointers: Vec<u8> = (0..count).flat_map(|_| relocation(0, 2, 2)).collect();
    pointers.extend(relocation(64, 2, 2));
    let symbols = [symbol(0, 0, 0, 0), symbol(1, VARIABLE, 2, 64), symbol(3, FUNCTION, 1, 16)];
    vec![
        code("struct_ops/p"),
        row(".struct_ops", PROGBITS, vec![0; 128]),
        Row { link: 5, info: 2, entry: 16, ..row(".rel", REL, pointers) },
        row(".BTF", PROGBITS, operations()),
        Row { link: 6, info: 1, entry: 24, ..row(".symtab", SYMTAB, symbols.concat()) },
        row(".strtab", STRTAB, b"\0v\0p\0".to_vec()),
    ]
}

#[test]
fn a_second_program_of_an_operation_is_refused_before_it_is_linked() {
    let mut one = table_of(1);
    one[2].content.truncate(16);
    assert!(Programs::load(&elf(247, &one), "one").is_ok());
    let twice = LoadFault::Twice { first: "struct_ops/p".into(), second: "struct_ops/p".into() };
    assert_eq!(fault(&table_of(2)), twice);
    let mut many = table_of(200_000);
    many.push(Row {
        flags: 6,
        ..row(".text", PROGBITS, [mov(0, 0), exit()].concat().repeat(2048))
    });
    assert_eq!(fault(&many), twice);
}

#[test]
fn an_object_has_no_more_sections_than_there_may_be() {
    let with = |count: usize| {
        let mut symbols = symbol(0, 0, 0, 0);
        let mut rows: Vec<Row> = (1..=count)
            .map(|section| {
                symbols.extend(symbol(1, FUNCTION, section as u16, 16));
                code("memcg/below_low")
            })
            .collect();
        let names = rows.len() as u32 + 2;
        rows.push(Row { link: names, info: 1, entry: 24, ..row(".symtab", SYMTAB, symbols) });
        rows.push(row(".strtab", STRTAB, b"\0p\0".to_vec()));
        rows
    };
    // Symbols, their names, and the names of sections are the others.
    let most = SECTIONS_MAX - 3;
    assert!(matches!(fault(&with(most)), LoadFault::Twice { .. }));
    assert_eq!(fault(&with(most + 1)), LoadFault::Sections { sections: SECTIONS_MAX + 1 });
    assert_eq!(fault(&with(30_000)), LoadFault::Sections { sections: 30_003 });
}

#[test]
fn an_instruction_has_one_relocation() {
    let with = |relocations: Vec<u8>| {
        let code = [&constant(1, 0)[..], &[mov(0, 0), exit()]].concat().concat();
        let symbols = [symbol(0, 0, 0, 0), symbol(3, 3, 2, 0), symbol(1, FUNCTION, 1, 32)];
        vec![
            Row { flags: 6, ..row("memcg/below_low", PROGBITS, code) },
            Row { flags: 3, ..row(".data", PROGBITS, vec![0; 8]) },
            Row { link: 4, info: 1, entry: 16, ..row(".rel", REL, relocations) },
            Row { link: 5, info: 2, entry: 24, ..row(".symtab", SYMTAB, symbols.concat()) },
            row(".strtab", STRTAB, b"\0p\0d\0".to_vec()),
        ]
    };
    assert!(Programs::load(&elf(247, &with(relocation(0, 1, 1))), "one").is_ok());
    for times in [2, 200_000] {
        let twice = (0..times).flat_map(|_| relocation(0, 1, 1)).collect();
        let LoadFault::Relocation { at: 0, why, .. } = fault(&with(twice)) else { panic!() };
        assert_eq!(why, "there are two relocations of one instruction");
    }
}

/// Each name ends where the last one does, two megabytes behind its beginning.
#[test]
fn names_without_an_end_are_not_read_again_and_again() {
    let mut strings = vec![b'x'; 2 << 20];
    strings.push(0);
    let variables = (1..70_000).flat_map(|name| [name, 14 << 24, 1, 1]);
    let types: Vec<u32> = [0, 4 << 24, 32].into_iter().chain(variables).collect();
    let symbols = [symbol(0, 0, 0, 0), symbol(1, VARIABLE, 2, 32), symbol(3, FUNCTION, 1, 16)];
    let rows = vec![
        code("memcg/below_low"),
        Row { flags: 3, ..row(".maps", PROGBITS, vec![0; 32]) },
        row(".BTF", PROGBITS, type_information(&types, &strings)),
        Row { link: 5, info: 1, entry: 24, ..row(".symtab", SYMTAB, symbols.concat()) },
        row(".strtab", STRTAB, b"\0m\0p\0".to_vec()),
    ];
    assert_eq!(fault(&rows), LoadFault::Map { map: "m".into(), why: MapFault::Undefined });

    // Records of kernel fields: each names a section, and has no fields.
    let mut ext = [32u32, 0, 0, 0, 0, 0, 0, 1 << 20].map(u32::to_le_bytes).concat();
    ext.splice(0..0, []);
    ext.extend([8u32].map(u32::to_le_bytes).concat());
    ext.extend(
        (0..(1 << 20) / 8 - 1).flat_map(|name: u32| [name, 0].map(u32::to_le_bytes).concat()),
    );
    let rows = vec![
        code("memcg/below_low"),
        row(".BTF", PROGBITS, type_information(&[], &strings)),
        row(".BTF.ext", PROGBITS, ext),
        Row {
            link: 5,
            info: 1,
            entry: 24,
            ..row(".symtab", SYMTAB, [symbol(0, 0, 0, 0), symbol(1, FUNCTION, 1, 16)].concat())
        },
        row(".strtab", STRTAB, b"\0p\0".to_vec()),
    ];
    let object = elf(247, &rows);
    assert!(object.len() <= OBJECT_BYTES_MAX && Programs::load(&object, "fields").is_ok());
}
