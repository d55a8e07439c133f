#!/usr/bin/env python3
"""The most of a file that is in the page cache while workers share one budget.

Each worker adds up a part of a `lowtide.memmap` and picks numbers of the whole at random, again and
again; sums are compared with those of the file. Meanwhile the pages of the file in the page cache
are counted (cachestat(2), Linux 6.5), every few milliseconds. Without workers the process does the
work itself.

    bench/peak.py --size 1G --max 256M
"""

import argparse
import ctypes
import json
import multiprocessing
import os
import tempfile
import threading
from pathlib import Path

import numpy as np
from common import make, uncache

import lowtide
from lowtide._lowtide import parse_size

ROW = 512
PARTS = 16
libc = ctypes.CDLL(None, use_errno=True)


def cached(fd):
    """Bytes of a file in the page cache."""
    whole, found = (ctypes.c_uint64 * 2)(0, 0), (ctypes.c_uint64 * 5)()
    if libc.syscall(451, fd, whole, found, 0) != 0:
        raise OSError(ctypes.get_errno(), "cachestat")
    return found[0] * os.sysconf("SC_PAGE_SIZE")


def work(job):
    """The sum of a part, and of numbers at random."""
    array, part = job
    step = len(array) // PARTS
    total = int(array[part * step : (part + 1) * step].sum())
    random = np.random.default_rng(part)
    for _ in range(4):
        at = random.integers(0, len(array), 1000) // (ROW // 8) * (ROW // 8)
        if not np.array_equal(array[at], at // (ROW // 8)):
            raise AssertionError("other numbers")
    return total


def peak(path, given, method, workers):
    """The peak in bytes, and the sum."""
    uncache(path)
    array = lowtide.memmap(path, "u8", "r", budget=given.max)
    fd, most, stop = os.open(path, os.O_RDONLY), 0, threading.Event()

    def watch():
        nonlocal most
        while not stop.wait(0.003):
            most = max(most, cached(fd))

    jobs = [(array, part) for part in range(PARTS)]
    watcher = threading.Thread(target=watch)
    try:
        if workers == 0:
            watcher.start()
            total = sum(map(work, jobs))
        else:
            with multiprocessing.get_context(method).Pool(workers) as pool:
                watcher.start()
                total = sum(pool.imap_unordered(work, jobs))
    finally:
        stop.set()
        watcher.join()
        os.close(fd)
    return most, total


def main():
    parse = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parse.add_argument("--size", type=parse_size, default="1G", help="bytes of the file")
    parse.add_argument("--max", type=parse_size, default="256M", help="the budget of all together")
    parse.add_argument("--workers", default="0,2,8")
    parse.add_argument("--dir", default=tempfile.gettempdir(), help="where the file is made")
    parse.add_argument("--json", help="a file for the result")
    given = parse.parse_args()
    path = Path(given.dir) / f"lowtide-gather-{given.size}-{ROW}.bin"
    make(path, given.size, ROW)
    count = given.size // ROW
    rows = []
    for workers in map(int, given.workers.split(",")):
        for method in ("fork", "forkserver", "spawn") if workers else ("-",):
            most, total = peak(path, given, method, workers)
            if total != count * (count - 1) // 2:
                raise AssertionError(f"{method}, {workers} workers: another sum")
            share = most / given.max
            rows.append({"workers": workers, "method": method, "peak": most, "of_budget": share})
            print(
                f"{workers} workers, {method:10} {most / (1 << 20):7.1f} MiB, {share:.2f} of the"
                " budget",
                flush=True,
            )
    if given.json:
        Path(given.json).write_text(json.dumps({"given": vars(given), "peaks": rows}))


if __name__ == "__main__":
    main()
