//! One memory cgroup that lowtide made: its limit, its processes, its counters, its end.
//!
//! The group exists as a directory. `mkdir` makes it, its settings are files, a process is moved in
//! by writing its id to a file, and `rmdir` ends it, which the kernel refuses while a process is
//! inside. So dropping a [`Memcg`] first moves the processes that are left back to the group that
//! this process came from.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use super::error::is_refusal;
use super::locate::{Parent, Place, find, first_of, parents};
use super::{MemcgError, Version};

/// How often the removal is tried, and how long it waits in between. A process that was just killed
/// stays in the group until the kernel has taken its memory apart, which takes milliseconds a
/// gigabyte. Guess, generous.
const REMOVE_TRIES: u32 = 100;
const REMOVE_WAIT: Duration = Duration::from_millis(5);

/// A memory cgroup with a limit, removed on drop.
///
/// ```no_run
/// use lowtide_host::memcg::Memcg;
///
/// let group = Memcg::create("peer", 1 << 30)?;
/// let child = std::process::Command::new("sleep").arg("1").spawn().expect("sleep starts");
/// group.add(child.id())?;
/// println!("{} of {} bytes", group.usage()?, group.limit()?);
/// # Ok::<(), lowtide_host::memcg::MemcgError>(())
/// ```
#[derive(Debug)]
pub struct Memcg {
    version: Version,
    path: PathBuf,
    /// The group that this process was in at creation, where processes left at the end go.
    home: PathBuf,
}

impl Memcg {
    /// Makes a group whose memory is limited to `limit_bytes` (rounded down to whole pages by the
    /// kernel), without swap.
    ///
    /// `name_hint` becomes part of the directory's name; letters, digits, `-` and `_` of it are
    /// kept. Names are unique on the machine.
    ///
    /// # Errors
    ///
    /// [`MemcgError::NoController`] when no hierarchy has the memory controller,
    /// [`MemcgError::NotGiven`] when this container does not get it, [`MemcgError::NotPermitted`]
    /// when this process may not make a group (the message says what to do), [`MemcgError::Io`]
    /// when a setting is refused. Nothing is left behind then.
    pub fn create(name_hint: &str, limit_bytes: u64) -> Result<Memcg, MemcgError> {
        let place = find()?;
        remove_leftovers(&place);
        first_of(&place, |parent| {
            parent.hand_down()?;
            Memcg::create_in(parent, &place, name_hint, limit_bytes)
        })
    }

    fn create_in(
        parent: &Parent,
        place: &Place,
        name_hint: &str,
        limit_bytes: u64,
    ) -> Result<Memcg, MemcgError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let hint: String = name_hint
            .chars()
            .filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
            .take(64)
            .collect();
        let path = loop {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = parent.dir.join(format!("lowtide-{hint}-{}-{count}", std::process::id()));
            match fs::create_dir(&path) {
                Ok(()) => break path,
                // Left by a process of the same id that was killed before it could clean up.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) if is_refusal(&error) => return Err(parent.refused(&error)),
                Err(error) => return Err(MemcgError::io("make a group in", &parent.dir, error)),
            }
        };
        // From here on the drop removes the directory, whatever fails.
        let group = Memcg { version: place.version, path, home: place.own.clone() };
        group.set_limit(limit_bytes)?;
        group.forbid_swap();
        Ok(group)
    }

    /// Keeps the group from swapping, where the kernel has swap accounting; without it there is
    /// nothing to set.
    fn forbid_swap(&self) {
        let _ = fs::write(self.path.join(self.swap_file()), "0");
    }

    const fn swap_file(&self) -> &'static str {
        match self.version {
            Version::V1 => "memory.swappiness",
            Version::V2 => "memory.swap.max",
        }
    }

    /// Lets the group swap as the machine does by default: [`create`](Memcg::create) forbids it.
    ///
    /// # Errors
    ///
    /// [`MemcgError::Io`], also where the kernel has no accounting of swap.
    pub fn allow_swap(&self) -> Result<(), MemcgError> {
        let (path, value) = match self.version {
            Version::V1 => (self.path.join(self.swap_file()), "60"),
            Version::V2 => (self.path.join(self.swap_file()), "max"),
        };
        fs::write(&path, value).map_err(|error| MemcgError::io("allow swap in", &path, error))
    }

    /// Changes the limit, in bytes (rounded down to whole pages by the kernel; at least one page is
    /// kept).
    ///
    /// Lowering it below the usage makes the kernel reclaim first, which takes as long as the pages
    /// need.
    ///
    /// # Errors
    ///
    /// [`MemcgError::Io`]: version 1 refuses with `EBUSY` a limit that it cannot reclaim down to.
    /// (Version 2 sets it and kills processes of the group instead.)
    pub fn set_limit(&self, limit_bytes: u64) -> Result<(), MemcgError> {
        let page = lowtide_sys::memory::page_size() as u64;
        let bytes = (limit_bytes - limit_bytes % page).max(page);
        // Both versions take the largest page count for "no limit"; version 1 reads its argument as
        // signed.
        let bytes = bytes.min(i64::MAX.cast_unsigned());
        self.write(self.limit_file(), &bytes.to_string())
    }

    /// The limit in bytes as the kernel understood it, or `u64::MAX` for none.
    ///
    /// # Errors
    ///
    /// [`MemcgError::Io`] when another process has removed the group.
    pub fn limit(&self) -> Result<u64, MemcgError> {
        let page = lowtide_sys::memory::page_size() as u64;
        let unlimited = i64::MAX.cast_unsigned() / page * page;
        let file = self.limit_file();
        let text = self.read(file)?;
        match text.trim() {
            "max" => Ok(u64::MAX),
            number => {
                let bytes = self.number(file, number)?;
                Ok(if bytes >= unlimited { u64::MAX } else { bytes })
            }
        }
    }

    /// The bytes charged at this moment: memory of its processes, their page cache, and the
    /// kernel's memory for them.
    ///
    /// # Errors
    ///
    /// As for [`Memcg::limit`].
    pub fn usage(&self) -> Result<u64, MemcgError> {
        let file = match self.version {
            Version::V1 => "memory.usage_in_bytes",
            Version::V2 => "memory.current",
        };
        let text = self.read(file)?;
        self.number(file, text.trim())
    }

    /// The counters of `memory.stat`, under the kernel's names. The two versions use different
    /// names, and bytes and event counts share the map.
    ///
    /// # Errors
    ///
    /// As for [`Memcg::limit`].
    pub fn stat(&self) -> Result<BTreeMap<String, u64>, MemcgError> {
        Ok(parse_stat(&self.read("memory.stat")?))
    }

    /// Moves a process, with all its threads, into the group. What it touches for the first time
    /// from now on is charged here, page cache included; what was charged before stays where it is.
    ///
    /// # Errors
    ///
    /// [`MemcgError::Io`]: `ESRCH` for a process that has ended, `EACCES` for one of another user
    /// or group tree.
    pub fn add(&self, pid: u32) -> Result<(), MemcgError> {
        self.write("cgroup.procs", &pid.to_string())
    }

    /// The processes inside.
    ///
    /// # Errors
    ///
    /// As for [`Memcg::limit`].
    pub fn processes(&self) -> Result<Vec<u32>, MemcgError> {
        Ok(self.read("cgroup.procs")?.lines().filter_map(|line| line.parse().ok()).collect())
    }

    /// Requests that the kernel reclaim all it can: clean page cache at once, dirty page cache
    /// after writing it.
    ///
    /// What cannot be reclaimed stays, and that is not an error. May do I/O.
    ///
    /// # Errors
    ///
    /// [`MemcgError::Io`]: version 2 before Linux 5.19 has no such request (`ENOENT`).
    pub fn reclaim(&self) -> Result<(), MemcgError> {
        let (file, amount) = match self.version {
            Version::V1 => ("memory.force_empty", 0),
            Version::V2 => ("memory.reclaim", self.usage()?),
        };
        match self.write(file, &amount.to_string()) {
            // "Less than requested", and "something is still in use".
            Err(MemcgError::Io { source, .. })
                if matches!(source.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY)) =>
            {
                Ok(())
            }
            done => done,
        }
    }

    /// Which interface the group has.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// The directory of the group.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn limit_file(&self) -> &'static str {
        match self.version {
            Version::V1 => "memory.limit_in_bytes",
            Version::V2 => "memory.max",
        }
    }

    fn read(&self, file: &str) -> Result<String, MemcgError> {
        let path = self.path.join(file);
        fs::read_to_string(&path).map_err(|source| MemcgError::io("read", path, source))
    }

    /// Settings are existing files; a file that is not there must not be created, and cgroupfs
    /// would refuse it anyway.
    fn write(&self, file: &str, text: &str) -> Result<(), MemcgError> {
        let path = self.path.join(file);
        let written = fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .and_then(|mut f| io::Write::write_all(&mut f, text.as_bytes()));
        written.map_err(|source| MemcgError::io(format!("write {text:?} to"), path, source))
    }

    fn number(&self, file: &str, text: &str) -> Result<u64, MemcgError> {
        text.parse().map_err(|_| {
            let source = io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{text:?} is not a number of bytes"),
            );
            MemcgError::io("read", self.path.join(file), source)
        })
    }
}

impl Drop for Memcg {
    fn drop(&mut self) {
        for attempt in 0..REMOVE_TRIES {
            for pid in self.processes().unwrap_or_default() {
                // It may have ended meanwhile, and then needs no home.
                let _ = fs::write(self.home.join("cgroup.procs"), pid.to_string());
            }
            if self.version == Version::V1 && attempt == 0 {
                // Otherwise the page cache left behind is charged to the parent from now on.
                let _ = self.reclaim();
            }
            match fs::remove_dir(&self.path) {
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                    thread::sleep(REMOVE_WAIT);
                }
                // Removed, by us or by another process, or not removable; a drop cannot report an
                // error.
                _ => return,
            }
        }
    }
}

/// Removes groups that lowtide processes have made and, being killed, not removed. A group whose
/// process lives stays, and so does one with processes inside, which the kernel refuses to remove.
fn remove_leftovers(place: &Place) {
    for parent in parents(place) {
        for entry in fs::read_dir(parent.dir).into_iter().flatten().flatten() {
            let Some(pid) = maker(&entry.file_name().to_string_lossy()) else { continue };
            if !Path::new("/proc").join(pid.to_string()).exists() {
                if place.version == Version::V1 {
                    let _ = fs::write(entry.path().join("memory.force_empty"), "0");
                }
                // Whatever prevents it will prevent it for the next run, too; this one has a group
                // of its own.
                let _ = fs::remove_dir(entry.path());
            }
        }
    }
}

/// The process that made a group of this name, if it is one of lowtide's: `lowtide-HINT-PID-COUNT`.
fn maker(name: &str) -> Option<u32> {
    let mut parts = name.strip_prefix("lowtide-")?.rsplitn(3, '-');
    let (count, pid, _hint) = (parts.next()?, parts.next()?, parts.next()?);
    count.parse::<u32>().ok()?;
    pid.parse().ok()
}

/// Lines of `name value`. Lines of any other form are left out: kernels differ in what they add.
fn parse_stat(text: &str) -> BTreeMap<String, u64> {
    text.lines()
        .filter_map(|line| {
            let (name, value) = line.split_once(' ')?;
            Some((name.to_owned(), value.trim().parse().ok()?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};

    /// A group, or nothing and a message where this machine has none.
    fn group(limit_bytes: u64) -> Option<Memcg> {
        match Memcg::create("test!", limit_bytes) {
            Ok(group) => Some(group),
            Err(error @ (MemcgError::NoController { .. } | MemcgError::NotPermitted { .. })) => {
                eprintln!("SKIPPED: {error}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn a_limit_is_page_exact_and_can_be_changed() {
        let Some(group) = group((32 << 20) + 1) else { return };
        assert!(group.path().is_dir());
        let name = group.path().file_name().unwrap().to_str().unwrap().to_owned();
        assert!(name.starts_with(&format!("lowtide-test-{}-", std::process::id())), "{name}");
        assert_eq!(group.limit().unwrap(), 32 << 20);
        group.set_limit(48 << 20).unwrap();
        assert_eq!(group.limit().unwrap(), 48 << 20);
        group.set_limit(u64::MAX).unwrap();
        assert_eq!(group.limit().unwrap(), u64::MAX);
        group.set_limit(0).unwrap();
        assert_eq!(group.limit().unwrap(), lowtide_sys::memory::page_size() as u64);
    }

    #[test]
    fn groups_of_killed_processes_are_removed_by_the_next_and_those_of_living_ones_stay() {
        let Some(group) = group(1 << 20) else { return };
        let parent = group.path().parent().unwrap().to_owned();
        let mut child = Command::new("true").spawn().unwrap();
        let dead = child.id();
        child.wait().unwrap();
        let left = parent.join(format!("lowtide-left-behind-{dead}-0"));
        let own = parent.join(format!("lowtide-own-{}-99", std::process::id()));
        let other = parent.join(format!("lowtide-{dead}"));
        for path in [&left, &own, &other] {
            fs::create_dir(path).unwrap();
        }
        drop(Memcg::create("next", 1 << 20).unwrap());
        let there = [&left, &own, &other].map(|path| path.exists());
        for path in [&left, &own, &other] {
            let _ = fs::remove_dir(path);
        }
        assert_eq!(there, [false, true, true]);
        assert!(group.path().exists());
    }

    #[test]
    fn groups_do_not_share_a_name_and_vanish_on_drop() {
        let (Some(one), Some(two)) = (group(1 << 20), group(1 << 20)) else { return };
        assert_ne!(one.path(), two.path());
        let paths = [one.path().to_owned(), two.path().to_owned()];
        drop((one, two));
        assert!(paths.iter().all(|path| !path.exists()));
    }

    /// A process that reads far more of a file than its limit stays below it, and its page cache is
    /// charged to its group. The shell waits for a line on its input, so that it reads nothing
    /// before it is inside.
    #[test]
    fn the_kernel_keeps_a_process_within_its_limit_and_charges_its_page_cache() {
        const LIMIT: u64 = 16 << 20;
        let Some(group) = group(LIMIT) else { return };
        let dir = tempfile::tempdir_in(".").unwrap();
        if crate::file::fs_name(dir.path()).unwrap() == "tmpfs" {
            eprintln!(
                "SKIPPED: the working directory is on tmpfs, whose pages cannot be reclaimed"
            );
            return;
        }
        let path = dir.path().join("data");
        fs::write(&path, vec![1u8; 64 << 20]).unwrap();
        crate::file::drop_page_cache(fs::File::open(&path).unwrap()).unwrap();

        let mut shell = Command::new("sh")
            .args(["-c", "read line; cat \"$0\" > /dev/null; echo done; read line"])
            .arg(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        group.add(shell.id()).unwrap();
        assert_eq!(group.processes().unwrap(), [shell.id()]);
        let mut input = shell.stdin.take().unwrap();
        input.write_all(b"go\n").unwrap();
        let mut done = String::new();
        io::BufRead::read_line(&mut io::BufReader::new(shell.stdout.take().unwrap()), &mut done)
            .unwrap();
        assert_eq!(done, "done\n");

        let usage = group.usage().unwrap();
        assert!(usage <= LIMIT, "{usage} bytes are charged");
        // Counters of memory.stat are flushed late; usage is exact. Most of the limit must be page
        // cache by now.
        assert!(usage > LIMIT / 2, "only {usage} bytes are charged after reading 64 MiB");
        let stat = group.stat().unwrap();
        assert!(stat.contains_key("pgfault") && stat.len() > 10, "{stat:?}");

        group.reclaim().unwrap();
        let left = group.usage().unwrap();
        assert!(left < usage / 2, "{left} of {usage} bytes are left after reclaim");

        // The shell still lives: the drop sends it home and removes the group.
        let path = group.path().to_owned();
        drop(group);
        assert!(!path.exists());
        input.write_all(b"end\n").unwrap();
        assert!(shell.wait().unwrap().success());
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        let Some(group) = group(1 << 20) else { return };
        let error = group.add(u32::MAX >> 1).unwrap_err();
        assert!(matches!(error, MemcgError::Io { .. }));
        assert!(error.to_string().contains("cgroup.procs"), "{error}");
    }

    #[test]
    fn stat_takes_the_lines_it_knows_how_to_read() {
        let stat = parse_stat("cache 4096\nrss 0\nbroken\nnegative -1\npgfault 12\n");
        assert_eq!(
            stat.into_iter().collect::<Vec<_>>(),
            [("cache".to_owned(), 4096), ("pgfault".to_owned(), 12), ("rss".to_owned(), 0)]
        );
    }
}
