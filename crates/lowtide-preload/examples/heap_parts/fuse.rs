//! A file system of one file, served by this process (`fuse(4)`): reads bypass the page cache, and
//! are answered late, as by a network. Meanwhile the kernel has the reader's pages pinned.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::thread;
use std::time::Duration;

/// Bytes of the file.
const SIZE: u64 = 4 << 20;
/// How late an answer is.
const LATE: Duration = Duration::from_millis(8);

const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const RELEASE: u32 = 18;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const INTERRUPT: u32 = 36;
const DESTROY: u32 = 38;
const BATCH_FORGET: u32 = 42;
const FOPEN_DIRECT_IO: u32 = 1;

/// The file, as words that compress. No byte of it is 0xff.
pub(crate) const fn word_of(at: usize) -> u64 {
    ((at / 64) as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) & 0x7f7f_7f7f_7f7f_7f7f
}

/// Bytes of an answer, in order.
#[derive(Default)]
struct Answer(Vec<u8>);

impl Answer {
    fn long(mut self, all: &[u64]) -> Self {
        all.iter().for_each(|one| self.0.extend(one.to_ne_bytes()));
        self
    }

    fn short(mut self, all: &[u32]) -> Self {
        all.iter().for_each(|one| self.0.extend(one.to_ne_bytes()));
        self
    }

    fn attributes(self, node: u64) -> Self {
        let (mode, size) = if node == 1 { (0o40_755, 0) } else { (0o100_644, SIZE) };
        let times = self.long(&[node, size, 0, 0, 0, 0]);
        times.short(&[0, 0, 0, mode, 1, 0, 0, 0, 4096, 0])
    }
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Serves it in a folder until it is unmounted. Says a byte when it can be opened; ends at once
/// where it cannot be mounted.
pub(crate) fn serve(dir: &str) {
    let Ok(device) = OpenOptions::new().read(true).write(true).open("/dev/fuse") else { return };
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
    let [dir, options] = [dir, &options].map(|text| CString::new(text).expect("no zero in it"));
    let (name, kind) = (c"pinned".as_ptr(), c"fuse".as_ptr());
    // SAFETY: texts that end with a zero.
    if unsafe { libc::mount(name, dir.as_ptr(), kind, 0, options.as_ptr().cast()) } != 0 {
        return;
    }
    std::io::stdout().write_all(b"!").and_then(|()| std::io::stdout().flush()).expect("a reader");
    answer_all(&device);
}

fn answer_all(mut device: &File) {
    let mut question = vec![0; 1 << 20];
    while let Ok(len) = device.read(&mut question) {
        let (first, node) = (number(&question, 0), number(&question, 16));
        let body = &question[40..len.max(40)];
        let none = Answer::default();
        let (error, answer) = match (first >> 32) as u32 {
            INIT => (0, none.short(&[7, 31, 0, 0, 0, 1 << 17, 0, 0]).short(&[0; 8])),
            LOOKUP => (0, none.long(&[2, 0, 9, 9]).short(&[0, 0]).attributes(2)),
            GETATTR => (0, none.long(&[9, 0]).attributes(node)),
            OPEN => (0, none.long(&[0]).short(&[FOPEN_DIRECT_IO, 0])),
            READ => {
                thread::sleep(LATE);
                let (from, len) = (number(body, 8), number(body, 16) & 0xffff_ffff);
                let words = from / 8..(from + len).min(SIZE) / 8;
                (0, none.long(&words.map(|at| word_of(at as usize)).collect::<Vec<_>>()))
            }
            FLUSH | RELEASE => (0, none),
            FORGET | BATCH_FORGET | INTERRUPT => continue,
            DESTROY => return,
            _ => (-libc::ENOSYS, none),
        };
        let head = Answer::default().short(&[16 + answer.0.len() as u32, error as u32]);
        let whole = [head.long(&[number(&question, 8)]).0, answer.0].concat();
        // A reader that has gone is no error.
        let _ = device.write(&whole);
    }
}
