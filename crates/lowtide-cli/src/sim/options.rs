//! Single options: what each may be, and where it means something. What cannot be meant is refused
//! with the option's name and something to write instead, before any work is done.

use lowtide::{Policy, Size};
use lowtide_core::limits::MIN_BUDGET;
use lowtide_sim::spec::MachineSpec;
use lowtide_sim::{PlainConfig, PlainSwap};

use super::args::{SimArgs, SwapDevice, Switch, Target};
use super::error::SimError;

/// Bytes of a page of the plain machine, unless a trace says otherwise.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// What a run is about, as far as it decides which options mean something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The database, which always has a machine.
    Database,
    /// Tenants, who always have a machine.
    Tenants,
    /// A thrash, which always has a machine and a limit of its own.
    HighThrash,
    /// Tenants and a scanner, on a machine and in a budget of their own.
    Noisy,
    /// Readers beside threads that allocate, which always have one, too.
    Mix,
    /// A writer to a slow device, on a machine of its own.
    DdOom,
    /// A writer of a whole file, which always has a machine.
    Fill,
    /// Readers beside checkpoints, who always have one, too.
    Mixed,
    /// Single pages.
    Pages,
    /// A trace.
    Trace,
    /// A swarm, which chooses everything itself.
    Swarm,
}

impl Kind {
    /// What was asked for.
    pub(crate) const fn of(args: &SimArgs) -> Self {
        match args.workload {
            Some(Target::Database(_)) => Self::Database,
            Some(Target::Tenants) => Self::Tenants,
            Some(Target::HighThrash) => Self::HighThrash,
            Some(Target::NoisyNeighbour) => Self::Noisy,
            Some(Target::Mix) => Self::Mix,
            Some(Target::DdOom) => Self::DdOom,
            Some(Target::Fill) => Self::Fill,
            Some(Target::Mixed) => Self::Mixed,
            Some(Target::Pages(_)) => Self::Pages,
            None if args.trace.is_some() => Self::Trace,
            None => Self::Swarm,
        }
    }
}

/// Refuses options that mean nothing for what is simulated, so that nobody believes they had an
/// effect.
///
/// # Errors
/// [`SimError::Usage`].
pub(crate) fn refuse_misplaced(args: &SimArgs) -> Result<(), SimError> {
    let kind = Kind::of(args);
    let pages = kind == Kind::Pages;
    let tenants = kind == Kind::Tenants;
    let mix = kind == Kind::Mix;
    let thrash = kind == Kind::HighThrash;
    let noisy = kind == Kind::Noisy;
    let dd = kind == Kind::DdOom;
    let mixed = kind == Kind::Mixed;
    let writer = dd || kind == Kind::Fill;
    let scales = mix || tenants || kind == Kind::Database;
    let plain = args.machine.is_none() && !(scales || thrash || noisy || writer || mixed);
    let swarm = kind == Kind::Swarm;
    let plain_trace = plain && kind == Kind::Trace;
    let rules = [
        (args.swap.is_some() && !plain_trace, "--swap", "--trace without --machine"),
        (
            swarm && args.machine.is_some(),
            "--machine",
            "anything but --swarm, whose plans have machines of their own",
        ),
        (
            swarm && args.policy.is_some(),
            "--policy",
            "anything but --swarm, whose plans have policies of their own",
        ),
        (
            swarm && args.max.is_some(),
            "--max",
            "anything but --swarm, whose plans have budgets of their own",
        ),
        (swarm && args.ops.is_some(), "--ops", "anything but --swarm"),
        (swarm && args.threads.is_some(), "--threads", "anything but --swarm"),
        (args.format.is_some() && kind != Kind::Trace, "--format", "--trace"),
        (args.page.is_some() && kind != Kind::Trace, "--page", "--trace"),
        (
            args.threads.is_some() && kind == Kind::Trace,
            "--threads",
            "workloads; a trace has its own threads",
        ),
        (
            args.threads.is_some() && plain,
            "--threads",
            "simulated machines; name one with --machine",
        ),
        (
            args.ops.is_some() && kind == Kind::Trace,
            "--ops",
            "workloads; a trace is played to its end",
        ),
        (
            args.scale.is_some() && !scales,
            "--scale",
            "ycsb, tenants and file-anon-mix; use --size and --ops",
        ),
        (
            args.seconds.is_some() && !(tenants || thrash || noisy || mixed),
            "--seconds",
            "tenants, mixed, high-thrash and noisy-neighbour; use --ops",
        ),
        (
            (tenants || thrash || noisy || mixed) && args.ops.is_some(),
            "--ops",
            "other workloads; use --seconds for tenants, mixed and high-thrash",
        ),
        (
            thrash && args.max.is_some(),
            "--max",
            "other workloads; high-thrash has a memory.high of 150M and no budget",
        ),
        (
            noisy && args.max.is_some(),
            "--max",
            "other workloads; the tenants and the scanner share 176M",
        ),
        (
            noisy && args.threads.is_some(),
            "--threads",
            "other workloads; there are 4 tenants and a scanner",
        ),
        (
            (thrash || noisy || writer || mixed) && args.timing.is_some(),
            "--timing",
            "other workloads",
        ),
        (args.delay.is_some() && !dd, "--delay", "dd-oom"),
        (writer && args.ops.is_some(), "--ops", "other workloads; use --size for dd-oom and fill"),
        (
            writer && args.threads.is_some(),
            "--threads",
            "other workloads; one program writes in dd-oom and fill",
        ),
        (args.checkpoint.is_some() && !mixed, "--checkpoint", "mixed"),
        (args.high_policy.is_some() && !thrash, "--high-policy", "high-thrash"),
        (!args.bpf.is_empty() && !thrash, "--bpf", "high-thrash"),
        (args.no_readahead && !thrash, "--no-readahead", "high-thrash"),
        (
            tenants && args.threads.is_some(),
            "--threads",
            "other workloads; there are always 64 workers of tenants",
        ),
        (
            args.size.is_some() && !(pages || writer || mixed),
            "--size",
            "zipf, uniform, loop, dd-oom, fill and mixed; use --scale for the others",
        ),
        (args.rounds.is_some() && !mix, "--rounds", "file-anon-mix"),
        (args.ops.is_some() && mix, "--ops", "other workloads; use --rounds"),
        (
            args.threads.is_some() && mix,
            "--threads",
            "other workloads; file-anon-mix has 96 of each kind",
        ),
        (args.access.is_some() && !pages, "--access", "zipf, uniform and loop"),
        (args.about_curves() && kind != Kind::Trace, "a miss-ratio curve", "--trace"),
        (
            args.about_curves() && args.machine.is_some(),
            "--machine",
            "anything but --mrc and --advise",
        ),
        (
            args.about_curves() && args.max.is_some(),
            "--max",
            "anything but --mrc and --advise, which try many",
        ),
        (
            args.about_curves() && !args.wants_curves(),
            "an option about curves",
            "--mrc and --advise",
        ),
        (args.write.is_some() && !(pages || mixed), "--write", "zipf, uniform, loop and mixed"),
    ];
    for (misplaced, option, place) in rules {
        if misplaced {
            return Err(SimError::usage(
                format!("{option} does not apply here"),
                format!("it is for {place}"),
            ));
        }
    }
    Ok(())
}

/// The plain machine of a policy with a budget, on pages of `page` bytes.
pub(crate) fn plain_config(args: &SimArgs, policy: Policy, pages: u64, page: u64) -> PlainConfig {
    // Never more than half full, which would change what swap is for.
    const PLENTY: u64 = 1 << 31;
    let slots = args.swap.map_or(PLENTY, |swap| (swap.bytes() / page).min(PLENTY));
    let swap = match args.swap_device {
        SwapDevice::Disk => PlainSwap::disk(slots),
        SwapDevice::Zram => PlainSwap::zram(slots),
    };
    PlainConfig {
        swap: (slots > 0).then_some(swap),
        swappiness: args.swappiness,
        page_bytes: page,
        ..PlainConfig::new(policy, pages)
    }
}

/// The machine asked for.
///
/// # Errors
/// [`SimError::Machine`].
pub(crate) fn machine(args: &SimArgs) -> Result<Option<MachineSpec>, SimError> {
    Ok(args.machine.as_deref().map(MachineSpec::load).transpose()?)
}

/// The machine asked for, or the one that a workload is about.
///
/// # Errors
/// [`SimError::Machine`].
pub(crate) fn machine_or(args: &SimArgs, default: &str) -> Result<MachineSpec, SimError> {
    Ok(MachineSpec::load(args.machine.as_deref().unwrap_or(default))?)
}

/// Whether rows say how fast the simulation was.
pub(crate) fn timing(args: &SimArgs, default: bool) -> bool {
    args.timing.map_or(default, |switch| switch == Switch::On)
}

/// The size of the experiment as a part of the published one.
///
/// # Errors
/// [`SimError::Usage`].
pub(crate) fn scale(args: &SimArgs) -> Result<f64, SimError> {
    match args.scale {
        Some(scale) if !(scale.is_finite() && (0.001..=100.0).contains(&scale)) => {
            Err(SimError::usage(
                format!("--scale {scale} is not possible"),
                "give a number from 0.001 to 100, such as --scale 0.1",
            ))
        }
        scale => Ok(scale.unwrap_or(1.0)),
    }
}

/// The budget of the plain machine in pages of `page` bytes, if one was given.
///
/// # Errors
/// [`SimError::Usage`].
pub(crate) fn plain_budget(args: &SimArgs, page: u64) -> Result<Option<u64>, SimError> {
    let Some(max) = args.max else { return Ok(None) };
    if max.is_max() {
        return Err(SimError::usage(
            "without a machine there is no memory that --max max could be all of",
            "give a size such as --max 256M, or name a machine with --machine",
        ));
    }
    pages_of(max, page).map(Some)
}

/// The budget on a machine in bytes: what was given, else `default`; `None` is all of its memory.
///
/// # Errors
/// [`SimError::Usage`] for what is no budget, or more than the machine has.
pub(crate) fn machine_budget(
    args: &SimArgs,
    machine: &MachineSpec,
    default: Option<u64>,
) -> Result<Option<u64>, SimError> {
    let max = match args.max {
        Some(max) if max.is_max() => None,
        Some(max) => Some(pages_of(max, machine.page)? * machine.page),
        None => default,
    };
    let memory = machine.pages() * machine.page;
    match max {
        Some(max) if max > memory => Err(SimError::usage(
            format!(
                "a budget of {} is more than machine `{}` has: {} of its {} are left for programs \
                 and files",
                Size::new(max),
                machine.name,
                floor(memory),
                Size::new(machine.memory)
            ),
            "lower --max, write --max max for all of its memory, or choose a larger --machine",
        )),
        max => Ok(max),
    }
}

/// The budget in bytes of a group that a workload makes below the machine's root: what was given,
/// else `default`.
///
/// # Errors
/// [`SimError::Usage`] for what is no budget, or more than the machine has.
pub(crate) fn group_budget(
    args: &SimArgs,
    machine: &MachineSpec,
    default: u64,
) -> Result<u64, SimError> {
    machine_budget(args, machine, Some(default))?.ok_or_else(|| {
        SimError::usage(
            "--max max is no budget that this workload could fill",
            format!("give the size of its group, such as --max {}", Size::new(default)),
        )
    })
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
            format!("--max {max} is more than can be simulated"),
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
pub(crate) fn data_pages(args: &SimArgs, default: u64, page: u64) -> Result<u64, SimError> {
    let size = args.size.unwrap_or(Size::new(default));
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

/// Memory for people: to the mebibyte, above a gibibyte to an eighth of one.
pub(crate) fn floor(bytes: u64) -> Size {
    let grain = match bytes >> 20 {
        0 => 1,
        1..1024 => 1 << 20,
        _ => 1 << 27,
    };
    Size::new(bytes - bytes % grain)
}
