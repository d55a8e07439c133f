//! What a fuzzer calls: each function takes any bytes, and a panic in it is a bug.
//!
//! | target | what reads the bytes |
//! |---|---|
//! | [`traces`] | all formats of traces, stated or guessed, plain and compressed |
//! | [`programs`] | BPF objects: ELF, BTF, maps, the verifier; what is loaded is run |
//! | [`machines`] | machines of the simulator, in TOML |
//! | [`words`] | sizes, policies, names of workloads and tenants, plans of the swarm |
//!
//! What was read is also written and read again, where there is a way to write it. [`seeds`] are
//! inputs that are right, for a fuzzer to begin with.

use lowtide::{IoEngine, IoMode, Pager};
use lowtide_bpf::{Hook, Programs};
use lowtide_core::hooks::{LimitHooks, LimitSnapshot};
use lowtide_core::{Policy, Size};
use lowtide_experiments::swarm::Plan;
use lowtide_sim::spec::MachineSpec;
use lowtide_workload::trace::{
    Columns, CompactWriter, Format, Names, TraceRecord, Writer, read_from,
};
use lowtide_workload::{OpKind, PageOp, Space, SpaceId, Workload};
use std::io::{Cursor, Write};
use std::path::Path;
use std::sync::LazyLock;

/// What a target does with its input.
pub type Target = fn(&[u8]);

/// A target by its name, and its function.
pub const TARGETS: [(&str, Target); 4] =
    [("traces", traces), ("programs", programs), ("machines", machines), ("words", words)];

/// Records that are read of one input: a few compressed bytes may be millions.
const RECORDS_MAX: usize = 20_000;

/// The first byte chooses the format, or that it is to be guessed; the rest is the trace.
pub fn traces(data: &[u8]) {
    let Some((&first, rest)) = data.split_first() else { return };
    let format = Format::ALL.get(usize::from(first) % (Format::ALL.len() + 1)).copied();
    let Ok(trace) = read_from(Cursor::new(rest.to_vec()), Path::new("fuzz"), format) else {
        return;
    };
    let mut records = Vec::new();
    for record in trace.take(RECORDS_MAX) {
        match record {
            Ok(record) => records.push(record),
            Err(error) => {
                assert!(!error.to_string().is_empty());
                break;
            }
        }
    }
    // Whatever was read can be printed.
    let _ = format!("{:?}", records.last());
}

/// Loads an object, and asks what was loaded.
pub fn programs(data: &[u8]) {
    let mut programs = match Programs::load(data, "fuzz") {
        Ok(programs) => programs,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    for usage in [0, 1, 1 << 20, u64::MAX] {
        let snapshot = LimitSnapshot { usage, ..LimitSnapshot::default() };
        programs.throttle(&snapshot);
        programs.below_low(&snapshot);
        programs.below_min(&snapshot);
        assert!(programs.proactive(&snapshot) <= usage);
    }
    for hook in Hook::ALL {
        programs.switch_on(hook);
    }
    let _ = (programs.status(), programs.take_requests(), programs.maps());
}

/// Reads a machine; one that is possible is the same when it is written and read again.
pub fn machines(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match MachineSpec::from_toml(text, "fuzz") {
        Ok(machine) => {
            let written = machine.to_toml().expect("a machine can be written");
            let again = MachineSpec::from_toml(&written, "other");
            assert_eq!(again.as_ref().ok(), Some(&machine), "{written}\n{again:?}");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// A pager for names of tenants.
static PAGER: LazyLock<Pager> = LazyLock::new(|| {
    let builder = Pager::builder().max(Size::new(256 << 10)).background(false);
    builder.io_engine(IoEngine::Psync).build().expect("a small pager can be built")
});

/// Reads one word as everything that is written as a word.
pub fn words(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(size) = text.parse::<Size>() {
        let again: Size = size.to_string().parse().expect("a size that was written can be read");
        assert!(again <= size || size.is_max(), "{text}: {size} is read as {again}");
    }
    if let Ok(policy) = text.parse::<Policy>() {
        assert_eq!(policy.to_string().parse::<Policy>().ok(), Some(policy), "{text}");
    }
    if let Ok(plan) = text.parse::<Plan>() {
        let written = plan.to_string();
        assert_eq!(written.parse::<Plan>().map(|p| p.to_string()).ok(), Some(written));
    }
    let _ = (text.parse::<Workload>(), text.parse::<IoEngine>(), text.parse::<IoMode>());
    if let Ok(tenant) = PAGER.tenant(text).create() {
        assert_eq!(&*tenant.name().expect("it was just made"), text);
        tenant.remove().expect("it has no children");
    }
}

fn records() -> (Vec<TraceRecord>, Names) {
    let record = |n: u64| TraceRecord {
        op: PageOp {
            kind: OpKind::ALL[n as usize % OpKind::ALL.len()],
            space: SpaceId(n as u32 % 2),
            page: n * 7 % 100,
            pages: 1 + n as u32 % 3,
        },
        time_ns: Some(n * 1000),
        thread: Some(n as u32 % 3),
        tenant: None,
    };
    let names = Names::with_spaces([Space::file("index"), Space::anon("heap, \"quoted\"")]);
    ((0..40).map(record).collect(), names)
}

/// Right inputs of a target, to begin with.
#[must_use]
pub fn seeds(target: &str) -> Vec<Vec<u8>> {
    let text = |words: &[&str]| words.iter().map(|word| word.as_bytes().to_vec()).collect();
    match target {
        "traces" => trace_seeds(),
        "programs" => vec![
            include_bytes!("../../examples/bpf/noop.bpf.o").to_vec(),
            include_bytes!("../../examples/bpf/priority.bpf.o").to_vec(),
            include_bytes!("../../examples/bpf/refault_recency.bpf.o").to_vec(),
        ],
        "machines" => {
            let names = MachineSpec::names().filter(|name| *name != "this");
            let presets = names.filter_map(|name| MachineSpec::load(name).ok()?.to_toml().ok());
            let ours = ["base = \"laptop\"\ncpus = 3\n[device]\nbase = \"nvme\"\n".to_owned()];
            presets.chain(ours).map(String::into_bytes).collect()
        }
        _ => {
            let mut words: Vec<Vec<u8>> = text(&[
                "64M",
                "1.5G",
                "max",
                "0",
                "18446744073709551615",
                "mglru",
                "mglru-7.1+S10+S11",
                "lru",
                "ycsb-b",
                "tenant",
                "a b",
                "psync",
                "direct",
            ]);
            words.extend((0..4).map(|seed| Plan::draw(seed).to_string().into_bytes()));
            words
        }
    }
}

fn trace_seeds() -> Vec<Vec<u8>> {
    let (records, names) = records();
    let columns = Columns { time_ns: true, thread: true, tenant: false };
    let mut csv = Writer::new(Vec::new(), columns).expect("writing to memory");
    let mut compact = CompactWriter::new(Vec::new(), columns).expect("writing to memory");
    for record in &records {
        csv.write(record, &names).expect("writing to memory");
        compact.write(record, &names).expect("writing to memory");
    }
    let csv = csv.finish().expect("writing to memory");
    let compact = compact.finish().expect("writing to memory");
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&csv).expect("writing to memory");
    let gzip = gzip.finish().expect("writing to memory");
    let zstd = zstd::bulk::compress(&compact, 1).expect("writing to memory");
    let oracle: Vec<u8> = (0..20_u32)
        .flat_map(|n| {
            let [time, size] = [n.to_le_bytes(), (512 * (1 + n % 5)).to_le_bytes()];
            let [id, next] = [u64::from(n % 7).to_le_bytes(), u64::from(n + 7).to_le_bytes()];
            [&time[..], &id, &size, &next].concat()
        })
        .collect();
    let texts = [
        "128166372003061629,usr,0,Read,7014609920,24576,41286\n\
         128166372016382155,usr,1,Write,0,512,9\n",
        " L 04222cac,4\nI  04015d10,3\n S 1ffefffde8,8\n M 04222ca0,8\n",
        "time,key,key_size,value_size,client,operation,ttl\n\
         0,abc,3,100,1,get,0\n1,def,3,5000,2,set,0\n",
        "cat-1 [000] d..2. 1.000001: mm_filemap_add_to_page_cache: dev 254:1 ino 5 pfn=0x1 \
         ofs=4096 order=0\n",
    ];
    let guessed = Format::ALL.len() as u8;
    let plain = [csv, compact, gzip, zstd, oracle].into_iter();
    let all: Vec<Vec<u8>> = plain.chain(texts.map(|text| text.as_bytes().to_vec())).collect();
    let stated =
        (0..guessed).zip(all.clone()).map(|(format, bytes)| [vec![format], bytes].concat());
    all.iter().map(|bytes| [&[guessed][..], bytes].concat()).chain(stated).collect()
}
