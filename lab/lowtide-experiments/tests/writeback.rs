//! Promise: on the simulated machine dirty pages are written when they should be (in the
//! background, by age), and a writer is held back so that it goes as fast as its device, in pauses
//! that are short (`docs/kernel/fault-and-writeback.md` B5-B10, D 11, 12).

use std::sync::atomic::{AtomicBool, AtomicU64};

use lowtide_core::Policy;
use lowtide_experiments::client::checkpoints::{self, MixedConfig};
use lowtide_experiments::client::dd;
use lowtide_experiments::programs::writer::Writer;
use lowtide_sim::MachineConfig;
use lowtide_sim::spec::MachineSpec;

const SECOND_NS: u64 = 1_000_000_000;

fn machine(device: &str, policy: Policy) -> MachineConfig {
    let text = format!("base = 'laptop'\nmemory = '4G'\ndevice = '{device}'");
    let spec = MachineSpec::from_toml(&text, "test").unwrap();
    MachineConfig { spec, policy, max: None, seed: 1 }
}

/// The group is larger than what the device writes between two publications, so that the statistics
/// mean something.
#[test]
fn a_writer_goes_as_fast_as_its_device_and_stays_within_its_share() {
    for policy in [Policy::MGLRU, Policy::MGLRU_7_1, Policy::LRU] {
        let writer = Writer { file: 3 << 30, ..Writer::fill(1 << 30) };
        let machine = machine("hdd", policy);
        let result =
            dd::run(&machine, &writer, &AtomicU64::new(0), &AtomicBool::new(false)).unwrap();
        assert_eq!((result.killed_after_ns, result.written), (None, writer.file), "{policy}");
        let seconds = result.stat.now_ns as f64 / 1e9;
        let part = writer.file as f64 / seconds / machine.spec.device.write_bandwidth as f64;
        assert!((0.85..=1.0).contains(&part), "{policy}: {part:.3} of the device");
        let kernel = &result.stat.kernel;
        assert!(kernel.dirty_pauses > 0, "{policy}");
        assert!(kernel.dirty_throttled_ns / kernel.dirty_pauses <= 200_000_000, "{policy}");
        assert_eq!(
            result.group.file_dirty + result.group.file_writeback,
            0,
            "{policy}: it is durable"
        );
    }
}

/// Bytes written within a number of seconds, of pages whose write is not requested.
fn written_in(seconds: u64) -> u64 {
    let config = MixedConfig {
        file: 8 << 20,
        threads: 1,
        update_percent: 20,
        op_ns: 50_000_000,
        checkpoint_ns: 1_000 * SECOND_NS,
        warm_ns: 0,
        run_ns: seconds * SECOND_NS,
        ..MixedConfig::new(64 << 20, 1)
    };
    let machine = machine("nvme", Policy::MGLRU);
    let result =
        checkpoints::run(&machine, &config, &AtomicU64::new(0), &AtomicBool::new(false)).unwrap();
    assert!(!result.updates.is_empty());
    result.ended.device.write_bytes
}

#[test]
fn a_few_dirty_pages_are_written_when_they_are_old() {
    assert_eq!(written_in(25), 0, "nothing is old yet");
    assert!(written_in(45) > 0, "what has been dirty for half a minute is written");
}
