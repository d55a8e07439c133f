#!/usr/bin/env python3
"""A file in order, and pages that are in memory: `lowtide.memmap` beside `numpy.memmap`.

In order: every number of a file that is larger than its budget is added up, once a round. The
budget is `max` of lowtide, and the limit of a memory cgroup for numpy; `userfault` is a
`lowtide.memmap` with that `map_mode`, `lowtide.open` a view that is read 1 MiB at a time. Hits:
rows at random, by `numpy.take`, of a file that is in memory as a whole. All take turns, and sums
and rows are compared.

    bench/passes.py --size 1G --max 256M
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from common import Group, make, uncache

import lowtide
from lowtide._lowtide import parse_size

ROW = 512
#: Numbers that are added up at a time: a program that reads in order does not copy the file.
BLOCK = (1 << 20) // 8


def in_order(array):
    return sum(int(array[at : at + BLOCK].sum()) for at in range(0, len(array), BLOCK))


def through_a_view(view, block):
    view.seek(0)
    numbers, total = block.view("u8"), 0
    while count := view.readinto(block):
        total += int(numbers[: count // 8].sum())
    return total


def passes(given, path):
    """MiB a second of each way, for each round."""
    count = given.size // ROW
    total = count * (count - 1) // 2
    rates = {"numpy.memmap": [], "lowtide.memmap": [], "userfault": [], "lowtide.open": []}
    # Budgets of one size, and mappings of one file, would be shared.
    files = {way: path.with_suffix(f".{way}") for way in rates}
    budgets = {way: lowtide.Pager(given.max) for way in rates}
    for file in files.values():
        make(file, given.size, ROW)
        uncache(file)

    def memmap(way, **more):
        return lowtide.memmap(files[way], "u8", "r", budget=budgets[way], **more)

    group, block = Group(given.max, "order"), np.ones(BLOCK * 8, "u1")
    other = files["numpy.memmap"]
    theirs = np.memmap(other, "u8", "r")
    ours = memmap("lowtide.memmap")
    view = lowtide.open(files["lowtide.open"], budget=budgets["lowtide.open"], lock=False)
    try:
        mirror = memmap("userfault", map_mode="userfault")
    except OSError as error:
        print(f"no mirrors on this machine: {error}")
        del rates["userfault"]

    def turn(name, work):
        began = time.perf_counter()
        if work() != total:
            raise AssertionError(f"{name}: another sum")
        rates[name].append((given.size >> 20) / (time.perf_counter() - began))

    try:
        for _ in range(given.rounds):
            with group:
                turn("numpy.memmap", lambda: in_order(theirs))
            turn("lowtide.memmap", lambda: in_order(ours))
            if "userfault" in rates:
                turn("userfault", lambda: in_order(mirror))
            turn("lowtide.open", lambda: through_a_view(view, block))
    finally:
        view.close()
        del theirs
        uncache(other)
        group.remove()
    return rates


def hits(given, path):
    """Millions of rows a second of each way, for each round."""
    small = path.with_suffix(".hits")
    make(small, 64 << 20, ROW)
    count, shape = (64 << 20) // ROW, (-1, ROW // 8)
    ways = {
        "numpy.memmap": np.memmap(small, "u8", "r").reshape(shape),
        "lowtide.memmap": lowtide.memmap(small, "u8", "r", budget=given.max).reshape(shape),
    }
    random, out = np.random.default_rng(1), np.ones((10_000, ROW // 8), "u8")
    rates = {name: [] for name in ways}
    for number in range(10 * given.rounds + 1):
        ids = random.integers(0, count, len(out))
        for name, array in ways.items():
            began = time.perf_counter()
            for _ in range(20):
                np.take(array, ids, axis=0, out=out, mode="clip")
            rate = 20 * len(out) / (time.perf_counter() - began) / 1e6
            if not np.array_equal(out[:, 0], ids):
                raise AssertionError(f"{name}: other rows")
            if number:
                rates[name].append(rate)
        if number == 0:
            for array in ways.values():
                array.sum()
    return rates


def show(what, unit, rates):
    print(what)
    base = rates["numpy.memmap"]
    for name, found in rates.items():
        ratios = sorted(ours / theirs for ours, theirs in zip(found, base))
        spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
        ratio = f"{statistics.median(ratios):.2f} x ({spread})"
        print(f"  {name:15} {statistics.median(found):9,.1f} {unit}   {ratio}")


def main():
    parse = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parse.add_argument("--size", type=parse_size, default="1G", help="bytes of the file")
    parse.add_argument("--max", type=parse_size, default="256M", help="the budget")
    parse.add_argument("--rounds", type=int, default=5)
    parse.add_argument("--dir", default=tempfile.gettempdir(), help="where the files are made")
    parse.add_argument("--json", help="a file for the result")
    given = parse.parse_args()
    path = Path(given.dir) / f"lowtide-gather-{given.size}-{ROW}.bin"
    make(path, given.size, ROW)
    result = {"in order": passes(given, path), "hits": hits(given, path)}
    sizes = f"{given.size >> 20} MiB in {given.max >> 20}"
    show(f"in order, {sizes}, {given.rounds} rounds", "MiB/s", result["in order"])
    show("hits, 64 MiB in memory", "M rows/s", result["hits"])
    if given.json:
        Path(given.json).write_text(json.dumps({"given": vars(given), **result}))


if __name__ == "__main__":
    main()
