//! The operations that a patch series proposes for the kernel, as another name for our hooks.
//!
//! The series (`docs/kernel/memcg.md` §15) attaches a structure of functions to a cgroup. Its
//! programs are written as for any `struct_ops`: functions in sections `struct_ops/…`, and a
//! variable in `.struct_ops` or `.struct_ops.link` whose members point to them. The members name
//! the hooks; what stands behind the slash of a section does not matter, as in the kernel. So the
//! table of an object is read from the variable's relocations, and the members' names from its
//! type.
//!
//! | member | our hook | arguments behind the group | answer |
//! |---|---|---|---|
//! | `memcg_charged` | `memcg/charged` | pages of the batch | ms to sleep at least |
//! | `get_high_delay_ms` (until v6) | `memcg/charged` | | ms to sleep at least |
//! | `below_low` | `memcg/below_low` | effective low, usage | true: protected |
//! | `below_min` | `memcg/below_min` | effective min, usage | true: protected |
//! | `handle_cgroup_online`, `…_offline` | `memcg/online`, `memcg/offline` | | |
//!
//! A program gets its arguments as an array of 64-bit numbers. The first is the group: a name that
//! only [helpers](crate::helpers) understand, since there is no kernel structure behind it. What
//! the series has besides is refused by name and with the reason ([`LoadFault::NotServed`]).

use crate::btf::Btf;
use crate::error::LoadFault;
use crate::hook::Hook;
use lowtide_core::hooks::LimitSnapshot;

/// The structure of the series.
const OPERATIONS: &str = "memcg_bpf_ops";

/// Arguments of an operation, the group included, that there can be.
pub(crate) const ARGUMENTS_MAX: usize = 3;

/// How a program is called, and what becomes of its answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    /// Ours: the snapshot is the context.
    Snapshot,
    /// An operation of the series: an array of this many arguments is the context.
    Operation {
        /// Numbers in the array.
        arguments: usize,
    },
}

/// Whether a section holds tables of operations.
pub(crate) fn is_table(section: &str) -> bool {
    matches!(section, ".struct_ops" | ".struct_ops.link")
}

/// The hook that a member of a variable is.
///
/// # Errors
/// [`LoadFault::NotServed`], or [`LoadFault::TypeInformation`].
pub(crate) fn member(
    btf: &Btf<'_>,
    variable: &str,
    offset: u64,
) -> Result<(Hook, Call), LoadFault> {
    let (operations, member) = btf.member(variable, offset)?;
    let refuse =
        |name: &str, why: &'static str| Err(LoadFault::NotServed { name: name.to_owned(), why });
    if operations != OPERATIONS {
        return refuse(operations, "only the operations `memcg_bpf_ops` are");
    }
    let (hook, arguments) = match member {
        "memcg_charged" => (Hook::Charged, 2),
        "get_high_delay_ms" => (Hook::Charged, 1),
        "below_low" => (Hook::BelowLow, 3),
        "below_min" => (Hook::BelowMin, 3),
        "handle_cgroup_online" => (Hook::Online, 1),
        "handle_cgroup_offline" => (Hook::Offline, 1),
        "memcg_uncharged" => {
            return refuse(
                member,
                "pages are given back one folio at a time where no program may run; read the usage \
                 in another hook",
            );
        }
        _ => return refuse(member, "no version of the proposal that is known here has it"),
    };
    Ok((hook, Call::Operation { arguments }))
}

/// The arguments of an operation behind the group. Those that it does not have are not read.
pub(crate) const fn arguments(hook: Hook, snapshot: &LimitSnapshot) -> [u64; ARGUMENTS_MAX - 1] {
    match hook {
        Hook::BelowLow => [snapshot.elow, snapshot.usage],
        Hook::BelowMin => [snapshot.emin, snapshot.usage],
        _ => [snapshot.nr_over_high, 0],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Refusal;
    use crate::isa::{CALL, DOUBLE, EXIT, Insn, JMP, LDX, MEM, STX, WORD};
    use crate::types::World;
    use crate::verify::verify;
    use std::collections::BTreeMap;

    const NONE: Insn = Insn { op: 0, dst: 0, src: 0, off: 0, imm: 0 };
    const RETURN: Insn = Insn { op: JMP | EXIT, ..NONE };

    fn load(width: u8, dst: u8, src: u8, off: i16) -> Insn {
        Insn { op: LDX | MEM | width, dst, src, off, ..NONE }
    }

    fn helper(number: i32) -> Insn {
        Insn { op: JMP | CALL, imm: number, ..NONE }
    }

    /// What is wrong with the program of an operation with two arguments.
    fn refusal(code: &[Insn], answers: bool) -> Option<Refusal> {
        let world = World {
            constants: &BTreeMap::new(),
            maps: &[],
            data: &[],
            call: Call::Operation { arguments: 2 },
            answers,
        };
        verify(code, 0, &world).err().map(|(_, why)| why)
    }

    #[test]
    fn an_operation_reads_its_arguments_and_no_others() {
        assert_eq!(refusal(&[load(DOUBLE, 0, 1, 8), RETURN], true), None);
        assert_eq!(
            refusal(&[load(DOUBLE, 0, 1, 16), RETURN], true),
            Some(Refusal::ContextBounds { offset: 16, bytes: 16 })
        );
        let write = Insn { op: STX | MEM | DOUBLE, dst: 1, src: 1, ..NONE };
        assert_eq!(refusal(&[write, RETURN], true), Some(Refusal::ContextWrite));
    }

    #[test]
    fn a_group_is_a_name_that_helpers_understand() {
        let group = load(DOUBLE, 1, 1, 0);
        assert_eq!(refusal(&[group, helper(4098), RETURN], true), None);
        assert_eq!(refusal(&[group, helper(4097), load(WORD, 0, 0, 0), RETURN], true), None);
        assert_eq!(
            refusal(&[group, load(DOUBLE, 0, 1, 0), RETURN], true),
            Some(Refusal::GroupAsMemory { register: 1 })
        );
        assert_eq!(
            refusal(&[load(DOUBLE, 1, 1, 8), helper(4098), RETURN], true),
            Some(Refusal::NotAGroup { number: 4098 }),
            "a number is no group"
        );
        assert_eq!(refusal(&[load(DOUBLE, 0, 1, 0), RETURN], true), Some(Refusal::AddressReturned));
    }

    #[test]
    fn only_a_hook_with_an_answer_has_to_return_one() {
        assert_eq!(refusal(&[RETURN], false), None);
        assert_eq!(refusal(&[RETURN], true), Some(Refusal::Uninitialised { register: 0 }));
    }
}
