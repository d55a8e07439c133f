//! A mapping that is used in one way, and then in the other.

use super::{Map, PATIENCE, READ};
use std::fs::{self, File};
use std::time::Instant;

/// Whether other memory is at the addresses of a mapping.
fn is_mirrored(map: Map) -> bool {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let first = format!("{:x}-", map.start.addr());
    maps.lines().any(|line| line.starts_with(&first) && line.contains("memfd:lowtide"))
}

/// Reads on while the mapping is in this way, but not without end; says in which way it is.
fn read_while(map: Map, mirrored: bool, mut read: impl FnMut(u64)) -> &'static str {
    let (begin, mut seed) = (Instant::now(), 1);
    while is_mirrored(map) == mirrored && begin.elapsed() < PATIENCE {
        read(seed);
        seed += 1;
    }
    if is_mirrored(map) { "mirror" } else { "file" }
}

/// In a process without mirrors each is read in once.
pub(super) fn turns(file: &File, out: &str) {
    let map = Map::whole(file, READ, libc::MAP_SHARED);
    let is_first = is_mirrored(map);
    let random = |seed| _ = map.sum(2000, seed, |_| ());
    map.check();
    random(1);
    let mut ways = vec![if is_first { "mirror" } else { "file" }];
    if is_first {
        ways.push(read_while(map, true, |_| map.check()));
        ways.push(read_while(map, false, random));
        ways.push(read_while(map, true, |_| map.check()));
    }
    fs::write(out, ways.join(" ")).unwrap();
    println!("read");
}
