//! Maps of a file on a device that cannot read a part of itself: a loop device whose own file was
//! cut. No injection: the error comes from the kernel's block layer.

#![expect(unsafe_code, reason = "mapping is unsafe, and so is fork")]

use crate::common::mapped::{PAGE, pager};
use crate::common::scene::{SKIPPED, assert_well, child, private_mounts};
use lowtide::map::{Map, MapError, MapMode, MapOptions};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

/// Pages of the file: more than the pages of the device that can be read.
const PAGES: usize = 3072;
/// Bytes of the device that are left.
const LEFT: u64 = 8 << 20;

fn done(program: &str, args: &[&str]) -> bool {
    match Command::new(program).args(args).output() {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            eprintln!("{program}: {}", String::from_utf8_lossy(&output.stderr));
            false
        }
        Err(error) => {
            eprintln!("{program}: {error}");
            false
        }
    }
}

/// A file on a device of which a part cannot be read, mounted for this process alone.
fn broken_file(dir: &Path) -> Option<File> {
    let (image, mounted) = (dir.join("image"), dir.join("mounted"));
    let [image, mounted] = [&image, &mounted].map(|path| path.to_str().unwrap());
    File::create(image).unwrap().set_len(32 << 20).unwrap();
    std::fs::create_dir(mounted).unwrap();
    let made = ["-q", "-F", "-b", "4096", "-O", "^has_journal", image];
    if !private_mounts()
        || !done("mkfs.ext4", &made)
        || !done("mount", &["-t", "ext4", "-o", "loop", image, mounted])
    {
        return None;
    }
    let path = Path::new(mounted).join("data");
    let mut file = File::create(&path).unwrap();
    for page in 0..PAGES {
        file.write_all(&[page as u8 | 1; PAGE]).unwrap();
    }
    file.sync_all().unwrap();
    let file = File::open(path).unwrap();
    lowtide_sys::page_cache::drop_cached(&file, 0, 0).unwrap();
    File::options().write(true).open(image).unwrap().set_len(LEFT).unwrap();
    // It has no name from here on, and goes with its last descriptor.
    done("umount", &["-l", mounted]).then_some(file)
}

/// What a system call makes of a page of memory: its bytes, or nothing where a touch would be
/// SIGBUS.
fn through_the_kernel(map: &Map, page: usize) -> Option<Vec<u8>> {
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    let bytes = &map[page * PAGE..(page + 1) * PAGE];
    match writer.write(bytes) {
        Err(error) if error.raw_os_error() == Some(libc::EFAULT) => None,
        written => {
            let mut copy = vec![0; written.unwrap()];
            reader.read_exact(&mut copy).unwrap();
            Some(copy)
        }
    }
}

/// The signal of a child that touches a page.
fn signal_of_a_touch(map: &Map, page: usize) -> Option<i32> {
    // SAFETY: the child loads memory, and ends.
    let id = unsafe { libc::fork() };
    assert!(id >= 0);
    if id == 0 {
        // SAFETY: resetting a handler, so that the signal ends the child without a report.
        unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
        std::hint::black_box(map[page * PAGE]);
        // SAFETY: ends the child without the handlers of its parent.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: the status is written to an integer that lives.
    assert_eq!(unsafe { libc::waitpid(id, &raw mut status, 0) }, id);
    libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status))
}

fn read_all_of_a_broken_device(way: MapMode) -> i32 {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let Some(file) = broken_file(dir.path()) else {
        eprintln!("no loop device can be mounted here");
        return SKIPPED;
    };
    // Page by page: of a large folio the kernel reads all or nothing.
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
    let readable: Vec<bool> = (0..PAGES)
        .map(|page| {
            let mut bytes = [0; PAGE];
            file.read_exact_at(&mut bytes, (page * PAGE) as u64).is_ok()
        })
        .collect();
    let bad = readable.iter().filter(|readable| !**readable).count();
    assert!(bad > 100 && PAGES - bad > 100, "{bad} pages cannot be read");
    let pager = pager("1M");
    // SAFETY: nothing changes the file.
    let map = match unsafe { MapOptions::new().mode(way).map(&pager, &file) } {
        Err(error @ MapError::Mode { .. }) => {
            eprintln!("{error}");
            return SKIPPED;
        }
        map => map.unwrap(),
    };
    for round in 0..2 {
        for (page, readable) in readable.iter().enumerate() {
            let wanted = readable.then(|| vec![page as u8 | 1; PAGE]);
            let got = through_the_kernel(&map, page);
            assert!(got == wanted, "page {page} in round {round}: {:?}", got.map(|got| got[0]));
        }
    }
    if way == MapMode::PageCache {
        let first_bad = readable.iter().position(|readable| !readable).unwrap();
        let good = readable.iter().position(|readable| *readable).unwrap();
        assert_eq!(signal_of_a_touch(&map, first_bad), Some(libc::SIGBUS));
        assert_eq!(signal_of_a_touch(&map, good), None);
    } else {
        let error = map.error().expect("the reason").to_string();
        assert!(error.contains("os error 5"), "{error}");
    }
    drop(map);
    pager.validate().unwrap();
    0
}

#[test]
fn pages_that_a_device_cannot_read_are_sigbus_in_a_mapping_and_the_others_have_their_bytes() {
    let played = child(|| read_all_of_a_broken_device(MapMode::PageCache));
    played.iter().for_each(assert_well);
}

#[test]
fn pages_that_a_device_cannot_read_fail_in_a_mirror_and_the_others_have_their_bytes() {
    let played = child(|| read_all_of_a_broken_device(MapMode::Userfault));
    played.iter().for_each(assert_well);
}
