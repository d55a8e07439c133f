//! A subscriber of `tracing` hears what the runtime decides, and may use the pager meanwhile.

use crate::common::scene::alone;
use crate::common::{Dir, make_file};
use lowtide::budget::AutoLimits;
use lowtide::instruments::{Inject, InjectOp, Request, Verdict};
use lowtide::{Error, HighPolicy, OpenOptions, Pager, Size, Tenant, View};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

const PAGE: u64 = 4096;
/// A test that has waited for so long has failed.
const PATIENCE: Duration = Duration::from_secs(120);

/// What was heard: target, level, fields.
type Heard = (String, Level, BTreeMap<String, String>);

#[derive(Clone, Default)]
struct Ears {
    heard: Arc<Mutex<Vec<Heard>>>,
    /// Asked at every event: it must not be locked then.
    pager: Arc<Mutex<Option<Pager>>>,
}

struct Fields<'a>(&'a mut BTreeMap<String, String>);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }
}

impl Subscriber for Ears {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // By the targets that are documented, as filters do.
        ["auto", "limit", "throttle", "room", "write"]
            .map(|name| format!("lowtide::{name}"))
            .contains(&metadata.target().to_owned())
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        assert!(!lowtide_sys::room::is_inside(), "a subscriber has the program's descriptors");
        let mut fields = BTreeMap::new();
        event.record(&mut Fields(&mut fields));
        let metadata = event.metadata();
        let heard = (metadata.target().to_owned(), *metadata.level(), fields);
        let pager = self.pager.lock().unwrap().clone();
        self.heard.lock().unwrap().push(heard);
        drop(pager.map(|pager| pager.root().usage()));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The one subscriber of this process, so the parts of the test follow each other.
impl Ears {
    fn use_pager(&self, pager: Option<Pager>) {
        let before = std::mem::replace(&mut *self.pager.lock().unwrap(), pager);
        // It may make events when it goes.
        drop(before);
    }

    fn of(&self, target: &str, tenant: &str) -> Vec<(Level, BTreeMap<String, String>)> {
        let heard = self.heard.lock().unwrap();
        let is_it = |(at, _, fields): &&Heard| {
            at == target && (tenant.is_empty() || fields.get("tenant").is_some_and(|t| t == tenant))
        };
        heard.iter().filter(is_it).map(|(_, level, fields)| (*level, fields.clone())).collect()
    }
}

fn read_at_random(view: &View, mut until: impl FnMut() -> bool) {
    let (began, mut random) = (Instant::now(), 1_u64);
    while !until() {
        assert!(began.elapsed() < PATIENCE, "it has not happened");
        for _ in 0..256 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            drop(view.page((random >> 33) % view.page_count()).unwrap());
        }
    }
}

struct Refuse;

impl Inject for Refuse {
    fn before(&self, request: &Request<'_>) -> Verdict {
        match request.op {
            InjectOp::Write => Verdict::Fail(io::Error::from_raw_os_error(libc::EIO)),
            _ => Verdict::Pass,
        }
    }
}

fn limits_and_moves(ears: &Ears, dir: &Dir) {
    let path = make_file(dir, 1024 * PAGE);
    let pager = Pager::builder().max(Size::mib(16)).build().unwrap();
    ears.use_pager(Some(pager.clone()));
    let tenant = pager.tenant("a").create().unwrap();
    let _ = tenant.set_max(Size::mib(8)).unwrap();
    let _ = tenant.set_max(Size::mib(8)).unwrap();
    let set = ears.of("lowtide::limit", "/a");
    assert_eq!(set.len(), 1, "one that is what it was is no event: {set:?}");
    let (level, fields) = &set[0];
    assert_eq!(*level, Level::DEBUG);
    assert_eq!((&*fields["limit"], &*fields["bytes"]), ("max", "8388608"));
    assert_eq!(fields["before_bytes"], u64::MAX.to_string());
    tenant.set_auto(AutoLimits::new(256 << 10, Size::mib(8))).unwrap();
    let view = OpenOptions::new().tenant(&tenant).open(&pager, &path).unwrap();
    let moves = || ears.of("lowtide::auto", "/a");
    read_at_random(&view, || moves().iter().any(|(_, fields)| fields["cause"] == "grow"));
    let number =
        |fields: &BTreeMap<String, String>, name: &str| fields[name].parse::<u64>().unwrap();
    let all = moves();
    let (_, fields) = all.iter().find(|(_, fields)| fields["cause"] == "grow").unwrap();
    assert!(number(fields, "limit_bytes") > number(fields, "before_bytes"), "{fields:?}");
}

fn throttled(ears: &Ears, dir: &Dir) {
    let path = make_file(dir, 2048 * PAGE);
    let pager = Pager::builder().max(4096 * PAGE).build().unwrap();
    ears.use_pager(Some(pager.clone()));
    let tenant: Tenant = pager.tenant("thrasher").high(1024 * PAGE).create().unwrap();
    tenant.set_high_policy(HighPolicy::RefaultRecency).unwrap();
    let view = tenant.open(&path).unwrap();
    let sleeps = || ears.of("lowtide::throttle", "/thrasher");
    read_at_random(&view, || !sleeps().is_empty());
    let (level, fields) = &sleeps()[0];
    assert_eq!((*level, &*fields["cause"]), (Level::DEBUG, "RefaultRecency"));
    assert!(fields["sleep_ns"].parse::<u64>().unwrap() > 0);
}

fn failed_writes_and_no_room(ears: &Ears, dir: &Dir) {
    let path = dir.path().join("written");
    let builder = Pager::builder().max(64 * PAGE).memory_timeout(Duration::ZERO);
    let builder = builder.io_timeout(Duration::from_millis(200));
    let pager = builder.inject(Arc::new(Refuse)).build().unwrap();
    ears.use_pager(Some(pager.clone()));
    let view = OpenOptions::new().create_with_len(256 * PAGE).open(&pager, &path).unwrap();
    view.write_at(0, &[1; 4096]).unwrap();
    view.flush().unwrap_err();
    let (level, fields) = &ears.of("lowtide::write", "")[0];
    assert_eq!(*level, Level::WARN);
    assert!(fields["path"].contains("written") && fields["error"].contains("os error 5"));
    // The first error is the one: without patience a page may find no room that others have left
    // a moment later.
    let mut guards = Vec::new();
    let mut hold = |page| view.page(page).map(|guard| guards.push(guard)).err();
    let error = (1..256).find_map(&mut hold).expect("64 frames hold no more than 64 pages");
    assert!(matches!(error, Error::OutOfBudget { .. }), "{error}");
    let gave_up = ears.of("lowtide::room", "/");
    let (level, fields) = gave_up.last().expect("it is an event");
    assert_eq!((*level, &*fields["limit_bytes"]), (Level::WARN, "262144"));
    drop(guards);
}

#[test]
fn decisions_are_events_and_none_is_made_under_a_lock() {
    alone(|| {
        let ears = Ears::default();
        tracing::subscriber::set_global_default(ears.clone()).unwrap();
        limits_and_moves(&ears, &Dir::new());
        throttled(&ears, &Dir::new());
        failed_writes_and_no_room(&ears, &Dir::new());
        ears.use_pager(None);
    });
}
