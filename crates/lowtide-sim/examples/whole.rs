//! Scratch.
#![expect(clippy::print_stdout, reason = "it is a benchmark")]
use lowtide_core::Policy;
use lowtide_sim::client::stream::{Stream, StreamSpace, run};
use lowtide_sim::{MachineConfig, spec::MachineSpec};
use lowtide_workload::{Distribution, OpKind, PageOp, SpaceId, SpaceKind, SplitMix64};
use std::sync::atomic::{AtomicBool, AtomicU64};
fn main() {
    let n: u64 = std::env::args().nth(1).map_or(1_000_000, |a| a.parse().unwrap());
    let threads: u64 = std::env::args().nth(2).map_or(4, |a| a.parse().unwrap());
    let max: u64 = std::env::args().nth(3).map_or(256, |a| a.parse().unwrap());
    for (policy, _) in Policy::builtin() {
        for write in [false, true] {
            let spec = MachineSpec::preset("xeon-96t").unwrap().unwrap();
            let machine = MachineConfig { spec, policy, max: (max > 0).then_some(max << 20), seed: 1 };
            let pages = (max.max(256) << 8) * 4;
            let streams = (0..threads)
                .map(|t| {
                    let sampler = Distribution::default().sampler(pages, 1).unwrap();
                    let mut rng = SplitMix64::new(t);
                    Box::new((0..n / threads).map(move |_| {
                        let k = match rng.below(4) {
                            0 if write => OpKind::Store,
                            1 => OpKind::Read,
                            2 if write => OpKind::Write,
                            _ => OpKind::Load,
                        };
                        Ok(PageOp::one(k, SpaceId(0), sampler.draw(&mut rng)))
                    })) as Stream
                })
                .collect();
            let t = std::time::Instant::now();
            let r = run(
                &machine,
                &[StreamSpace { kind: SpaceKind::File, pages }],
                streams,
                200,
                &AtomicU64::new(0),
                &AtomicBool::new(false),
            )
            .unwrap();
            let s = &r.stat;
            println!(
                "{policy} write {write}: {} ops {:.3}s virtual, real {:.2}s, {:.0} ns/op, mean {:.1}us major {} refault {} scan {} majf {} minf {} ra {} retry {}/{} lock {:?} dirty {} ev {}",
                r.ops,
                s.now_ns as f64 / 1e9,
                t.elapsed().as_secs_f64(),
                t.elapsed().as_nanos() as f64 / r.ops as f64,
                r.latency.mean() / 1e3,
                s.kernel.major,
                s.memory.events.workingset_refault_file,
                s.memory.events.pgscan,
                s.memory.events.pgmajfault,
                s.memory.events.pgfault,
                s.kernel.readahead,
                s.kernel.retry_io_miss,
                s.kernel.retry_mmap_drop,
                s.rwsems,
                s.memory.file_dirty,
                s.events
            );
        }
    }
}
