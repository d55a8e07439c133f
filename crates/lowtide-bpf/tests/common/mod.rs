//! Objects made by hand, for what no compiler would make.

#![allow(dead_code, reason = "each test uses its part")]

/// An instruction's bytes.
pub(crate) fn op(op: u8, dst: u8, src: u8, off: i16, imm: i32) -> [u8; 8] {
    let ([o0, o1], [i0, i1, i2, i3]) = (off.to_le_bytes(), imm.to_le_bytes());
    [op, dst | src << 4, o0, o1, i0, i1, i2, i3]
}

/// `dst = imm`
pub(crate) fn mov(dst: u8, imm: i32) -> [u8; 8] {
    op(0xb7, dst, 0, 0, imm)
}

/// `dst = src`
pub(crate) fn copy(dst: u8, src: u8) -> [u8; 8] {
    op(0xbf, dst, src, 0, 0)
}

/// `dst += imm`
pub(crate) fn add(dst: u8, imm: i32) -> [u8; 8] {
    op(0x07, dst, 0, 0, imm)
}

/// `dst = *(u64 *)(src + off)`
pub(crate) fn load(dst: u8, src: u8, off: i16) -> [u8; 8] {
    op(0x79, dst, src, off, 0)
}

/// `*(u64 *)(dst + off) = src`
pub(crate) fn store(dst: u8, off: i16, src: u8) -> [u8; 8] {
    op(0x7b, dst, src, off, 0)
}

pub(crate) fn helper(number: i32) -> [u8; 8] {
    op(0x85, 0, 0, 0, number)
}

/// A call of the function `distance` slots behind the next.
pub(crate) fn local(distance: i32) -> [u8; 8] {
    op(0x85, 0, 1, 0, distance)
}

pub(crate) fn goto(off: i16) -> [u8; 8] {
    op(0x05, 0, 0, off, 0)
}

pub(crate) fn exit() -> [u8; 8] {
    op(0x95, 0, 0, 0, 0)
}

/// The two slots of a 64-bit constant; filled in by a relocation if it is the map.
pub(crate) fn constant(dst: u8, value: u64) -> [[u8; 8]; 2] {
    [op(0x18, dst, 0, 0, value as i32), op(0, 0, 0, 0, (value >> 32) as i32)]
}

/// An object to be.
#[derive(Clone)]
pub(crate) struct Maker {
    pub section: &'static str,
    pub code: Vec<[u8; 8]>,
    /// Slots whose 64-bit constants are the map `m`: a hash or array with values of 8 bytes.
    pub map_at: Vec<usize>,
    /// The kernel's number of the map's type, and its entries.
    pub map: (u32, u32),
    pub machine: u16,
    /// Global functions in the section, all at its beginning.
    pub functions: usize,
    /// The section that the map lies in; 0 is none.
    pub map_section: u16,
}

impl Maker {
    pub(crate) fn new(code: Vec<[u8; 8]>) -> Self {
        Self {
            section: "memcg/throttle",
            code,
            map_at: Vec::new(),
            map: (1, 4),
            machine: 247,
            functions: 1,
            map_section: 3,
        }
    }

    pub(crate) fn section(self, section: &'static str) -> Self {
        Self { section, ..self }
    }

    pub(crate) fn map_at(self, slots: &[usize]) -> Self {
        Self { map_at: slots.to_vec(), ..self }
    }

    /// An ELF file: null, code, its relocations, `.maps`, `.BTF`, symbols, their names, sections'
    /// names.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let relocations: Vec<u8> =
            self.map_at.iter().flat_map(|&slot| relocation(slot as u64 * 8, 1, 1)).collect();
        let mut symbols = [symbol(0, 0, 0, 0), symbol(3, 0x11, self.map_section, 32)].concat();
        for _ in 0..self.functions {
            symbols.extend(symbol(1, 0x12, 1, self.code.len() as u64 * 8));
        }
        let row = |name: &'static str, kind, flags, content, link, info, entry| Row {
            name,
            kind,
            flags,
            content,
            link,
            info,
            entry,
        };
        elf(
            self.machine,
            &[
                row(self.section, 1, 6, self.code.concat(), 0, 0, 0),
                row(".rel", 9, 0, relocations, 5, 1, 16),
                row(".maps", 1, 3, vec![0; 32], 0, 0, 0),
                row(".BTF", 1, 0, btf(self.map.0, self.map.1), 0, 0, 0),
                row(".symtab", 2, 0, symbols, 6, 1, 24),
                row(".strtab", 3, 0, b"\0p\0m\0".to_vec(), 0, 0, 0),
            ],
        )
    }
}

/// A section to be.
#[derive(Clone)]
pub(crate) struct Row {
    pub name: &'static str,
    pub kind: u32,
    pub flags: u64,
    pub content: Vec<u8>,
    pub link: u32,
    pub info: u32,
    pub entry: u64,
}

/// A relocatable ELF file of some sections, numbered from 1; the last one has their names.
pub(crate) fn elf(machine: u16, rows: &[Row]) -> Vec<u8> {
    let mut names = vec![0];
    let mut contents = Vec::new();
    let mut headers = vec![0; 64];
    let mut add = |name: usize, row: &Row| {
        contents.resize(contents.len().next_multiple_of(8), 0);
        headers.extend([name as u32, row.kind].iter().flat_map(|w| w.to_le_bytes()));
        let place = [row.flags, 0, 64 + contents.len() as u64, row.content.len() as u64];
        headers.extend(words(&place));
        headers.extend([row.link, row.info].iter().flat_map(|w| w.to_le_bytes()));
        headers.extend(words(&[8, row.entry]));
        contents.extend(&row.content);
    };
    for row in rows {
        add(names.len(), row);
        names.extend(row.name.bytes().chain([0]));
    }
    let name = names.len();
    names.extend(b".shstrtab\0");
    let (flags, link, info, entry) = (0, 0, 0, 0);
    add(name, &Row { name: ".shstrtab", kind: 3, flags, content: names, link, info, entry });
    contents.resize(contents.len().next_multiple_of(8), 0);
    let mut elf = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    elf.extend(1u16.to_le_bytes());
    elf.extend(machine.to_le_bytes());
    elf.extend(1u32.to_le_bytes());
    elf.extend(words(&[0, 0, 64 + contents.len() as u64]));
    elf.extend(0u32.to_le_bytes());
    for half in [64, 0, 0, 64, rows.len() as u16 + 2, rows.len() as u16 + 1] {
        elf.extend(half.to_le_bytes());
    }
    elf.extend(contents);
    elf.extend(headers);
    elf
}

/// A symbol at a section's beginning: the place of its name, type and binding, section, and size.
pub(crate) fn symbol(name: u32, info: u8, section: u16, size: u64) -> Vec<u8> {
    let mut bytes = name.to_le_bytes().to_vec();
    bytes.extend([info, 0]);
    bytes.extend(section.to_le_bytes());
    bytes.extend(words(&[0, size]));
    bytes
}

/// A relocation of what is at `offset`, by the number of a symbol and a type.
pub(crate) fn relocation(offset: u64, symbol: u64, kind: u64) -> Vec<u8> {
    words(&[offset, symbol << 32 | kind])
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

/// Type information of one map `m` with keys and values of 8 bytes (an array's keys have 4).
fn btf(kind: u32, entries: u32) -> Vec<u8> {
    let strings = b"\0m\0type\0max_entries\0key\0value\0";
    let at = |name: &str| {
        let name = format!("\0{name}\0");
        strings.windows(name.len()).position(|w| w == name.as_bytes()).unwrap() as u32 + 1
    };
    let info = |kind: u32, count: u32| kind << 24 | count;
    let key = if kind == 2 { 3 } else { 2 };
    #[rustfmt::skip]
    let table: Vec<u32> = [
        &[0, info(1, 0), 8, 64][..],               // 1: an integer of 8 bytes
        &[0, info(2, 0), 1],                       // 2: pointer to 1
        &[0, info(2, 0), 4],                       // 3: pointer to 4
        &[0, info(1, 0), 4, 32],                   // 4: an integer of 4 bytes
        &[0, info(3, 0), 0, 4, 4, kind],           // 5: array of `kind`
        &[0, info(2, 0), 5],                       // 6
        &[0, info(3, 0), 0, 4, 4, entries],        // 7
        &[0, info(2, 0), 7],                       // 8
        &[0, info(4, 4), 32,                       // 9: the structure
          at("type"), 6, 0, at("max_entries"), 8, 64, at("key"), key, 128, at("value"), 2, 192],
        &[at("m"), info(14, 0), 9, 1],             // 10: the variable
    ]
    .concat();
    type_information(&table, strings)
}

/// The section `.BTF` of a table of types, in words, and of strings.
pub(crate) fn type_information(table: &[u32], strings: &[u8]) -> Vec<u8> {
    let mut bytes = 0xeb9fu16.to_le_bytes().to_vec();
    bytes.extend([1, 0]);
    let table_bytes = table.len() as u32 * 4;
    for word in [24, 0, table_bytes, table_bytes, strings.len() as u32] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(table.iter().flat_map(|w| w.to_le_bytes()));
    bytes.extend(strings);
    bytes
}

/// A small generator of numbers, for tests that draw.
pub(crate) struct Draw(pub u64);

impl Draw {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}
