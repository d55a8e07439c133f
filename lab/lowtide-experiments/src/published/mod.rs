//! What was published about the experiments that `ycsb-b` and `tenants` on `xeon-96t`,
//! `file-anon-mix` on `ramdisk` and `dd-oom` on `delay-1s` repeat, and others after them: figures,
//! and when a simulation has reproduced them.
//!
//! Three *arms* ran on the same machine: the multi-gen LRU before the reclaim-loop series, the same
//! after it, and the classical lists. The series was posted several times, each time with new
//! measurements; `data/published.csv` holds them as they were posted (columns: what was measured,
//! by which posting, in which unit, and a value for each arm). Refaults of the last posting were
//! counted otherwise than those of the earlier ones, so absolute counts of different postings do
//! not compare; ratios of one posting do. Source: `docs/kernel/workloads.md` §1(c).
//!
//! | file | concept |
//! |---|---|
//! | `figures` | the table, read |
//! | `verdict` | what counts as reproduced (`docs/kernel/workloads.md` §1(d)) |
//! | `dd` | both for the throttling OOM (`docs/kernel/workloads.md` §4(c), (d)) |
//! | `thrash` | both for a thrash above `memory.high` (§10(c), (d)), with a patch and without |
//! | `mix` | when the aging OOM is reproduced (§3(d)) |
//! | `mapping` | both for the retry storm (§9(c), (d)) and fio's mmap engine (§6(c), (d)) |
//! | `heap` | both for programs most of whose memory is heap (§5, 7, 8 (c), (d)) |
//! | `tenants` | both for tenants of equal demand (`docs/kernel/workloads.md` §2(c), (d)) |

mod dd;
mod figures;
mod heap;
mod mapping;
mod mix;
mod tenants;
mod thrash;
mod verdict;

pub use dd::{MeasuredDd, dd_verdict, published_dd};
pub use figures::{
    Arm, Published, PublishedLine, PublishedMix, published, published_lines, published_mix,
};
pub use heap::{
    ANDROID, KERNEL_BUILD, MeasuredAndroid, MeasuredBuild, MeasuredSysbench, SYSBENCH,
    android_verdict, build_verdict, published_heap, sysbench_verdict,
};
pub use mapping::{
    MeasuredFio, MeasuredStorm, PublishedStorm, fio_verdict, published_fio, published_storm,
    storm_verdict,
};
pub use mix::{MixOutcome, mix_verdict};
pub use tenants::{MeasuredTenants, PublishedTenants, published_tenants, tenants_verdict};
pub use thrash::{MeasuredThrash, SarSample, ThrashArms, published_thrash, thrash_verdict};
pub use verdict::{Criterion, Kind, Measured, Outcome, verdict};
