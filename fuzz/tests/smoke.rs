//! The targets on any machine, without a fuzzer: seeds, and seeds with bytes changed, cut out,
//! doubled and made up. Repeats itself exactly; `LOWTIDE_FUZZ_ROUNDS` makes it longer.

use lowtide_fuzz::{TARGETS, seeds};

struct Rng(u64);

impl Rng {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % n.max(1) as u64) as usize
    }
}

const WORDS: [&[u8]; 8] =
    [b"\xff\xff\xff\xff", b"\0\0\0\0", b"-1", b"18446744073709551616", b",", b"\n", b"\"", b"e999"];

fn mutate(rng: &mut Rng, bytes: &mut Vec<u8>) {
    for _ in 0..1 + rng.below(6) {
        let at = rng.below(bytes.len());
        match rng.below(7) {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << rng.below(8),
            1 if !bytes.is_empty() => bytes[at] = rng.below(256) as u8,
            2 => bytes.truncate(at),
            3 => {
                let end = (at + 1 + rng.below(16)).min(bytes.len());
                drop(bytes.drain(at.min(end)..end));
            }
            4 => {
                let end = (at + 1 + rng.below(64)).min(bytes.len());
                let copy = bytes[at.min(end)..end].to_vec();
                let to = rng.below(bytes.len() + 1);
                bytes.splice(to..to, copy);
            }
            _ => {
                let word = WORDS[rng.below(WORDS.len())];
                let end = (at + word.len()).min(bytes.len());
                bytes.splice(at.min(end)..end, word.iter().copied());
            }
        }
    }
}

#[test]
fn no_target_panics_at_a_seed_or_at_what_is_left_of_one() {
    let rounds = std::env::var("LOWTIDE_FUZZ_ROUNDS").ok().and_then(|text| text.parse().ok());
    for (name, target) in TARGETS {
        let seeds = seeds(name);
        assert!(seeds.len() >= 3, "{name} has too few seeds");
        seeds.iter().for_each(|seed| target(seed));
        let mut rng = Rng(name.len() as u64);
        for round in 0..rounds.unwrap_or(3000) {
            let mut bytes = seeds[round % seeds.len()].clone();
            mutate(&mut rng, &mut bytes);
            let copy = bytes.clone();
            let ended = std::panic::catch_unwind(|| target(&copy));
            assert!(ended.is_ok(), "{name} panics at {:?}", String::from_utf8_lossy(&bytes));
        }
    }
}

/// Writes the seeds as files for a fuzzer:
/// `LOWTIDE_FUZZ_CORPUS=$PWD/fuzz/corpus cargo test … seeds`.
#[test]
fn seeds_can_be_written_as_files() {
    let Some(folder) = std::env::var_os("LOWTIDE_FUZZ_CORPUS") else { return };
    for (name, _) in TARGETS {
        let folder = std::path::Path::new(&folder).join(name);
        std::fs::create_dir_all(&folder).unwrap();
        for (number, seed) in seeds(name).iter().enumerate() {
            std::fs::write(folder.join(format!("seed-{number}")), seed).unwrap();
        }
    }
}
