"""What the benchmarks have in common: files of numbered rows, and memory cgroups.

Everything that reads through the kernel's page cache has a file and a cgroup of its own: otherwise
it would find in memory what another one has brought in.
"""

import os
from pathlib import Path

import numpy as np


def make(path, size, row):
    """A file whose rows begin with their numbers. It is kept for the next run."""
    count = size // row
    if path.exists() and path.stat().st_size == count * row:
        return
    with open(path, "wb") as file:
        for start in range(0, count, 1 << 16):
            rows = np.zeros((min(1 << 16, count - start), row // 8), "u8")
            rows[:, 0] = np.arange(start, start + len(rows))
            rows.tofile(file)
        os.fsync(file.fileno())


def uncache(path):
    """Takes a file out of the page cache."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def memory_group():
    """The folder of the memory cgroup that this process is in, and the name of its limit."""
    with open("/proc/self/cgroup") as lines:
        groups = [line.rstrip("\n").split(":", 2)[1:] for line in lines]
    first = next((path for names, path in groups if "memory" in names.split(",")), None)
    kind, limit = ("cgroup", "memory.limit_in_bytes") if first else ("cgroup2", "memory.max")
    path = first or next(path for names, path in groups if not names)
    with open("/proc/self/mounts") as lines:
        mounts = [line.split()[1:4] for line in lines]
    for folder, type_, options in mounts:
        if type_ == kind and (kind == "cgroup2" or "memory" in options.split(",")):
            return Path(folder) / path.strip("/"), limit
    raise FileNotFoundError("no memory cgroups are mounted")


class Group:
    """A memory cgroup with a limit, for what a process brings in while it is there. What the
    process allocated before is not charged to it."""

    def __init__(self, limit, name):
        self.before, limit_file = memory_group()
        self.path = self.before / f"lowtide-{name}-{os.getpid()}"
        self.path.mkdir()
        try:
            (self.path / limit_file).write_text(str(limit))
        except OSError:
            self.path.rmdir()
            raise

    def __enter__(self):
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def __exit__(self, *exception):
        (self.before / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self):
        self.path.rmdir()
