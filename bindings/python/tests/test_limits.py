"""Promise: where a process has no more descriptors or threads, maps are what numpy's are: the
program goes on, with one warning."""

import subprocess
import sys
import warnings

import numpy as np
import pytest

import lowtide
from conftest import MIB, cached_bytes, settled, uncache
from lowtide import _budget

PATCHED = """
import resource, sys
import lowtide, numpy as np
lowtide.patch(budget="8M")
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
arrays = [np.memmap(path, "u1", "r") for path in sys.argv[1:]]
assert all(array[5000] == 1 for array in arrays)
print(len(arrays), open("/dev/null").fileno() < 200)
"""


def test_a_program_maps_more_files_than_lowtide_has_descriptors_for(tmp_path):
    paths = [tmp_path / str(number) for number in range(150)]
    for path in paths:
        path.write_bytes(b"\1" * 8192)
    command = [sys.executable, "-c", PATCHED, *map(str, paths)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.stdout == "150 True\n", ended.stderr
    assert ended.stderr.count("RuntimeWarning") <= 1, ended.stderr


def ten_arrays(tmp_path):
    """Arrays of a file, each with a budget of its own, and what was warned of."""
    path = tmp_path / "data"
    path.write_bytes(b"\1" * 8192)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        arrays = [lowtide.memmap(path, "u1", "r", budget="1M") for _ in range(10)]
    assert all(array.sum() == 8192 for array in arrays)
    return arrays, said


def test_where_there_is_no_thread_for_a_budget_arrays_are_the_kernels(tmp_path, monkeypatch):
    def refused(size):
        raise BlockingIOError(11, "no thread")

    monkeypatch.setattr(_budget, "account", refused)
    monkeypatch.setattr(_budget, "_said", set())
    arrays, said = ten_arrays(tmp_path)
    assert all(array.budget is None for array in arrays)
    assert [str(one.message) for one in said if "left to the kernel" in str(one.message)]
    assert len(said) == 1


HUNDREDS = """
import os, sys
import lowtide, numpy as np
count = lambda folder: len(os.listdir(f"/proc/self/{folder}"))
arrays = [lowtide.memmap(sys.argv[1], "u1", "r", budget="1M")]
threads, descriptors = count("task"), count("fd")
arrays += [lowtide.memmap(sys.argv[1], "u1", "r", budget="1M") for _ in range(299)]
assert all(array.budget.max == 1 << 20 and array[5000] == 1 for array in arrays)
print((count("task") - threads) // 100, (count("fd") - descriptors) // 100)
"""


def test_hundreds_of_budgets_of_a_size_share_threads(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(b"\1" * 8192)
    command = [sys.executable, "-W", "error", "-c", HUNDREDS, str(path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    # numpy's map has a descriptor, and so has ours.
    assert ended.stdout == "0 5\n", (ended.stdout, ended.stderr)


def test_budgets_of_a_size_are_kept_apart_and_end_one_by_one(tmp_path):
    paths = [tmp_path / name for name in "ab"]
    for path in paths:
        path.write_bytes(np.arange(4 * MIB, dtype="u4").tobytes())
        uncache(path)
    small = lowtide.memmap(paths[0], "u4", "r", budget="2M")
    large = lowtide.memmap(paths[1], "u4", "r", budget="32M")
    for array in (small, large, small):
        assert int(array.sum(dtype="u8")) == 4 * MIB * (4 * MIB - 1) // 2
    assert settled(lambda: cached_bytes(paths[0]), 2 * MIB) <= 2 * MIB
    assert cached_bytes(paths[1]) > 8 * MIB, "the other one's budget is not for it"
    assert small.budget.stat()["budget_bytes"] == small.budget.max == 2 * MIB
    assert 0 < small.budget.usage <= 2 * MIB < large.budget.usage
    small.budget.close()
    with pytest.raises(lowtide.Closed):
        small.budget.stat()
    small.sum(dtype="u8")
    assert settled(lambda: cached_bytes(paths[0]), 2 * MIB) <= 2 * MIB, "a map keeps its budget"
    del small
    assert int(large[-1]) == 4 * MIB - 1 and large.budget.usage > 2 * MIB
    with pytest.raises(ValueError, match="too small"):
        lowtide.memmap(paths[0], "u4", "r", budget="4K")
