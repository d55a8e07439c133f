//! Scratch.
#![expect(clippy::print_stdout, reason = "it is a benchmark")]
use lowtide_sim::client::database::{DatabaseConfig, run};
use lowtide_sim::{MachineConfig, spec::MachineSpec};
use lowtide_workload::Letter;
use std::sync::atomic::{AtomicBool, AtomicU64};
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let frac: f64 = args.get(1).map_or(1.0, |a| a.parse().unwrap());
    let policies: Vec<&str> = args.first().map_or("mglru-7.1,mglru,lru", |a| a).split(',').collect();
    std::thread::scope(|s| {
        for chunk in policies.chunks(policies.len().div_ceil(2)) {
            s.spawn(move || {
                for p in chunk {
                    one(p, frac)
                }
            });
        }
    });
}
fn env(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |v| v.parse().unwrap())
}
fn one(policy: &str, frac: f64) {
    let mut spec = MachineSpec::preset("xeon-96t").unwrap().unwrap();
    spec.readahead = env("RA", 131072);
    let machine = MachineConfig { spec, policy: policy.parse().unwrap(), max: Some(10 << 30), seed: 1 };
    let mut config = DatabaseConfig::published(Letter::B);
    config.ops = (config.ops as f64 * frac) as u64;
    config.op_ns = env("OPNS", config.op_ns);
    config.excess_pages = env("EX", 0);
    config.cache = env("CACHE", config.cache);
    config.index = env("INDEX", config.index);
    config.threads = env("THREADS", 32) as u32;
    let t = std::time::Instant::now();
    let r = run(&machine, &config, &AtomicU64::new(0), &AtomicBool::new(false)).unwrap();
    let e = r.ended.memory.events.since(&r.began.memory.events);
    let (k0, k) = (r.began.kernel, r.ended.kernel);
    let secs = (r.ended.now_ns - r.began.now_ns) as f64 / 1e9;
    let rd = (r.ended.device.read_bytes - r.began.device.read_bytes) / 1024;
    let wr = (r.ended.device.write_bytes - r.began.device.write_bytes) / 1024;
    println!(
        "{policy:12} {:.0} ops/s {:.1}s lat {:.0}us p99 {} | in {:.1}M KiB ({:.1}/op) out {:.2}M | refault {:.2}M | scan {:.2}M steal {:.2}M act {:.2}M rotated {} imm {} refill {} restore {}| leafmiss {:.3} leafwr {:.3} ra {:.2}M | wakes {} thr {} dirtythr {}ms walks {} direct {} | dirty {} wb {} file {} | lruvec cont {}/{} {}ms | real {:.1}s {}MB ev {}",
        r.ops as f64 / secs,
        secs,
        r.latency.mean() / 1e3,
        r.latency.value_at_quantile(0.99) / 1000,
        rd as f64 / 1e6,
        rd as f64 / r.ops as f64,
        wr as f64 / 1e6,
        e.workingset_refault_file as f64 / 1e6,
        e.pgscan as f64 / 1e6,
        e.pgsteal as f64 / 1e6,
        e.pgactivate as f64 / 1e6,
        e.pgrotated,
        e.nr_vmscan_immediate_reclaim,
        e.pgrefill,
        e.workingset_restore_file,
        r.leaf_reads as f64 / r.ops as f64,
        r.leaf_writes as f64 / r.ops as f64,
        (k.readahead - k0.readahead) as f64 / 1e6,
        k.flusher_wakes - k0.flusher_wakes,
        k.throttled - k0.throttled,
        (k.dirty_throttled_ns - k0.dirty_throttled_ns) / 1_000_000,
        k.walks - k0.walks,
        k.direct_reclaims - k0.direct_reclaims,
        r.ended.memory.file_dirty,
        r.ended.memory.file_writeback,
        r.ended.memory.file,
        r.ended.lruvec_lock.contended,
        r.ended.lruvec_lock.acquired,
        r.ended.lruvec_lock.waited_ns / 1_000_000,
        t.elapsed().as_secs_f64(),
        r.ended.bytes >> 20,
        r.ended.events
    );
}
