"""Nothing is left behind: memory, descriptors, threads."""

import gc
import mmap
import os
import time

import lowtide
import numpy as np
import pytest
from conftest import MIB, open_files, settled, threads


def memory():
    """Bytes of memory without a file that this process has."""
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith("RssAnon"))
    return int(line.split()[1]) << 10


def rounds(work, count, most):
    """Runs `work` often; the memory that it keeps must not grow with that."""
    for _ in range(count // 10):
        work()
    gc.collect()
    # The thread that watched a map may have its file for a moment longer.
    settled(open_files, 0, patience=1)
    before, files, tasks = memory(), open_files(), threads()
    for _ in range(count):
        work()
    gc.collect()
    assert settled(open_files, files) <= files
    assert settled(threads, tasks) <= tasks
    grown = memory() - before
    assert grown < most, f"{grown} bytes in {count} rounds"


def test_ten_thousand_maps_leave_nothing(tmp_path):
    path, pager = tmp_path / "small", lowtide.Pager("4M")
    np.arange(4096, dtype="u4").tofile(path)

    def work():
        array = lowtide.memmap(path, "u4", "r", budget=pager)
        assert array[4095] == 4095

    rounds(work, 10_000, 4 * MIB)


def test_ten_thousand_closes_leave_nothing(tmp_path):
    path, pager = tmp_path / "small", lowtide.Pager("4M")
    path.write_bytes(b"x" * 8192)
    with open(path, "r+b") as file:

        def work():
            mapped = lowtide.mmap(file.fileno(), 0, access=mmap.ACCESS_READ, budget=pager)
            assert mapped[8191] == 120
            mapped.close()

        rounds(work, 10_000, 4 * MIB)


def test_mirrors_leave_nothing(tmp_path):
    path, pager = tmp_path / "small", lowtide.Pager("4M")
    np.arange(4096, dtype="u4").tofile(path)

    def work():
        array = lowtide.memmap(path, "u4", "r", budget=pager, map_mode="userfault")
        assert array[4095] == 4095

    try:
        work()
    except OSError as error:
        pytest.skip(f"no mirrors on this machine: {error}")
    rounds(work, 2000, 4 * MIB)


def test_a_mirror_that_goes_leaves_its_addresses_to_the_next_map(tmp_path):
    """The thread that hears of leases looks at all mirrors, four times a second: many take long."""
    pager, paths = lowtide.Pager("4M"), [tmp_path / "gone", tmp_path / "next"]
    for number, path in enumerate(paths):
        np.full(1 << 16, number, "i4").tofile(path)

    def mirror():
        return lowtide.memmap(paths[0], "i4", "r", budget=pager, map_mode="userfault")

    try:
        others = [mirror() for _ in range(100)]
    except OSError as error:
        pytest.skip(f"no mirrors on this machine: {error}")
    after, reused, end = [], 0, time.monotonic() + 4
    while time.monotonic() < end:
        gone = mirror()
        address = gone.ctypes.data
        del gone
        after.append(np.memmap(paths[1], "i4", "r"))
        reused += after[-1].ctypes.data == address
        if len(after) > 50:
            assert after.pop(0)[7] == 1, "another file's bytes"
    assert reused > 10 and all(one[7] == 1 for one in after) and others[7][7] == 0


def test_views_leave_nothing(tmp_path):
    path, pager = tmp_path / "small", lowtide.Pager("4M")
    np.arange(4096, dtype="u4").tofile(path)

    def work():
        with lowtide.open(path, budget=pager) as view:
            assert view.rows([1], "u4", 128)[0, 5] == 133

    rounds(work, 2000, 4 * MIB)


def test_pagers_leave_nothing(tmp_path):
    path = tmp_path / "small"
    np.arange(4096, dtype="u4").tofile(path)

    def work():
        array = lowtide.memmap(path, "u4", "r", budget="1M")
        assert array[1] == 1

    rounds(work, 300, 8 * MIB)


def test_failures_leave_nothing(tmp_path):
    path, pager = tmp_path / "small", lowtide.Pager("4M")
    path.write_bytes(b"x" * 8192)
    with open(path, "rb") as file:

        def work():
            for wrong in ({"offset": 1}, {"length": 1 << 40}, {"fileno": 10_000}):
                given = {"fileno": file.fileno(), "length": 0, **wrong}
                try:
                    lowtide.mmap(**given, access=mmap.ACCESS_READ, budget=pager)
                except (OSError, ValueError):
                    continue
                raise AssertionError(wrong)

        rounds(work, 1000, 4 * MIB)


def test_a_cycle_is_collected(tmp_path):
    path, pager = tmp_path / "small", lowtide.Pager("4M")
    np.arange(4096, dtype="u4").tofile(path)
    # The first map starts the thread that watches, which has descriptors of its own.
    assert lowtide.memmap(path, "u4", "r", budget=pager)[1] == 1
    before = settled(open_files, 0, patience=1)
    array = lowtide.memmap(path, "u4", "r", budget=pager)
    array.itself = array
    assert array[7] == 7
    del array
    gc.collect()
    assert settled(lambda: pager.usage, 0) == 0
    assert settled(open_files, before) == before
    assert os.path.exists(path)
