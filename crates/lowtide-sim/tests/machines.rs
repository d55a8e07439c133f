//! Promise: a machine is had by name or from a file, every preset can be simulated and written as a
//! file that describes it, and what makes no machine is refused with the key, the value, the reason
//! and what to write.

use std::fs;

use lowtide_sim::spec::{Compressor, DeviceSpec, MachineSpec, SpecError, SwapSpec};

fn machine(text: &str) -> MachineSpec {
    MachineSpec::from_toml(text, "test").unwrap_or_else(|error| panic!("{text}\n{error}"))
}

/// What is said about a machine that is the laptop but for these lines.
fn refused(lines: &str) -> String {
    let text = format!("base = \"laptop\"\n{lines}\n");
    let error = MachineSpec::from_toml(&text, "test").expect_err(lines);
    error.to_string()
}

/// Demands that all these words are said about such a machine.
fn says(lines: &str, words: &[&str]) {
    let message = refused(lines);
    for word in ["machine `test`"].iter().chain(words) {
        assert!(message.contains(word), "{lines}: `{word}` is not in: {message}");
    }
}

#[test]
fn every_preset_can_be_simulated_and_is_its_own_file() {
    for name in MachineSpec::names() {
        let preset = MachineSpec::load(name).unwrap();
        assert_eq!(preset.name, name);
        preset.validate().unwrap();
        assert!(preset.pages() >= 64 && preset.pages() * preset.page <= preset.memory);
        let file = toml::to_string(&preset).unwrap();
        assert_eq!(MachineSpec::from_toml(&file, "other").unwrap(), preset, "{file}");
    }
}

#[test]
fn the_published_machine_is_what_was_published() {
    let machine = MachineSpec::load("XEON_96T").unwrap();
    assert_eq!((machine.cpus, machine.memory, machine.swap), (96, 128 << 30, None));
    let nvme = machine.device;
    assert_eq!((nvme.name.as_str(), nvme.read_bandwidth >> 20), ("nvme", 1690));
}

#[test]
fn this_machine_is_described_by_itself() {
    let this = MachineSpec::load("this").unwrap();
    assert_eq!(this.cpus as usize, std::thread::available_parallelism().unwrap().get());
    assert!(this.memory > 64 << 20 && this.kernel < this.memory / 10, "{this:?}");
    assert_eq!(MachineSpec::load("this").unwrap(), this);
}

#[test]
fn a_file_says_what_is_different_from_its_base() {
    let base = MachineSpec::load("phone").unwrap();
    let changed = machine(
        "base = 'phone'\nmemory = '12G'\nswap = 'none'\ndevice = 'hdd'\n[costs]\ntouch_ns = 7",
    );
    assert_eq!((changed.name.as_str(), changed.cpus), ("test", base.cpus));
    assert!(changed.about.contains("phone"));
    assert_eq!(
        (changed.memory, changed.kernel),
        (12 << 30, 2 * base.kernel),
        "the kernel's part grows with memory"
    );
    assert_eq!(changed.swap, None);
    assert_eq!(changed.device, DeviceSpec::preset("hdd").unwrap());
    assert_eq!((changed.costs.touch_ns, changed.costs.copy_page_ns), (7, base.costs.copy_page_ns));

    let swap = machine("base = 'phone'\n[swap]\nsize = 1_073_741_824").swap;
    assert_eq!(swap, Some(SwapSpec::zram(1 << 30)), "the kind is still the base's");
}

#[test]
fn a_compressor_leaves_what_it_leaves_unless_the_file_says_otherwise() {
    let swap = |more| machine(&format!("base = 'phone'\n[swap]\n{more}")).swap.unwrap();
    let of = |swap: SwapSpec| (swap.compressor, swap.compressed_percent);
    assert_eq!(of(swap("size = '1G'")), (Compressor::LzoRle, 33));
    assert_eq!(of(swap("compressor = 'zstd'")), (Compressor::Zstd, 23));
    assert_eq!(of(swap("compressor = 'lz4'\ncompressed_percent = 50")), (Compressor::Lz4, 50));
    assert_eq!(of(swap("compressed_percent = 50")), (Compressor::LzoRle, 50));
    let costs = machine("base = 'phone'\n[costs]\ncompress_zstd_ns = 9_000").costs;
    assert_eq!(costs.compress(Compressor::Zstd), 9_000);
    assert_eq!(costs.compress(Compressor::LzoRle), 2_500);
}

#[test]
fn a_device_is_changed_from_the_machines_or_from_a_named_one() {
    let hdd = DeviceSpec::preset("hdd").unwrap();
    let slow = machine("base = 'hdd'\n[device]\nwrite_ns = 1_000_000_000").device;
    assert_eq!((slow.name.as_str(), slow.write_ns), ("hdd (changed)", 1_000_000_000));
    assert_eq!(DeviceSpec { name: hdd.name.clone(), write_ns: hdd.write_ns, ..slow }, hdd);

    let named = machine(
        "base = 'laptop'\n[device]\nbase = 'hdd'\nname = 'tape'\nspread = 0\nread_bandwidth = \
         '1.5M'",
    );
    assert_eq!((named.device.name.as_str(), named.device.read_bandwidth), ("tape", 3 << 19));
    assert_eq!((named.device.seek_ns, named.device.spread), (hdd.seek_ns, 0.0));
    assert_eq!(machine("base = 'laptop'\n[device]\nbase = 'hdd'").device, hdd);
}

#[test]
fn read_ahead_follows_the_device_unless_the_machine_has_its_own() {
    let large = "[device]\noptimal_io = '1M'";
    let of = |text: &str| machine(text).readahead;
    assert_eq!(of(&format!("base = 'laptop'\n{large}")), 2 << 20);
    assert_eq!(of(&format!("cpus = 1\nmemory = '1G'\npage = '16K'\n{large}")), 2 << 20);
    assert_eq!(of(&format!("base = 'laptop'\nreadahead = '64K'\n{large}")), 64 << 10);
    assert_eq!(of(&format!("base = 'emulated'\n{large}")), 4 << 20, "as the base has set it");
    says("[device]\noptimal_io = '9M'", &["`device.optimal_io = \"9M\"`", "8M"]);

    let hdd = DeviceSpec::preset("hdd").unwrap();
    let own = machine(&format!("base = 'laptop'\nname = 'mine'\n{large}"));
    let other = own.clone().on_device(hdd.clone());
    assert_eq!((other.name.as_str(), other.readahead), ("mine on hdd", 128 << 10));
    assert_eq!(other.device, hdd);
    let same = other.device.clone();
    assert_eq!(other.clone().on_device(same), other, "nothing changes, nor the name");
    let set = MachineSpec { readahead: 0, ..own };
    assert_eq!(set.on_device(hdd).readahead, 0);
    // These have a setting of their own.
    let own = ["emulated", "thrash", "x86-256c", "xeon-96t"];
    for name in MachineSpec::names().filter(|name| !own.contains(name)) {
        let preset = MachineSpec::preset(name).unwrap().unwrap();
        assert_eq!(preset.readahead, preset.device.read_ahead(preset.page), "{name}");
    }
}

#[test]
fn without_a_base_the_size_is_enough_and_needed() {
    let small = machine("cpus = 2\nmemory = '1G'");
    assert_eq!((small.page, small.hz, small.timeslice_ns), (4096, 250, 3_000_000));
    assert_eq!(
        (small.readahead, small.fault_around, small.fault_around_young, small.kernel),
        (128 << 10, 64 << 10, true, (1 << 30) / 50)
    );
    assert_eq!((small.device.name.as_str(), small.swap), ("nvme", None));

    for (text, key, write) in [
        ("cpus = 2", "`memory` is missing", "a size"),
        ("memory = 65536", "`cpus` is missing", "4096"),
    ] {
        let message = MachineSpec::from_toml(text, "test").unwrap_err().to_string();
        assert!(
            message.contains(key) && message.contains("base") && message.contains(write),
            "{message}"
        );
    }
}

#[test]
fn a_value_that_makes_no_machine_is_refused_with_its_key() {
    says("cpus = 0", &["`cpus = 0`", "without a CPU", "from 1 to 4096"]);
    says("cpus = -3", &["`cpus = -3`", "from 1 to 4096"]);
    says("cpus = 5_000", &["`cpus = 5000`", "from 1 to 4096"]);
    says("cpus = 9_223_372_036_854_775_807", &["`cpus = 9223372036854775807`"]);
    says("memory = 0", &["`memory = 0`", "some memory", "16T"]);
    says("memory = -1", &["`memory = -1`"]);
    says("memory = '128K'", &["`memory = \"128K\"`", "64 pages", "at least 256K"]);
    says("memory = '17T'", &["`memory = \"17T\"`", "every page is simulated", "16T"]);
    says("memory = 99999999999999999999", &["`memory = 99999999999999999999`", "16T"]);
    says("memory = 'max'", &["`memory = \"max\"`", "16T"]);
    says("memory = '16T'", &["`memory = \"16T\"`", "32 bits", "at most"]);
    says("memory = '8T'\npage = 512", &["`memory = \"8T\"`", "32 bits", "pages of 512"]);
    says("page = 3000", &["`page = 3000`", "power of two"]);
    says("page = '128K'", &["`page = \"128K\"`", "64K"]);
    says("page = 256", &["`page = 256`", "512"]);
    says("hz = 0", &["`hz = 0`", "tick"]);
    says("timeslice_ns = 1", &["`timeslice_ns = 1`", "1000"]);
    says("readahead = '32M'", &["`readahead = \"32M\"`", "16M"]);
    says("readahead = 1000", &["`readahead = 1000`", "whole pages", "multiple of the page, 4K"]);
    says("fault_around = '48K'", &["`fault_around = \"48K\"`", "power of two"]);
    says("fault_around = '4M'", &["`fault_around = \"4M\"`", "2M"]);
    says("kernel = '16G'", &["`kernel = \"16G\"`", "64 pages", "memory = \"16G\""]);
    says("name = ''", &["`name = \"\"`", "printable"]);
    says("about = \"two\\nlines\"", &["`about = ", "one line"]);
    says("swap = 'zram'", &["`swap = \"zram\"`", "[swap]", "\"none\""]);
    says("[swap]\nsize = '1G'", &["`swap.kind` is missing", "\"zram\" or \"device\""]);
    says("[swap]\nkind = 'device'", &["`swap.size` is missing", "a size from"]);
    says(
        "[swap]\nkind = 'zram'\nsize = '2T'",
        &["`swap.size = \"2T\"`", "at most 1T", "memory = \"16G\""],
    );
    says(
        "[swap]\nkind = 'zram'\nsize = '1G'\ncompressed_percent = 0",
        &["`swap.compressed_percent = 0`", "1 to 100"],
    );
    says(
        "[swap]\nkind = 'zram'\nsize = '1G'\ncompressor = 'gzip'",
        &["gzip", "`lzo-rle`", "`lz4`", "`zstd`"],
    );
    says("[swap]\nkind = 'device'\nsize = 0", &["`swap.size = 0`", "swap = \"none\""]);
    says("[costs]\ntouch_ns = -1", &["`costs.touch_ns = -1`", "gives time back"]);
    says("[costs]\nzap_ns = 2_000_000_000", &["`costs.zap_ns = 2000000000`", "more than a second"]);
}

#[test]
fn a_device_that_does_not_exist_is_refused_with_its_key() {
    says("device = 'nmve'", &["`device = \"nmve\"`", "did you mean `nvme`", "sata-ssd"]);
    says("[device]\nbase = 'floppy'", &["`device.base = \"floppy\"`", "sata-ssd"]);
    says("[device]\nqueue_depth = 0", &["`device.queue_depth = 0`", "never answers", "65536"]);
    says("[device]\nread_bandwidth = 0", &["`device.read_bandwidth = 0`", "ever arrive"]);
    says("[device]\nwrite_bandwidth = '1E'", &["`device.write_bandwidth = \"1E\"`", "16T"]);
    says("[device]\nread_ns = -5", &["`device.read_ns = -5`", "before the request"]);
    says("[device]\nwrite_ns = 1_000_000_000_000", &["`device.write_ns = 1000000000000`", "100 s"]);
    says("[device]\nspread = nan", &["`device.spread = NaN`", "from 0"]);
    says("[device]\nspread = inf", &["`device.spread = inf`"]);
    says("[device]\nspread = -0.5", &["`device.spread = -0.5`"]);
}

#[test]
fn an_unknown_base_is_answered_with_the_machines_there_are() {
    let message = MachineSpec::from_toml("base = 'xeon-69t'", "test").unwrap_err().to_string();
    for word in [
        "`base = \"xeon-69t\"`",
        "did you mean `xeon-96t`",
        "thrash, delay-1s, emulated, this",
        "`cpus` and `memory`",
    ] {
        assert!(message.contains(word), "`{word}` is not in: {message}");
    }
}

/// The file has the base in line 1, so what is wrong is in line 2 or later.
#[test]
fn what_cannot_be_understood_is_named_with_its_line() {
    says("cpus = 'eight'", &["line 2", "cpus", "eight", "a whole number"]);
    says("cpus = 2.5", &["line 2", "cpus", "2.5", "a whole number"]);
    says("memory = '128Q'", &["line 2", "memory", "`128Q` is not a size", "64M"]);
    says("memory = '-5G'", &["line 2", "memory", "no sign"]);
    says("memory = 1.5e9", &["line 2", "memory", "a size"]);
    says("cpu = 8", &["line 2", "unknown field `cpu`", "`cpus`"]);
    says("cpus = 8\ncpus = 9", &["line 3", "duplicate key"]);
    says("cpus =", &["line 2"]);
    says("device = 7", &["line 2", "a name in quotes, or a table"]);
    says("[device]\nread = 5", &["line 3", "unknown field `read`", "`read_ns`"]);
    says("[device]\nspread = 'wide'", &["line 3", "spread", "wide"]);
    says("[swap]\nkind = 'zrm'", &["line 3", "zrm", "`zram` or `device`"]);
    says("[cost]\ntouch_ns = 1", &["line 2", "unknown field `cost`", "`costs`"]);
    says("[costs]\ntouch = 1", &["line 3", "unknown field `touch`", "`touch_ns`"]);
}

#[test]
fn a_name_goes_before_a_file_and_a_path_reaches_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("desktop.toml");
    fs::write(&path, "cpus = 3\nmemory = '4G'\n").unwrap();
    let desktop = MachineSpec::load(path.to_str().unwrap()).unwrap();
    assert_eq!((desktop.name.as_str(), desktop.cpus), ("desktop", 3));

    let shadow = dir.path().join("laptop");
    fs::copy(&path, &shadow).unwrap();
    assert_eq!(MachineSpec::load(shadow.to_str().unwrap()).unwrap().cpus, 3);
}

#[test]
fn what_is_neither_a_name_nor_a_file_is_answered_with_the_names() {
    for (given, words) in [
        ("lap-top", ["`lap-top`", "did you mean `laptop`", "xeon-96t", "TOML", "sata-ssd"]),
        ("mainframe", ["`mainframe`", "machines are", "xeon-96t", "TOML", "sata-ssd"]),
        ("sata-ssd", ["`sata-ssd`", "but a device", "`device = \"sata-ssd\"`", "xeon-96t", "TOML"]),
        ("", ["``", "machines are", "xeon-96t", "TOML", "sata-ssd"]),
    ] {
        let error = MachineSpec::load(given).unwrap_err();
        assert!(matches!(error, SpecError::Unknown { .. }), "{error:?}");
        for word in words {
            assert!(error.to_string().contains(word), "`{word}` is not in: {error}");
        }
    }
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    for (path, reason) in [
        (dir.path().join("absent.toml").to_str().unwrap().to_owned(), "No such file"),
        (dir.path().to_str().unwrap().to_owned(), "directory"),
        (file("binary", &[0xff, 0xfe, 0x00]), "UTF-8"),
        (file("long", &vec![b'#'; 2 << 20]), "1 MiB"),
    ] {
        let message = MachineSpec::load(&path).unwrap_err().to_string();
        assert!(
            message.contains(&path) && message.contains(reason) && message.contains("laptop"),
            "{message}"
        );
    }
    let cut = file("cut.toml", b"base = \"lap");
    let message = MachineSpec::load(&cut).unwrap_err().to_string();
    assert!(message.contains("`cut`") && message.contains("line 1"), "{message}");
}

#[test]
fn a_machine_that_was_changed_in_code_is_checked_like_a_file() {
    let laptop = MachineSpec::load("laptop").unwrap();
    let broken = MachineSpec { cpus: 0, ..laptop.clone() };
    assert!(broken.validate().unwrap_err().to_string().contains("`cpus = 0`"));
    let mut broken = laptop;
    broken.costs.compress_ns = u64::MAX;
    assert!(broken.validate().unwrap_err().to_string().contains("costs.compress_ns"));
}
