#!/usr/bin/env python3
"""Random rows of a file larger than its budget: `lowtide.View.rows`, numpy.memmap, pread, and,
where they are installed, h5py and zarr.

All have the same budget: lowtide as `max`, each of the others as the limit of a memory cgroup of
its own, in which its page cache is charged (root, or the owner of a cgroup; without one they are
left out). They read the same rows in the same order, take turns in short rounds, and the first
element of every row, which is its number, is compared.

    bench/gather.py --size 2G --max 512M --skew hot --threads 1
    bench/gather.py --size 2G --max 512M --skew alike --threads 8 --json alike-8.json

A machine that does other things meanwhile measures these.
"""

import argparse
import json
import mmap
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from common import Group, make, uncache

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
    parse.add_argument("--warm", type=float, default=8, help="seconds before the first round")
    parse.add_argument("--dir", default=tempfile.gettempdir(), help="where the file is made")
    parse.add_argument("--json", help="a file for the result")
    parse.add_argument("--only", help="names of what is asked, separated by commas")
    return parse.parse_args()


class Draw:
    """Batches of rows: nine tenths from a twentieth of the file, or all alike."""

    def __init__(self, count, batch, hot, seed):
        self.random, self.count, self.batch = np.random.default_rng(seed), count, batch
        self.hot = hot

    def __call__(self):
        if self.hot is None:
            return self.random.integers(0, self.count, self.batch)
        ids = self.hot[self.random.integers(0, len(self.hot), self.batch)]
        cold = self.random.random(self.batch) >= 0.9
        ids[cold] = self.random.integers(0, self.count, int(cold.sum()))
        return ids


class Rows:
    """lowtide: one call for a batch."""

    name, piece = "lowtide", None

    def __init__(self, path, given):
        self.view = lowtide.open(path, budget=given.max, lock=False)
        self.shape = given.row // 8

    def gather(self, ids, out):
        self.view.rows(ids, "u8", self.shape, out=out)

    def __enter__(self):
        pass

    def __exit__(self, *exception):
        pass

    def close(self):
        self.view.close()


class OfTheKernel:
    """What is read through the page cache, while the process is in a cgroup."""

    #: Rows between two looks at the clock: a batch may take a minute. Nothing else depends on it.
    piece = 200

    def __init__(self, path, given):
        # In memory is what it brings in itself.
        self.path = path.with_suffix(f".{self.name}")
        make(self.path, given.size, given.row)
        uncache(self.path)
        self.file, self.row = os.open(self.path, os.O_RDONLY), given.row
        self.group = Group(given.max, self.name)

    def __enter__(self):
        self.group.__enter__()

    def __exit__(self, *exception):
        self.group.__exit__()

    def close(self):
        os.close(self.file)
        uncache(self.path)
        self.group.remove()


class Memmap(OfTheKernel):
    """numpy.memmap and fancy indexing."""

    name, advice = "memmap", None

    def __init__(self, path, given):
        super().__init__(path, given)
        self.array = np.memmap(self.path, "u8", "r").reshape(-1, given.row // 8)
        if self.advice is not None:
            self.array.base._mmap.madvise(self.advice)

    def gather(self, ids, out):
        np.take(self.array, ids, axis=0, out=out, mode="clip")

    def close(self):
        del self.array
        super().close()


class MemmapRandom(Memmap):
    """numpy.memmap with MADV_RANDOM."""

    name, advice = "memmap-random", mmap.MADV_RANDOM


class Pread(OfTheKernel):
    """`os.preadv` into the rows of `out`, one call for each."""

    name = "pread"

    def __init__(self, path, given):
        super().__init__(path, given)
        os.posix_fadvise(self.file, 0, 0, os.POSIX_FADV_RANDOM)

    def gather(self, ids, out):
        bytes_ = memoryview(out.view("u1").reshape(-1))
        for at, row in enumerate((ids * self.row).tolist()):
            os.preadv(self.file, [bytes_[at * self.row : (at + 1) * self.row]], row)


class H5py(OfTheKernel):
    """A dataset of h5py in one piece: the file itself. Indices have to rise, each once."""

    name = "h5py"

    def __init__(self, path, given):
        import h5py

        super().__init__(path, given)
        shape, external = (given.size // given.row, given.row // 8), (self.path, 0, given.size)
        self.holder = h5py.File(path.with_suffix(".h5"), "w")
        self.rows = self.holder.create_dataset("rows", shape, "u8", external=[external])

    def gather(self, ids, out):
        once, place = np.unique(ids, return_inverse=True)
        np.take(self.rows[once], place, axis=0, out=out)

    def close(self):
        holder = self.holder.filename
        self.holder.close()
        os.unlink(holder)
        super().close()


class Zarr(OfTheKernel):
    """An array of zarr, in chunks of 64 KiB that are not compressed, a file each."""

    name = "zarr"

    def __init__(self, path, given):
        import zarr

        super().__init__(path, given)
        rows = np.memmap(self.path, "u8", "r").reshape(-1, given.row // 8)
        chunk = (max(1, (64 << 10) // given.row), rows.shape[1])
        self.store = path.with_suffix(".zarr.d")
        self.array = zarr.create_array(
            self.store, shape=rows.shape, chunks=chunk, dtype="u8", compressors=None, overwrite=True
        )
        for start in range(0, len(rows), 1 << 15):
            self.array[start : start + (1 << 15)] = rows[start : start + (1 << 15)]
        self.uncache_all()

    def uncache_all(self):
        os.sync()
        for each in self.store.rglob("*"):
            if each.is_file():
                uncache(each)

    def gather(self, ids, out):
        out[:] = self.array.get_orthogonal_selection((ids,))

    def close(self):
        super().close()
        shutil.rmtree(self.store)


WAYS = {way.name: way for way in (Rows, Memmap, MemmapRandom, Pread, H5py, Zarr)}


def turn(way, seconds, draws, outs):
    """A round: rows a second, of a thread for each draw."""
    done, errors, deadline = [0] * len(draws), [], time.perf_counter() + seconds

    def work(number):
        draw, out = draws[number], outs[number]
        try:
            while time.perf_counter() < deadline:
                ids = draw()
                size = way.piece or len(ids)
                for start in range(0, len(ids), size):
                    piece, into = ids[start : start + size], out[start : start + size]
                    way.gather(piece, into)
                    if not np.array_equal(into[:, 0], piece):
                        raise AssertionError("rows are not those of the batch")
                    done[number] += len(piece)
                    if time.perf_counter() >= deadline:
                        break
        except BaseException as error:
            errors.append(error)

    began = time.perf_counter()
    workers = [threading.Thread(target=work, args=(number,)) for number in range(len(draws))]
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
    # The hot rows are everywhere in the file, and the same in all rounds.
    hot = np.random.default_rng(7).permutation(count)[: count // 20].copy()
    # No memory of these is charged to a cgroup.
    outs = [np.ones((given.batch, given.row // 8), "u8") for _ in range(given.threads)]
    names = given.only.split(",") if given.only else list(WAYS)
    rates, ways = {name: [] for name in names}, {}
    try:
        for name in names:
            try:
                ways[name] = WAYS[name](path, given)
            except (OSError, StopIteration) as error:
                print(f"no {name}: no memory cgroup can be made ({error})", file=sys.stderr)
                del rates[name]
            except ImportError as error:
                print(f"no {name}: {error}", file=sys.stderr)
                del rates[name]
        # The first round is for what is in memory, longer, and not counted.
        for number in range(given.rounds + 1):
            for name, way in ways.items():
                draws = [
                    Draw(count, given.batch, hot if given.skew == "hot" else None, (number, thread))
                    for thread in range(given.threads)
                ]
                with way:
                    rate = turn(way, given.seconds if number else given.warm, draws, outs)
                if number:
                    rates[name].append(rate)
    finally:
        for way in ways.values():
            way.close()
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
