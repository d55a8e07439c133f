//! The machines by name.
//!
//! Each figure has its source: a section of `docs/kernel/workloads.md` with that page's mark, or
//! the word *guess*. What is not written has the default of [`MachineSpec`]. All have the same
//! [`Costs`](crate::costs::Costs): the speed of their CPUs is known less well than the guesses
//! there allow for.

use crate::costs::Costs;

use super::device::{DeviceSpec, Preset};
use super::machine::{MachineSpec, SwapSpec};

/// Name and maker of every machine, in the order in which they are listed.
pub(super) const MACHINES: &[Preset<MachineSpec>] = &[
    ("xeon-96t", xeon_96t),
    ("x86-256c", x86_256c),
    ("laptop", laptop),
    ("phone", phone),
    ("hdd", hdd),
    ("ramdisk", ramdisk),
    ("thrash", thrash),
    ("delay-1s", delay_1s),
    ("emulated", emulated),
];

fn xeon_96t() -> MachineSpec {
    MachineSpec {
        // §2: about 120 of the 128 GiB are usable.
        kernel: 8 << 30,
        // Not published. Assumed, because the published difference between the arms needs it: at
        // 128K real kernels read 1.1 to 1.2 times as much before the series as without updates, at
        // 4M twice as much (`docs/design/fidelity.md`, the database). Disks that report an optimal
        // transfer of 2M begin there.
        readahead: 4 << 20,
        // §0.2 [S]: 48 cores, 96 threads, 128 GiB, NVMe. No swap: workloads that have it say so (§1
        // has none).
        ..MachineSpec::plain(
            "xeon-96t",
            "the published evaluation's server: 48 cores",
            96,
            128 << 30,
        )
    }
}

fn x86_256c() -> MachineSpec {
    MachineSpec {
        // Not published. Concluded from the published run that hardly ever missed: 9.1 locks are
        // given up in a round there. One that reads all of its 16M with windows of 2M has 9: a miss
        // at its first page, whose window has its mark at page 384, and a mark every 512 pages.
        // With windows of 128K it has 129, with 1M 17 (`docs/design/fault-path.md`).
        readahead: 2 << 20,
        // §0.2 [S]: 256 cores. Memory and disk are not stated: guesses, and without influence, as
        // the workload's files are holes in a group of 1.2 GiB (§9).
        ..MachineSpec::plain(
            "x86-256c",
            "the server of the fault-retry storm: 256 cores",
            256,
            512 << 30,
        )
    }
}

fn laptop() -> MachineSpec {
    // Guess: an ordinary one.
    MachineSpec::plain("laptop", "an ordinary laptop", 8, 16 << 30)
}

fn phone() -> MachineSpec {
    let memory = 6 << 30;
    MachineSpec {
        // Guess: firmware, graphics and modem keep a twelfth.
        kernel: memory / 12,
        // An arm64 processor sets young bits itself, and cheaply, so neighbours are mapped old.
        fault_around_young: false,
        // §8 [A].
        device: DeviceSpec::ufs(),
        // Guess: half the memory, which is usual; §8 reports one phone with as much zram as memory.
        swap: Some(SwapSpec::zram(memory / 2)),
        // Guess for the memory; §8 [A] has launches on 2 of 8 cores.
        ..MachineSpec::plain(
            "phone",
            "a phone: flash storage, and zram of half the memory",
            8,
            memory,
        )
    }
}

fn hdd() -> MachineSpec {
    MachineSpec {
        device: DeviceSpec::hdd(),
        // Guess: a small server that was not thrown away.
        ..MachineSpec::plain("hdd", "a small old server with a rotating disk", 4, 8 << 30)
    }
}

fn ramdisk() -> MachineSpec {
    MachineSpec {
        device: DeviceSpec::ramdisk(),
        // §0.2 [S]: KVM on the CPU of xeon-96t, 62 GiB, a pmem ramdisk, no swap. 96 CPUs because
        // the reproducer takes as many threads as there are CPUs, and had 96 (concluded from §3).
        ..MachineSpec::plain(
            "ramdisk",
            "the machine of the aging OOM: files on a ramdisk",
            96,
            62 << 30,
        )
    }
}

fn thrash() -> MachineSpec {
    MachineSpec {
        device: DeviceSpec::disk_250(),
        // Concluded from the published samples: with the patch a request is of 127 to 177 KiB,
        // which a window of 128 KiB cannot have. Requests before the patch are of 57 to 84 KiB
        // with windows of 256 KiB to 1 MiB.
        readahead: 512 << 10,
        // §0.2 [S]: not stated but for the disk. Guesses, and without influence: more of both than
        // its tasks use.
        ..MachineSpec::plain(
            "thrash",
            "the server of the memory.high thrash: 250 MB/s",
            20,
            4 << 30,
        )
    }
}

fn delay_1s() -> MachineSpec {
    MachineSpec {
        device: DeviceSpec::delay_1s(),
        // §4: not stated but for the disk. Guesses, and without influence: more of both than its
        // group uses.
        ..MachineSpec::plain(
            "delay-1s",
            "the machine of the throttling OOM: writes take 1 s",
            4,
            2 << 30,
        )
    }
}

fn emulated() -> MachineSpec {
    MachineSpec {
        // Real kernels performed the database's sequence on emulated CPUs, beside which the disk of
        // the host takes no time. How slow they were is not known; a twentieth is a guess.
        costs: Costs::default().times(20),
        device: DeviceSpec { name: "instant".into(), ..DeviceSpec::ramdisk() },
        // What that disk made the kernel take (`docs/design/fidelity.md`, the database).
        readahead: 4 << 20,
        ..MachineSpec::plain(
            "emulated",
            "emulated CPUs and a disk without delay: the lab of `wt`",
            2,
            4 << 30,
        )
    }
}
