//! Valid budgets and data sizes. An error names the option and suggests a valid value.

use lowtide::Size;
use lowtide_core::limits::MIN_BUDGET;
use lowtide_sim::spec::MachineSpec;

use crate::sim::error::SimError;

/// The budget of the plain machine in pages of `page` bytes, if one was given.
///
/// # Errors
/// [`SimError::Usage`].
pub fn plain_budget(max: Option<Size>, page: u64) -> Result<Option<u64>, SimError> {
    let Some(max) = max else { return Ok(None) };
    if max.is_max() {
        return Err(SimError::usage(
            "--max max means all memory of a machine, and no machine was named",
            "give a size such as --max 256M, or name a machine with --machine",
        ));
    }
    pages_of(max, page).map(Some)
}

/// The budget on a machine in bytes: what was given, else `default`; `None` is all of its memory.
///
/// # Errors
/// [`SimError::Usage`] for what is no budget, or more than the machine has.
pub fn machine_budget(
    max: Option<Size>,
    machine: &MachineSpec,
    default: Option<u64>,
) -> Result<Option<u64>, SimError> {
    let max = match max {
        Some(max) if max.is_max() => None,
        Some(max) => Some(pages_of(max, machine.page)? * machine.page),
        None => default,
    };
    let memory = machine.pages() * machine.page;
    match max {
        Some(max) if max > memory => Err(SimError::usage(
            format!(
                "a budget of {} exceeds the memory of machine `{}`: {} of its {} is available to \
                 programs and files",
                Size::new(max),
                machine.name,
                floor(memory),
                Size::new(machine.memory)
            ),
            "lower --max, use --max max for all of its memory, or choose a larger --machine",
        )),
        max => Ok(max),
    }
}

/// Pages of a budget.
fn pages_of(max: Size, page: u64) -> Result<u64, SimError> {
    let pages = max.bytes() / page;
    if max.bytes() == 0 {
        return Err(SimError::usage("--max 0 is not a budget", "give a size such as --max 256M"));
    }
    if pages > u64::from(u32::MAX) {
        let most = Size::new((1 << 32) * page);
        return Err(SimError::usage(
            format!("--max {max} is too large to simulate"),
            format!("give less than {most}, such as --max 256M"),
        ));
    }
    if pages < MIN_BUDGET {
        return Err(SimError::usage(
            format!(
                "--max {max} is too small: that is {pages} pages of {}, and reclaim takes \
                 {MIN_BUDGET} at a time",
                Size::new(page)
            ),
            format!("give at least --max {}", Size::new(MIN_BUDGET * page)),
        ));
    }
    Ok(pages)
}

/// The data in pages, at least one.
///
/// # Errors
/// [`SimError::Usage`].
pub fn data_pages(size: Size, page: u64) -> Result<u64, SimError> {
    let pages = size.bytes() / page;
    if size.is_max() || pages == 0 || pages > lowtide_workload::SPACE_PAGES_MAX {
        return Err(SimError::usage(
            format!("--size {size} is not possible"),
            format!(
                "give a size from one page ({}) to {}, such as --size 1G",
                Size::new(page),
                Size::new(lowtide_workload::SPACE_PAGES_MAX * page)
            ),
        ));
    }
    Ok(pages)
}

/// Memory, rounded down for display: to a mebibyte, or above a gibibyte to an eighth of one.
pub fn floor(bytes: u64) -> Size {
    let grain = match bytes >> 20 {
        0 => 1,
        1..1024 => 1 << 20,
        _ => 1 << 27,
    };
    Size::new(bytes - bytes % grain)
}
