//! Object files: from the compiler's sections to programs, maps and data.
//!
//! | section | becomes |
//! |---|---|
//! | `.struct_ops…` | tables of programs ([`ops`]), each a function of a section `struct_ops/…` |
//! | `memcg/…` | a program: its one global function, then the functions of `.text` that it calls |
//! | `.maps` | maps, one for each symbol, described by `.BTF` ([`btf`](crate::btf)) |
//! | `.data…`, `.bss…`, `.rodata…` | global data; constant if the section is |
//! | `license` | a string for the operator |
//!
//! Instructions refer to all these by relocations. A 64-bit constant becomes a map's
//! name or an address in global data, a call a distance. After that an instruction means the same
//! at any place.
//!
//! **Cost.** An object is what a stranger gives, and its parts may refer to each other as often as
//! there is room for references. So no part is read again for each reference of another: there are
//! few sections, whose names are read once; a hook has one program, and an instruction one
//! relocation; and names are compared, not read, since one may be as long as the object.

use crate::btf::Btf;
use crate::error::{LoadFault, MapFault, Refusal};
use crate::helpers::Helper;
use crate::hook::Hook;
use crate::isa::{CALL_HELPER, CALL_LOCAL, Insn, SLOT};
use crate::limits::{
    DATA_BYTES_MAX, DATA_SECTIONS_MAX, INSTRUCTIONS_MAX, MAP_BYTES_MAX, MAPS_MAX, OBJECT_BYTES_MAX,
    SECTIONS_MAX,
};
use crate::map::MapDef;
use crate::memory::{Data, data_address, map_handle};
use crate::ops::{self, Call};
use crate::types::Constant;
use object::elf::{R_BPF_64_32, R_BPF_64_64};
use object::read::elf::ElfFile64;
use object::{
    LittleEndian, Object as _, ObjectSection as _, ObjectSymbol as _, RelocationFlags,
    RelocationTarget, SectionKind, SymbolIndex, SymbolKind,
};
use std::cell::OnceCell;
use std::collections::BTreeMap;

const MACHINE_BPF: u16 = 247;
const RELOCATABLE: u16 = 1;

type Elf<'a> = ElfFile64<'a, LittleEndian>;
type Section<'a, 'f> = object::read::elf::ElfSection64<'a, 'f, LittleEndian>;
type Found<'a, 'f> = object::read::elf::ElfSymbol64<'a, 'f, LittleEndian>;

/// A program as the object has it: linked, not verified.
pub(crate) struct Linked {
    pub hook: Hook,
    pub call: Call,
    /// Its section, for messages.
    pub section: String,
    pub code: Vec<Insn>,
    /// Slots of the program's own section; those of `.text` follow.
    pub own: usize,
    pub entry: usize,
    pub constants: BTreeMap<usize, Constant>,
}

/// What is in an object.
pub(crate) struct Object {
    pub programs: Vec<Linked>,
    pub maps: Vec<MapDef>,
    pub data: Vec<Data>,
    pub license: Option<String>,
}

impl Object {
    /// Reads an object file. Never panics, whatever the bytes are.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, LoadFault> {
        header(bytes)?;
        let elf = Elf::parse(bytes).map_err(not_elf)?;
        let mut linker = Linker {
            elf: &elf,
            sections: sections(&elf)?,
            btf: OnceCell::new(),
            maps: Vec::new(),
            map_at: BTreeMap::new(),
            data: Vec::new(),
            data_at: BTreeMap::new(),
        };
        linker.find_data()?;
        linker.find_maps()?;
        let mut programs = Vec::new();
        linker.find_programs(&mut programs)?;
        linker.find_operations(&mut programs)?;
        if programs.is_empty() {
            return Err(LoadFault::NoPrograms);
        }
        let license = match linker.section("license") {
            Some(section) => {
                let text = String::from_utf8_lossy(section.data()?);
                Some(text.trim_end_matches('\0').to_owned())
            }
            None => None,
        };
        Ok(Self { programs, maps: linker.maps, data: linker.data, license })
    }
}

fn not_elf(why: object::Error) -> LoadFault {
    LoadFault::NotElf { why: why.to_string() }
}

/// The first bytes, for errors that say more than that it is no ELF file.
fn header(bytes: &[u8]) -> Result<(), LoadFault> {
    if bytes.len() > OBJECT_BYTES_MAX {
        return Err(LoadFault::TooLarge { bytes: bytes.len() });
    }
    if bytes.len() < 64 || !bytes.starts_with(b"\x7fELF") {
        return Err(LoadFault::NotElf { why: "it does not begin with an ELF header".to_owned() });
    }
    // 64 bits, little-endian.
    if bytes[4] != 2 || bytes[5] != 1 {
        return Err(LoadFault::Kind);
    }
    let half = |at| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    if half(18) != MACHINE_BPF {
        return Err(LoadFault::Machine { machine: half(18) });
    }
    if half(16) != RELOCATABLE { Err(LoadFault::Kind) } else { Ok(()) }
}

/// A section, and its name.
struct Named<'a, 'f> {
    name: &'a str,
    section: Section<'a, 'f>,
}

impl<'a, 'f> Named<'a, 'f> {
    fn new(section: Section<'a, 'f>) -> Result<Self, LoadFault> {
        Ok(Self { name: section.name().map_err(not_elf)?, section })
    }

    fn data(&self) -> Result<&'a [u8], LoadFault> {
        self.section.data().map_err(not_elf)
    }

    fn index(&self) -> usize {
        self.section.index().0
    }
}

/// All sections, in their order.
fn sections<'a, 'f>(elf: &'f Elf<'a>) -> Result<Vec<Named<'a, 'f>>, LoadFault> {
    let sections = elf.sections().count();
    if sections > SECTIONS_MAX {
        return Err(LoadFault::Sections { sections });
    }
    elf.sections().map(Named::new).collect()
}

struct Linker<'a, 'f> {
    elf: &'f Elf<'a>,
    sections: Vec<Named<'a, 'f>>,
    /// Read when it is first needed.
    btf: OnceCell<Result<Btf<'a>, LoadFault>>,
    maps: Vec<MapDef>,
    /// By section and offset.
    map_at: BTreeMap<(usize, u64), usize>,
    data: Vec<Data>,
    /// By section.
    data_at: BTreeMap<usize, usize>,
}

impl<'a, 'f> Linker<'a, 'f> {
    /// The first section of a name.
    fn section(&self, name: &str) -> Option<&Named<'a, 'f>> {
        self.sections.iter().find(|section| section.name == name)
    }

    /// The type information, if there is some.
    fn btf(&self) -> Result<Option<&Btf<'a>>, LoadFault> {
        let Some(section) = self.section(".BTF") else { return Ok(None) };
        let read = self.btf.get_or_init(|| Btf::parse(section.data()?));
        read.as_ref().map(Some).map_err(Clone::clone)
    }

    /// The type information, which is needed for something.
    fn btf_for(&self, what: &str) -> Result<&Btf<'a>, LoadFault> {
        let missing =
            || LoadFault::TypeInformation { why: format!("is missing, and there {what}") };
        self.btf()?.ok_or_else(missing)
    }

    /// Global data.
    fn find_data(&mut self) -> Result<(), LoadFault> {
        let mut total = 0u64;
        for Named { name, section } in &self.sections {
            let name = *name;
            let has = |prefix: &str| {
                name.strip_prefix(prefix)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            };
            if !(has(".data") || has(".bss") || has(".rodata")) {
                continue;
            }
            total = total.saturating_add(section.size());
            if total > DATA_BYTES_MAX {
                return Err(LoadFault::Data { bytes: total });
            }
            if section.relocations().next().is_some() {
                let why =
                    "addresses in global data are not offered; use an index instead".to_owned();
                return Err(LoadFault::Section { section: name.to_owned(), why });
            }
            let bytes = if section.kind() == SectionKind::UninitializedData {
                vec![0; section.size() as usize]
            } else {
                section.data().map_err(not_elf)?.to_vec()
            };
            if self.data.len() == DATA_SECTIONS_MAX {
                let why =
                    format!("there are more than {DATA_SECTIONS_MAX} sections of global data");
                return Err(LoadFault::Section { section: name.to_owned(), why });
            }
            self.data_at.insert(section.index().0, self.data.len());
            self.data.push(Data { name: name.to_owned(), bytes, writable: !has(".rodata") });
        }
        Ok(())
    }

    /// Maps, in the order of their symbols.
    fn find_maps(&mut self) -> Result<(), LoadFault> {
        let Some(section) = self.section(".maps") else { return Ok(()) };
        let (index, mut bytes) = (section.section.index(), 0u64);
        for symbol in self.elf.symbols() {
            if symbol.section_index() != Some(index) || symbol.kind() == SymbolKind::Section {
                continue;
            }
            let def = self.btf_for("are maps")?.map(symbol.name().map_err(not_elf)?)?;
            let fail = |why| LoadFault::Map { map: def.name.clone(), why };
            bytes += def.check().map_err(fail)?;
            if bytes > MAP_BYTES_MAX || self.maps.len() == MAPS_MAX {
                return Err(fail(MapFault::TooMuch));
            }
            self.map_at.insert((index.0, symbol.address()), self.maps.len());
            self.maps.push(def);
        }
        Ok(())
    }

    /// The programs of sections that are hooks'.
    fn find_programs(&self, programs: &mut Vec<Linked>) -> Result<(), LoadFault> {
        for section in self.sections.iter().filter(|s| s.name.starts_with("memcg/")) {
            let hook = Hook::of_section(section.name)
                .ok_or_else(|| LoadFault::UnknownHook { section: section.name.to_owned() })?;
            self.add(programs, hook, (Call::Snapshot, section, self.entry(section)?))?;
        }
        Ok(())
    }

    /// The programs that tables of operations refer to.
    fn find_operations(&self, programs: &mut Vec<Linked>) -> Result<(), LoadFault> {
        for table in self.sections.iter().filter(|s| ops::is_table(s.name)) {
            let name = table.name;
            let btf = self.btf_for(&format!("is {name}"))?;
            for (offset, relocation) in table.section.relocations() {
                let broken = |why: &str| LoadFault::Section {
                    section: name.to_owned(),
                    why: format!("{why}, at byte {offset}"),
                };
                let RelocationTarget::Symbol(target) = relocation.target() else {
                    return Err(broken("a relocation without a symbol"));
                };
                let variable = self.elf.symbols().find(|s| {
                    s.section_index() == Some(table.section.index())
                        && s.kind() != SymbolKind::Section
                        && offset.checked_sub(s.address()).is_some_and(|at| at < s.size())
                });
                let variable = variable.ok_or_else(|| broken("there is no variable"))?;
                let (hook, call) = ops::member(
                    btf,
                    variable.name().map_err(not_elf)?,
                    offset - variable.address(),
                )?;
                let symbol = self.symbol(target, &broken)?;
                // What the compiler adds to a section's symbol stands in the table.
                let at = usize::try_from(offset).unwrap_or(usize::MAX);
                let added = table.data()?.get(at..).and_then(|rest| rest.first_chunk());
                let added = added.ok_or_else(|| broken("the table ends"))?;
                let entry = symbol.address().wrapping_add(u64::from_le_bytes(*added));
                let index = symbol.section_index().map(|index| index.0);
                let section = self.sections.iter().find(|s| Some(s.index()) == index);
                let section = section.ok_or_else(|| broken("the program has no section"))?;
                if section.name.starts_with("struct_ops.s") {
                    let why = "no hook may sleep; put the program in struct_ops/…";
                    return Err(LoadFault::NotServed { name: section.name.to_owned(), why });
                }
                if section.name != "struct_ops" && !section.name.starts_with("struct_ops/") {
                    return Err(broken("the program is not in a section struct_ops/…"));
                }
                self.add(programs, hook, (call, section, entry))?;
            }
        }
        Ok(())
    }

    /// Links a program, if it is the first of its hook.
    fn add(
        &self,
        programs: &mut Vec<Linked>,
        hook: Hook,
        from: (Call, &Named<'a, 'f>, u64),
    ) -> Result<(), LoadFault> {
        if let Some(first) = programs.iter().find(|program| program.hook == hook) {
            let (first, second) = (first.section.clone(), from.1.name.to_owned());
            return Err(LoadFault::Twice { first, second });
        }
        programs.push(self.program(hook, from)?);
        Ok(())
    }

    /// Where the only global function of a section begins, in bytes.
    fn entry(&self, section: &Named<'a, 'f>) -> Result<u64, LoadFault> {
        let mut functions = self.elf.symbols().filter(|s| {
            s.section_index() == Some(section.section.index())
                && s.kind() == SymbolKind::Text
                && s.is_global()
        });
        match (functions.next(), functions.count()) {
            (Some(only), 0) => Ok(only.address()),
            (first, more) => Err(LoadFault::Entry {
                section: section.name.to_owned(),
                found: usize::from(first.is_some()) + more,
            }),
        }
    }

    /// The program that begins at a byte of a section, and the functions of `.text`, linked.
    fn program(
        &self,
        hook: Hook,
        (call, section, entry): (Call, &Named<'a, 'f>, u64),
    ) -> Result<Linked, LoadFault> {
        self.refuse_kernel_fields(section.name)?;
        let mut code = instructions(section)?;
        let own = code.len();
        let entry = usize::try_from(entry / SLOT as u64).unwrap_or(usize::MAX);
        if entry >= own {
            return Err(LoadFault::Refused {
                section: section.name.to_owned(),
                at: 0,
                why: Refusal::Empty,
            });
        }
        let mut constants = BTreeMap::new();
        let text = self.section(".text").filter(|text| text.section.size() > 0);
        let mut bases = BTreeMap::from([(section.index(), (0, own))]);
        if let Some(text) = text {
            let mut functions = instructions(text)?;
            bases.insert(text.index(), (own, functions.len()));
            code.append(&mut functions);
        }
        let calls_text = self.relocate(section, 0, &bases, &mut code, &mut constants)?;
        match text {
            Some(text) if calls_text => {
                self.refuse_kernel_fields(".text")?;
                self.relocate(text, own, &bases, &mut code, &mut constants)?;
            }
            _ => code.truncate(own),
        }
        let section = section.name.to_owned();
        Ok(Linked { hook, call, section, code, own, entry, constants })
    }

    /// Refuses a section that reads fields of kernel structures: it would read something else here.
    fn refuse_kernel_fields(&self, name: &str) -> Result<(), LoadFault> {
        let (Some(btf), Some(ext)) = (self.btf()?, self.section(".BTF.ext")) else {
            return Ok(());
        };
        match btf.kernel_field(ext.data()?, name) {
            None => Ok(()),
            Some(at) => {
                Err(LoadFault::Refused { section: name.to_owned(), at, why: Refusal::KernelField })
            }
        }
    }

    /// Applies the relocations of one section, whose slots begin at `base`. Returns whether one
    /// goes to another section's code.
    fn relocate(
        &self,
        section: &Named<'a, 'f>,
        base: usize,
        bases: &BTreeMap<usize, (usize, usize)>,
        code: &mut [Insn],
        constants: &mut BTreeMap<usize, Constant>,
    ) -> Result<bool, LoadFault> {
        let slots = bases[&section.index()].1;
        let mut done = vec![false; slots];
        let mut leaves = false;
        for (offset, relocation) in section.section.relocations() {
            let at = usize::try_from(offset / SLOT as u64).unwrap_or(usize::MAX);
            let fail = |why: &str| LoadFault::Relocation {
                section: section.name.to_owned(),
                at,
                why: why.to_owned(),
            };
            let RelocationFlags::Elf { r_type } = relocation.flags() else {
                return Err(fail("the relocation is of no kind that BPF has"));
            };
            let RelocationTarget::Symbol(symbol) = relocation.target() else {
                return Err(fail("the relocation has no symbol"));
            };
            if offset % SLOT as u64 != 0 || at >= slots {
                return Err(fail("the relocation is not at an instruction"));
            }
            if std::mem::replace(&mut done[at], true) {
                return Err(fail("there are two relocations of one instruction"));
            }
            let slot = base + at;
            let insn = code[slot];
            if r_type == R_BPF_64_32 && insn.is_local_call() && self.is_undefined(symbol)? {
                let helper = self.kernel_function(symbol)?;
                code[slot] = Insn { src: CALL_HELPER, imm: helper as i32, ..insn };
                continue;
            }
            let symbol = self.symbol(symbol, &fail)?;
            if r_type == R_BPF_64_64 && insn.is_wide() {
                let constant = self.constant(&symbol, insn, &fail)?;
                let value = match constant {
                    Constant::Map(map) => map_handle(map),
                    Constant::Data(section, offset) => data_address(section, offset),
                };
                let Some(second) = code.get_mut(slot + 1) else {
                    return Err(fail("the second half of a 64-bit constant is missing"));
                };
                second.imm = (value >> 32) as i32;
                code[slot] = Insn { src: 0, imm: value as i32, ..insn };
                constants.insert(slot, constant);
            } else if r_type == R_BPF_64_32 && insn.is_local_call() {
                let target_of = symbol.section_index().and_then(|index| bases.get(&index.0));
                let Some(&(start, slots)) = target_of else {
                    return Err(fail(&format!(
                        "the function `{}` is neither in this section nor in .text",
                        name_of(&symbol)
                    )));
                };
                // A reference to a section has the distance from its beginning, less one, in the
                // instruction.
                let target = (symbol.address() / SLOT as u64) as i64 + i64::from(insn.imm) + 1;
                if target < 0 || target >= slots as i64 {
                    return Err(fail("the call goes outside of its function's section"));
                }
                leaves |= start != base;
                let distance = start as i64 + target - slot as i64 - 1;
                let imm = i32::try_from(distance).map_err(|_| fail("the call goes too far"))?;
                code[slot] = Insn { src: CALL_LOCAL, imm, ..insn };
            } else {
                return Err(fail(&format!(
                    "a relocation of type {r_type} for `{}` is not offered there",
                    name_of(&symbol)
                )));
            }
        }
        Ok(leaves)
    }

    /// A symbol that the object defines.
    fn symbol(
        &self,
        index: SymbolIndex,
        fail: &dyn Fn(&str) -> LoadFault,
    ) -> Result<Found<'a, 'f>, LoadFault> {
        let found = self.elf.symbol_by_index(index).map_err(not_elf)?;
        if found.is_undefined() {
            return Err(fail(&format!(
                "`{}` is not defined in the object; there is no kernel to define it",
                name_of(&found)
            )));
        }
        Ok(found)
    }

    fn is_undefined(&self, index: SymbolIndex) -> Result<bool, LoadFault> {
        Ok(self.elf.symbol_by_index(index).map_err(not_elf)?.is_undefined())
    }

    /// The helper that stands for a kernel function.
    fn kernel_function(&self, index: SymbolIndex) -> Result<Helper, LoadFault> {
        let symbol = self.elf.symbol_by_index(index).map_err(not_elf)?;
        let name = symbol.name().unwrap_or_default();
        Helper::of_function(name).ok_or_else(|| LoadFault::NotServed {
            name: name.to_owned(),
            why: "it is not defined in the object, and of the kernel's functions there is only \
                  bpf_mem_cgroup_usage here; lowtide_request_reclaim asks for reclaim",
        })
    }

    /// What a 64-bit constant refers to.
    fn constant(
        &self,
        symbol: &Found<'a, 'f>,
        insn: Insn,
        fail: &dyn Fn(&str) -> LoadFault,
    ) -> Result<Constant, LoadFault> {
        let section = symbol.section_index().map_or(usize::MAX, |index| index.0);
        // What the compiler adds to the symbol stands in the first slot.
        let offset = symbol.address().wrapping_add(u64::from(insn.imm as u32));
        if let Some(&data) = self.data_at.get(&section) {
            return match u32::try_from(offset) {
                Ok(offset) if u64::from(offset) <= self.data[data].bytes.len() as u64 => {
                    Ok(Constant::Data(data, offset))
                }
                _ => Err(fail(&format!("`{}` lies outside of its section", name_of(symbol)))),
            };
        }
        match self.map_at.get(&(section, offset)) {
            Some(&map) => Ok(Constant::Map(map)),
            None => Err(fail(&format!("`{}` is neither a map nor global data", name_of(symbol)))),
        }
    }
}

/// The name of a symbol, for messages.
fn name_of<'a>(symbol: &Found<'a, '_>) -> &'a str {
    symbol.name().unwrap_or_default()
}

/// The slots of a section.
fn instructions(section: &Named<'_, '_>) -> Result<Vec<Insn>, LoadFault> {
    let (bytes, name) = (section.data()?, || section.name.to_owned());
    if bytes.len() % SLOT != 0 {
        let why = format!("{} bytes are no whole number of instructions", bytes.len());
        return Err(LoadFault::Section { section: name(), why });
    }
    let found = bytes.len() / SLOT;
    if found > INSTRUCTIONS_MAX {
        return Err(LoadFault::Refused { section: name(), at: 0, why: Refusal::TooLong { found } });
    }
    Ok(bytes.as_chunks().0.iter().map(|&slot| Insn::decode(slot)).collect())
}
