//! A process that commits is killed at any moment. Each commit that it acknowledged is there when
//! the file is opened again, through lowtide or through redb's own backend, and nothing else is.
//!
//! `LOWTIDE_KILLS` says how often (20).

use crate::common::{Geometry, LOCK_PATIENCE, builder};
use redb::TableDefinition;
use redb::{
    Database, DatabaseError, Durability, ReadableDatabase, ReadableTable, ReadableTableMetadata,
};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const ROWS: TableDefinition<u64, &[u8]> = TableDefinition::new("rows");
/// Under the key 0: the number of the last commit.
const LAST: TableDefinition<u64, u64> = TableDefinition::new("last");
const KEYS: u64 = 6000;
const GEOMETRIES: [Geometry; 5] = [
    Geometry { page: 4096, order: 0 },
    Geometry { page: 512, order: 0 },
    Geometry { page: 4096, order: 5 },
    Geometry { page: 512, order: 5 },
    Geometry { page: 65_536, order: 0 },
];

fn row(key: u64, commit: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(commit * KEYS + key);
    let mut bytes = vec![0; random.usize(0..2500)];
    random.fill(&mut bytes);
    bytes
}

/// What a commit does, which only its number decides: rows that it writes, and rows that it
/// removes.
fn changes(commit: u64) -> Vec<(u64, bool)> {
    let mut random = fastrand::Rng::with_seed(commit);
    if empties(commit) {
        return (0..KEYS).filter(|key| key % 16 != commit % 16).map(|key| (key, false)).collect();
    }
    let many = if random.u8(..) < 16 { 1500 } else { 150 };
    (0..random.u64(1..many)).map(|_| (random.u64(0..KEYS), random.u8(..) < 200)).collect()
}

/// Whether a commit removes almost everything, so that the file can be made shorter.
fn empties(commit: u64) -> bool {
    commit.is_multiple_of(40)
}

/// Rows, and the commits that wrote them.
#[derive(Default)]
struct Model {
    commit: u64,
    rows: BTreeMap<u64, u64>,
}

impl Model {
    fn advance(&mut self, to: u64) {
        for commit in self.commit + 1..=to {
            for (key, written) in changes(commit) {
                if written {
                    self.rows.insert(key, commit);
                } else {
                    self.rows.remove(&key);
                }
            }
        }
        self.commit = to;
    }

    /// Finds the model's rows in a database, and nothing else, after its last commit, which is one
    /// of two.
    fn check(&mut self, database: &Database, acknowledged: u64) {
        let read = database.begin_read().unwrap();
        let last = read.open_table(LAST).map_or(0, |table| table.get(0).unwrap().unwrap().value());
        // One more than was acknowledged: it was killed between the two.
        assert!(
            last == acknowledged || last == acknowledged + 1,
            "{acknowledged} acknowledged, {last} there"
        );
        self.advance(last);
        if last == 0 {
            return;
        }
        let table = read.open_table(ROWS).unwrap();
        assert_eq!(table.len().unwrap(), self.rows.len() as u64);
        let mut found = table.range::<u64>(..).unwrap();
        for (&key, &commit) in &self.rows {
            let (at, value) = found.next().expect("a row is missing").unwrap();
            assert_eq!(at.value(), key);
            assert!(
                value.value() == row(key, commit),
                "row {key} is not what commit {commit} wrote"
            );
        }
        assert!(found.next().is_none());
    }
}

/// Opens a database, and asks again while a dead process holds its lock.
fn patiently(open: impl Fn() -> Result<Database, DatabaseError>) -> Database {
    let began = Instant::now();
    loop {
        match open() {
            Err(DatabaseError::DatabaseAlreadyOpen) if began.elapsed() < LOCK_PATIENCE => {
                std::thread::sleep(Duration::from_millis(2));
            }
            opened => return opened.unwrap(),
        }
    }
}

fn child(path: &Path, geometry: Geometry) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::commits_until_it_is_killed", "--ignored", "--nocapture"])
        .env("LOWTIDE_CHILD_FILE", path)
        .env("LOWTIDE_CHILD_PAGE", geometry.page.to_string())
        .env("LOWTIDE_CHILD_ORDER", geometry.order.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The commits that a process acknowledges, until it is no more.
fn commits_of(process: &mut Child) -> impl Iterator<Item = u64> + Send + use<> {
    let lines = BufReader::new(process.stdout.take().unwrap()).lines().map_while(Result::ok);
    lines.filter_map(|line| line.split_once("committed ")?.1.parse().ok())
}

#[test]
#[ignore = "the process that the other test kills"]
fn commits_until_it_is_killed() {
    let setting = |name: &str| std::env::var(format!("LOWTIDE_CHILD_{name}")).ok();
    let Some(path) = setting("FILE") else { return };
    let geometry = Geometry {
        page: setting("PAGE").unwrap().parse().unwrap(),
        order: setting("ORDER").unwrap().parse().unwrap(),
    };
    let mut database = geometry.open(&geometry.pager(), path.as_ref());
    let mut out = std::io::stdout();
    loop {
        let mut write = database.begin_write().unwrap();
        write.set_durability(Durability::Immediate).unwrap();
        let commit = {
            let mut last = write.open_table(LAST).unwrap();
            let commit = last.get(0).unwrap().map_or(0, |last| last.value()) + 1;
            last.insert(0, commit).unwrap();
            let mut table = write.open_table(ROWS).unwrap();
            for (key, written) in changes(commit) {
                if written {
                    table.insert(key, row(key, commit).as_slice()).unwrap();
                } else {
                    table.remove(key).unwrap();
                }
            }
            commit
        };
        write.commit().unwrap();
        // One write: a line is there or not.
        out.write_all(format!("committed {commit}\n").as_bytes()).unwrap();
        out.flush().unwrap();
        if empties(commit) {
            database.compact().unwrap();
        }
    }
}

#[test]
fn acknowledged_commits_survive_kills_at_any_moment() {
    let kills: u64 = std::env::var("LOWTIDE_KILLS").map_or(20, |text| text.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let mut models: Vec<_> = GEOMETRIES.iter().map(|_| Model::default()).collect();
    let path_of = |Geometry { page, order }| folder.path().join(format!("{page}-{order}.redb"));
    // redb opens no file whose making was cut short, not even its own.
    for geometry in GEOMETRIES {
        drop(geometry.open(&geometry.pager(), &path_of(geometry)));
    }
    let mut longest = Duration::ZERO;
    for kill in 0..kills {
        let which = (kill % GEOMETRIES.len() as u64) as usize;
        let (geometry, model) = (GEOMETRIES[which], &mut models[which]);
        let path = path_of(geometry);

        let mut process = child(&path, geometry);
        let mut commits = commits_of(&mut process);
        let mut acknowledged = model.commit;
        // Every other time it is killed while it commits, else perhaps while it opens the database.
        if kill % 2 == 1 {
            acknowledged = commits.next().expect("no commit came");
        }
        let rest = std::thread::spawn(move || commits.last());
        std::thread::sleep(Duration::from_micros(fastrand::u64(0..300_000)));
        process.kill().unwrap();
        process.wait().unwrap();
        let acknowledged = rest.join().unwrap().unwrap_or(acknowledged);

        let began = Instant::now();
        let pager = geometry.pager();
        let mut database = if (kill / GEOMETRIES.len() as u64).is_multiple_of(2) {
            geometry.open(&pager, &path)
        } else {
            patiently(|| builder().create(&path))
        };
        longest = longest.max(began.elapsed());
        model.check(&database, acknowledged);
        if kill % 10 == 9 {
            assert!(database.check_integrity().unwrap(), "kill {kill}: {geometry:?}");
        }
    }
    let commits: u64 = models.iter().map(|model| model.commit).sum();
    println!("{kills} kills, {commits} commits, none lost; the slowest open took {longest:?}");
    assert!(commits > 0, "no process lived long enough to commit");
}
