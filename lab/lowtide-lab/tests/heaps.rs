//! Promise: a heap of several budgets is played on real memory, every load is checked, and what is
//! in swap fits beside the pages in the budget.

use crate::common::{files, results, rows, run, text};

const BUDGET: u64 = 8 << 20;

#[test]
fn a_heap_of_several_budgets_is_compressed_swapped_to_a_file_and_found_whole() {
    let dir = tempfile::tempdir().unwrap();
    let sizes = ["--max", "8M", "--ratio", "2,4", "--seconds", "1", "--rounds", "2"];
    let peers = ["--against", "pointer,no-limit", "--policy", "mglru,lru"];
    let args = [&["bench", "anon-zipf"][..], &sizes, &peers].concat();
    let results = results(dir.path(), &args);
    let found = rows(&results);
    let systems: Vec<_> = found.iter().map(|row| row["system"].as_str().unwrap()).collect();
    let of_size = |systems: &[&str]| match systems {
        ["lowtide", "lowtide", "no limit"] => eprintln!("SKIPPED: no pointer to a heap here"),
        other => {
            let (guards, pointer) = ("lowtide", "lowtide pointer");
            assert_eq!(other, [guards, guards, pointer, pointer, "no limit"]);
        }
    };
    systems.chunks(systems.len() / 2).for_each(of_size);
    for row in found {
        assert_eq!((&row["errors"], &row["rounds"]), (&0.into(), &2.into()), "{row}");
        assert_eq!(row["verified"], row["ops"], "each operation checks its page: {row}");
        assert!(row["ops"].as_u64() > Some(1000), "{row}");
    }
    for row in found.iter().filter(|row| row["system"] != "no limit") {
        let data = row["data_bytes"].as_u64().unwrap();
        let swapped = row["swap_bytes"].as_u64().unwrap();
        assert!((data - BUDGET..data).contains(&swapped), "{row}");
        assert!(row["zram_bytes"].as_u64() <= Some(BUDGET / 2), "{row}");
        assert!(row["stat"]["pswpin"].as_u64() > Some(0), "{row}");
    }
    assert_eq!(files(dir.path()), [""; 0], "a swap file has no name");
}

#[test]
fn none_stands_alone() {
    let output = run(&["bench", "anon-zipf", "--against", "none,no-limit"]);
    assert_eq!(output.status.code(), Some(2));
    let message = text(&output.stderr);
    assert!(message.starts_with("lowtide-lab: ") && message.contains("--against"), "{message}");
}
