//! A database on a view keeps its promises with a budget far smaller than itself.

use crate::common::{Geometry, builder};
use redb::{Database, DatabaseError, ReadableDatabase, ReadableTableMetadata, TableDefinition};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Small, usual and large pages, one and 32 at a time.
const ALL: [Geometry; 6] = [
    Geometry { page: 512, order: 0 },
    Geometry { page: 512, order: 5 },
    Geometry { page: 4096, order: 0 },
    Geometry { page: 4096, order: 5 },
    Geometry { page: 65_536, order: 0 },
    Geometry { page: 65_536, order: 5 },
];
const ROWS: TableDefinition<u64, &[u8]> = TableDefinition::new("rows");

/// What a row holds in one of its versions: up to 800 bytes, so that rows cross pages at every
/// offset.
fn row(key: u64, version: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(key << 16 | version);
    let mut bytes = vec![0; random.usize(0..800)];
    random.fill(&mut bytes);
    bytes
}

/// Stores a version of rows, a commit for each 4 000.
fn store(database: &Database, keys: impl IntoIterator<Item = u64>, version: u64) {
    let keys: Vec<u64> = keys.into_iter().collect();
    for some in keys.chunks(4000) {
        let write = database.begin_write().unwrap();
        {
            let mut table = write.open_table(ROWS).unwrap();
            for &key in some {
                table.insert(key, row(key, version).as_slice()).unwrap();
            }
        }
        write.commit().unwrap();
    }
}

/// Takes rows away, in one commit.
fn remove(database: &Database, keys: impl IntoIterator<Item = u64>) {
    let write = database.begin_write().unwrap();
    {
        let mut table = write.open_table(ROWS).unwrap();
        for key in keys {
            table.remove(key).unwrap();
        }
    }
    write.commit().unwrap();
}

/// Goes through the table, and finds these rows in these versions and no others.
fn holds(database: &Database, expected: &BTreeMap<u64, u64>) {
    let table = database.begin_read().unwrap().open_table(ROWS).unwrap();
    assert_eq!(table.len().unwrap(), expected.len() as u64);
    let mut found = table.range::<u64>(..).unwrap();
    for (&key, &version) in expected {
        let (at, value) = found.next().expect("a row is missing").unwrap();
        assert_eq!(at.value(), key);
        assert!(
            value.value() == row(key, version),
            "row {key} does not hold its version {version}"
        );
    }
    assert!(found.next().is_none());
}

/// Rows of at least four budgets.
fn rows_of(geometry: Geometry) -> u64 {
    geometry.budget() * 4 / 400
}

fn file_len(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

#[test]
fn everything_committed_is_there_after_the_file_is_opened_again() {
    for geometry in ALL {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.redb");
        let rows = rows_of(geometry);
        let mut expected = BTreeMap::new();

        let pager = geometry.pager();
        let database = geometry.open(&pager, &path);
        store(&database, 0..rows, 0);
        store(&database, (0..rows).step_by(3), 1);
        remove(&database, (0..rows).step_by(7));
        for key in 0..rows {
            if !key.is_multiple_of(7) {
                expected.insert(key, u64::from(key.is_multiple_of(3)));
            }
        }
        holds(&database, &expected);
        drop(database);
        pager.validate().unwrap();
        pager.close().unwrap();
        assert!(file_len(&path) > 4 * geometry.budget(), "{geometry:?}: the file fits into memory");

        let pager = geometry.pager();
        let mut database = geometry.open(&pager, &path);
        holds(&database, &expected);
        assert!(database.check_integrity().unwrap(), "{geometry:?}");
        drop(database);

        // The bytes are those that redb's own backend reads.
        let mut database = builder().open(&path).unwrap();
        holds(&database, &expected);
        assert!(database.check_integrity().unwrap(), "{geometry:?}");
    }
}

#[test]
fn compaction_makes_the_file_shorter_and_loses_nothing() {
    // The last has the largest budget, and there is nothing else to it.
    for geometry in ALL.into_iter().take(5) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.redb");
        let pager = geometry.pager();
        let mut database = geometry.open(&pager, &path);
        let rows = rows_of(geometry);

        for round in 0..3 {
            store(&database, 0..rows, round);
            let full = file_len(&path);
            remove(&database, (0..rows).filter(|key| key % 16 != round));
            while database.compact().unwrap() {}
            let expected: BTreeMap<_, _> =
                (0..rows).filter(|key| key % 16 == round).map(|key| (key, round)).collect();
            holds(&database, &expected);
            let compact = file_len(&path);
            assert!(compact < full / 2, "{geometry:?}: {full} bytes became {compact}");
        }
        assert!(database.check_integrity().unwrap(), "{geometry:?}");
        drop(database);
        pager.validate().unwrap();

        let database = geometry.open(&geometry.pager(), &path);
        holds(&database, &(0..rows).filter(|key| key % 16 == 2).map(|key| (key, 2)).collect());
    }
}

#[test]
fn a_transaction_that_is_not_committed_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.redb");
    let geometry = Geometry { page: 4096, order: 0 };
    let pager = geometry.pager();
    let rows = rows_of(geometry);
    let expected: BTreeMap<_, _> = (0..rows).map(|key| (key, 0)).collect();

    let database = geometry.open(&pager, &path);
    store(&database, 0..rows, 0);
    let write = database.begin_write().unwrap();
    {
        // More than redb's cache and the pager's budget hold: all of it has been in the file.
        let mut table = write.open_table(ROWS).unwrap();
        for key in 0..rows {
            table.insert(key, row(key, 1).as_slice()).unwrap();
        }
    }
    write.abort().unwrap();
    holds(&database, &expected);
    drop(database);
    holds(&geometry.open(&pager, &path), &expected);
}

#[test]
fn readers_keep_their_snapshot_while_others_commit() {
    for geometry in [Geometry { page: 512, order: 5 }, Geometry { page: 4096, order: 0 }] {
        let folder = tempfile::tempdir().unwrap();
        let pager = geometry.pager();
        let database = geometry.open(&pager, &folder.path().join("rows.redb"));
        let rows = rows_of(geometry);
        store(&database, 0..rows, 0);

        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..4 {
                        let table = database.begin_read().unwrap().open_table(ROWS).unwrap();
                        let first = table.get(0).unwrap().unwrap().value().to_vec();
                        let version = (0..=4).find(|&version| first == row(0, version)).unwrap();
                        for entry in table.range::<u64>(..).unwrap().rev() {
                            let (key, value) = entry.unwrap();
                            assert!(value.value() == row(key.value(), version));
                        }
                    }
                });
            }
            for version in 1..=4 {
                let write = database.begin_write().unwrap();
                {
                    let mut table = write.open_table(ROWS).unwrap();
                    for key in 0..rows {
                        table.insert(key, row(key, version).as_slice()).unwrap();
                    }
                }
                write.commit().unwrap();
            }
        });
        holds(&database, &(0..rows).map(|key| (key, 4)).collect());
        pager.validate().unwrap();
    }
}

#[test]
fn databases_share_one_budget() {
    let geometry = Geometry { page: 4096, order: 0 };
    let folder = tempfile::tempdir().unwrap();
    let pager = geometry.pager();
    let databases: Vec<_> = (0..4_u64)
        .map(|n| (n, geometry.open(&pager, &folder.path().join(format!("{n}.redb")))))
        .collect();
    let rows = rows_of(geometry);
    std::thread::scope(|scope| {
        for (n, database) in &databases {
            scope.spawn(move || store(database, 0..rows, *n));
        }
    });
    for (n, database) in &databases {
        holds(database, &(0..rows).map(|key| (key, *n)).collect());
    }
    assert!(pager.stat().budget_bytes <= geometry.budget());
}

#[test]
fn no_second_process_opens_the_database() {
    let geometry = Geometry { page: 4096, order: 0 };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.redb");
    let pager = geometry.pager();
    let database = geometry.open(&pager, &path);
    store(&database, 0..100, 0);
    assert!(matches!(builder().open(&path), Err(DatabaseError::DatabaseAlreadyOpen)));
    drop(database);
    let database = builder().open(&path).unwrap();
    assert!(lowtide::OpenOptions::new().write(true).open(&pager, &path).is_err());
    holds(&database, &(0..100).map(|key| (key, 0)).collect());
}
