#!/usr/bin/env python3
"""Random rows of a file larger than its budget: `lowtide.View.rows`, numpy.memmap, and pread.

All have the same budget: lowtide as `max`, the others as the limit of a memory cgroup, in which
their page cache is charged (root, or the owner of a cgroup; without one they are left out). They
read the same rows in the same order, take turns in short rounds, and the first element of every
row, which is its number, is compared.

    bench/gather.py --size 2G --max 512M --skew hot --threads 1
    bench/gather.py --size 2G --max 512M --skew alike --threads 8 --json alike-8.json

A machine that does other things meanwhile measures these.
"""

import argparse
import contextlib
import json
import mmap
import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

import lowtide
from lowtide._lowtide import parse_size


def arguments():
    parse = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parse.add_argument("--size", type=parse_size, default="2G", help="bytes of the file")
    parse.add_argument("--max", type=parse_size, default="512M", help="the budget")
    parse.add_argument("--row", type=int, default=512, help="bytes of a row")
    parse.add_argument("--batch", type=int, default=10_000, help="rows of a call")
    parse.add_argument("--threads", type=int, default=1)
    parse.add_argument("--skew", choices=["hot", "alike"], default="hot")
    parse.add_argument("--seconds", type=float, default=3, help="of a round")
    parse.add_argument("--rounds", type=int, default=3)
    parse.add_argument("--dir", default=tempfile.gettempdir(), help="where the file is made")
    parse.add_argument("--json", help="a file for the result")
    parse.add_argument("--only", help="names of what is asked, separated by commas")
    return parse.parse_args()


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


class Draw:
    """Batches of rows: nine tenths from a twentieth of the file, or all alike."""

    def __init__(self, count, batch, skew, seed):
        self.random, self.count, self.batch = np.random.default_rng(seed), count, batch
        # The hot rows are everywhere in the file, and the same in all rounds.
        hot = np.random.default_rng(7).permutation(count)[: count // 20]
        self.hot = hot if skew == "hot" else None

    def __call__(self):
        if self.hot is None:
            return self.random.integers(0, self.count, self.batch)
        ids = self.hot[self.random.integers(0, len(self.hot), self.batch)]
        cold = self.random.random(self.batch) >= 0.9
        ids[cold] = self.random.integers(0, self.count, int(cold.sum()))
        return ids


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
    """A memory cgroup with a limit, for what a process brings in while it is there."""

    def __init__(self, limit):
        self.before, name = memory_group()
        self.path = self.before / f"lowtide-gather-{os.getpid()}"
        self.path.mkdir()
        try:
            (self.path / name).write_text(str(limit))
        except OSError:
            self.path.rmdir()
            raise

    def __enter__(self):
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def __exit__(self, *exception):
        (self.before / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self):
        self.path.rmdir()


class Rows:
    """lowtide: one call for a batch."""

    def __init__(self, path, given, group):
        self.view = lowtide.open(path, max=given.max, lock=False)
        self.shape = given.row // 8

    def gather(self, ids, out):
        self.view.rows(ids, "u8", self.shape, out=out)

    def close(self):
        self.view.close()


class OfTheKernel:
    """What is read through the page cache, in the cgroup."""

    def __init__(self, path, given, group):
        self.file = os.open(path, os.O_RDONLY)
        os.posix_fadvise(self.file, 0, 0, os.POSIX_FADV_DONTNEED)
        self.row = given.row

    def close(self):
        os.posix_fadvise(self.file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(self.file)


class Memmap(OfTheKernel):
    """numpy.memmap and fancy indexing."""

    advice = None

    def __init__(self, path, given, group):
        super().__init__(path, given, group)
        self.array = np.memmap(path, "u8", "r").reshape(-1, given.row // 8)
        if self.advice is not None:
            self.array.base._mmap.madvise(self.advice)

    def gather(self, ids, out):
        np.take(self.array, ids, axis=0, out=out, mode="clip")

    def close(self):
        del self.array
        super().close()


class MemmapRandom(Memmap):
    """numpy.memmap with MADV_RANDOM."""

    advice = mmap.MADV_RANDOM


class Pread(OfTheKernel):
    """`os.preadv` into the rows of `out`, one call for each."""

    def __init__(self, path, given, group):
        super().__init__(path, given, group)
        os.posix_fadvise(self.file, 0, 0, os.POSIX_FADV_RANDOM)

    def gather(self, ids, out):
        bytes_ = memoryview(out.view("u1").reshape(-1))
        for at, row in enumerate((ids * self.row).tolist()):
            os.preadv(self.file, [bytes_[at * self.row : (at + 1) * self.row]], row)


WAYS = {"lowtide": Rows, "memmap": Memmap, "memmap-random": MemmapRandom, "pread": Pread}


def turn(way, given, count, seed):
    """A round: rows a second."""
    done, errors, deadline = [0] * given.threads, [], time.perf_counter() + given.seconds

    def work(number):
        draw = Draw(count, given.batch, given.skew, 1000 * seed + number)
        out = np.empty((given.batch, given.row // 8), "u8")
        try:
            while time.perf_counter() < deadline:
                ids = draw()
                way.gather(ids, out)
                if not np.array_equal(out[:, 0], ids):
                    raise AssertionError("rows are not those of the batch")
                done[number] += len(ids)
        except BaseException as error:
            errors.append(error)

    began = time.perf_counter()
    workers = [threading.Thread(target=work, args=(number,)) for number in range(given.threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if errors:
        raise errors[0]
    return sum(done) / (time.perf_counter() - began)


def main():
    given = arguments()
    count = given.size // given.row
    path = Path(given.dir) / f"lowtide-gather-{given.size}-{given.row}.bin"
    make(path, given.size, given.row)
    try:
        group = Group(given.max)
    except (OSError, StopIteration) as error:
        print(f"only lowtide: no memory cgroup can be made ({error})", file=sys.stderr)
        group = None
    names = [name for name in WAYS if group or name == "lowtide"]
    if given.only:
        names = [name for name in names if name in given.only.split(",")]
    rates = {name: [] for name in names}
    ways = {}
    try:
        for name in names:
            ways[name] = WAYS[name](path, given, group)
        # The first round is for what is in memory, and is not counted.
        for number in range(given.rounds + 1):
            for name in names:
                inside = contextlib.nullcontext() if name == "lowtide" else group
                with inside:
                    rate = turn(ways[name], given, count, number)
                if number:
                    rates[name].append(rate)
    finally:
        for way in ways.values():
            way.close()
        if group:
            group.remove()
    result = {name: statistics.median(all_) for name, all_ in rates.items()}
    print(
        f"{count:,} rows of {given.row} B in {given.max >> 20} MiB, {given.skew}, "
        f"{given.threads} thread(s), batches of {given.batch:,}; medians of {given.rounds} rounds"
    )
    for name, rate in result.items():
        spread = f"{min(rates[name]):,.0f} to {max(rates[name]):,.0f}"
        ratio = f"  {result['lowtide'] / rate:.2f} x" if "lowtide" in result else ""
        print(f"  {name:14} {rate:12,.0f} rows/s  ({spread}){ratio}")
    if given.json:
        Path(given.json).write_text(json.dumps({"given": vars(given), "rows_per_second": rates}))


if __name__ == "__main__":
    main()
