"""`map_mode="userfault"`: maps of which the budget is exact, in children of `fork`, too."""

import ctypes
import gc
import mmap
import multiprocessing
import os
import pickle
import signal
import threading
import time

import lowtide
import numpy as np
import pytest
from conftest import MIB, in_child, open_files, python, settled

TOTAL = (8 * MIB) * (8 * MIB - 1) // 2
MAX = 4 * MIB


@pytest.fixture
def mirror(numbers):
    """An eighth of the file may be in memory."""
    try:
        return lowtide.memmap(numbers, "u4", "r", budget=MAX, map_mode="userfault")
    except OSError as error:
        pytest.skip(f"no mirrors on this machine: {error}")


def part_sum(job):
    """The sum of a part, by a worker."""
    array, start, end = job
    assert array._mmap.map_mode == "userfault"
    return int(array[start:end].sum(dtype="u8"))


def test_the_budget_is_never_exceeded(mirror):
    assert mirror._mmap.map_mode == "userfault" and mirror._mmap.adopted
    peak = 0
    for start in range(0, len(mirror), 32 * 1024):
        at = np.arange(start, start + 32 * 1024)
        assert int(mirror[start : start + 32 * 1024].sum(dtype="u8")) == int(at.sum())
        peak = max(peak, mirror.resident, mirror.budget.usage)
    assert MAX // 2 < peak <= MAX
    assert mirror.budget.stat()["misses"] > 0


def test_a_file_that_is_emptied_by_a_reader_is_the_kernels(mirror, numbers):
    assert mirror[5] == 5 and mirror._mmap.map_mode == "userfault"
    # This breaks no lease.
    os.close(os.open(numbers, os.O_RDONLY | os.O_TRUNC))
    assert settled(lambda: mirror._mmap.map_mode == "userfault", False) is False
    assert mirror._mmap.adopted


def test_system_calls_read_from_it(mirror, tmp_path):
    with open(tmp_path / "copy", "wb", buffering=0) as copy:
        assert copy.write(memoryview(mirror).cast("B")) == 32 * MIB
    assert np.array_equal(np.fromfile(tmp_path / "copy", "u4"), np.arange(8 * MIB, dtype="u4"))


def test_a_child_of_fork_has_a_mirror_of_its_own(mirror):
    mirror[:1000].sum()

    def work():
        assert int(mirror.sum(dtype="u8")) == TOTAL
        assert 0 < mirror.resident <= MAX
        return mirror._mmap.map_mode == "userfault"

    assert in_child(work)
    assert in_child(lambda: in_child(work)), "a child of a child"
    assert int(mirror.sum(dtype="u8")) == TOTAL


def test_a_child_that_a_library_forks_reads_the_file(mirror):
    mirror[5000:6000].sum()
    libc = ctypes.PyDLL(None)
    child = libc.fork()
    if child == 0:
        # No function of `os.register_at_fork` has run.
        os._exit(0 if int(mirror[::1024].sum(dtype="u8")) == 8192 * 8191 // 2 * 1024 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert mirror[7 * MIB] == 7 * MIB


def test_a_child_closes_it_and_the_parent_has_it(numbers, mirror):
    with open(numbers, "rb") as file:
        made = lowtide.mmap(
            file.fileno(), 0, access=mmap.ACCESS_READ, budget=MAX, map_mode="userfault"
        )

    def work():
        made.close()
        return made.closed

    assert in_child(work)
    assert made[4 * 123_456 : 4 * 123_457] == (123_456).to_bytes(4, "little")


def test_a_fork_beside_threads_that_read_it(mirror):
    stop, errors = threading.Event(), []

    def read(seed):
        random = np.random.default_rng(seed)
        try:
            while not stop.is_set():
                ids = random.integers(0, len(mirror), 200)
                assert np.array_equal(mirror[ids], ids)
        except BaseException as error:
            errors.append(error)

    readers = [threading.Thread(target=read, args=(seed,)) for seed in range(2)]
    for reader in readers:
        reader.start()
    try:
        for turn in range(20):
            at = 200_000 * turn
            assert in_child(lambda: mirror[at] == at)
    finally:
        stop.set()
        for reader in readers:
            reader.join()
    assert not errors, errors


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_workers_map_it_so_too(mirror, method):
    step = len(mirror) // 8
    jobs = [(mirror, start, start + step) for start in range(0, len(mirror), step)]
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert sum(pool.map(part_sum, jobs)) == TOTAL


def test_a_pickle_is_a_mirror_again(mirror):
    again = pickle.loads(pickle.dumps(mirror[10:20]))
    assert again._mmap.map_mode == "userfault" and np.array_equal(again, np.arange(10, 20))


def test_the_standard_map_is_back_before_it_is_closed(numbers, mirror):
    files = open_files()
    with open(numbers, "rb") as file:
        made = lowtide.mmap(
            file.fileno(), 10_001, access=mmap.ACCESS_READ, offset=8192, budget=MAX,
            map_mode="userfault",
        )
        assert made[:4] == (2048).to_bytes(4, "little") and len(made) == 10_001
        assert made.find((2050).to_bytes(4, "little")) == 8
        view = memoryview(made)
        with pytest.raises(BufferError):
            made.close()
        # `close` has put it back, and could not close: it is a mirror again.
        assert made.map_mode == "userfault" and bytes(view[8:12]) == made[8:12]
        view.release()
        made.close()
    assert made.closed and made.map_mode is None
    del made
    gc.collect()
    assert settled(open_files, files) <= files


def test_advice_is_for_the_mirror(mirror):
    made = mirror._mmap
    for advice in ("NORMAL", "RANDOM", "SEQUENTIAL", "WILLNEED", "DONTNEED", "REMOVE", "DOFORK"):
        made.madvise(getattr(mmap, f"MADV_{advice}"))
        assert mirror[77_777] == 77_777
    made.madvise(mmap.MADV_WILLNEED, 0, 1 << 40)
    with pytest.raises(ValueError):
        made.madvise(mmap.MADV_WILLNEED, len(made))
    assert in_child(lambda: mirror[99_999] == 99_999)


@pytest.mark.parametrize("mode, why", [("r+", "do not reach"), ("c", "its own")])
def test_maps_that_store_are_refused_with_the_reason(numbers, mode, why):
    with pytest.raises(lowtide.NotPossible, match=why):
        lowtide.memmap(numbers, "u4", mode, budget=MAX, map_mode="userfault")
    with pytest.raises(lowtide.Error, match="no file"):
        lowtide.mmap(-1, 4096, budget=MAX, map_mode="userfault")
    with pytest.raises(ValueError, match="auto, pagecache, userfault"):
        lowtide.memmap(numbers, "u4", "r", budget=MAX, map_mode="anon")


def test_auto_is_a_mirror_where_there_can_be_one(numbers, mirror, monkeypatch):
    def made(mode):
        return lowtide.memmap(numbers, "u4", mode, budget=MAX, map_mode="auto")

    assert made("r")._mmap.map_mode == "userfault" and made("r")[77_777] == 77_777
    stored = made("r+")
    assert stored._mmap.map_mode == "pagecache" and stored.budget is not None
    assert not made("c")._mmap.adopted

    def refused(*arguments):
        raise lowtide.NotPossible("no userfaultfd")

    # As on a machine that serves no page faults.
    monkeypatch.setattr(lowtide._mmap, "Mirror", refused)
    assert made("r")._mmap.map_mode == "pagecache" and made("r")[77_777] == 77_777


def test_a_file_that_is_written_is_the_kernels_map_before_a_byte_changes(tmp_path, mirror):
    path = tmp_path / "numbers"
    np.arange(2 * MIB, dtype="u4").tofile(path)
    array = lowtide.memmap(path, "u4", "r", budget=MAX, map_mode="userfault")
    assert int(array[:1000].sum()) == 1000 * 999 // 2 and array._mmap.map_mode == "userfault"
    # The kernel lets this wait until the mirror is gone.
    with open(path, "r+b", buffering=0) as file:
        assert array._mmap.map_mode == "pagecache" and array._mmap.adopted
        file.write((7).to_bytes(4, "little"))
        assert array[0] == 7 and array[MIB] == MIB
        with pytest.raises(OSError, match="open for writing"):
            lowtide.memmap(path, "u4", "r", budget=MAX, map_mode="userfault")
    again = lowtide.memmap(path, "u4", "r", budget=MAX, map_mode="userfault")
    assert again[0] == 7 and again._mmap.map_mode == "userfault"


def test_a_child_that_a_library_forks_keeps_no_writer_waiting(tmp_path, mirror):
    path = tmp_path / "numbers"
    np.arange(2 * MIB, dtype="u4").tofile(path)
    array = lowtide.memmap(path, "u4", "r", budget=MAX, map_mode="userfault")
    child = ctypes.PyDLL(None).fork()
    if child == 0:
        signal.pause()
        os._exit(0)
    try:
        del array
        gc.collect()
        # Otherwise the kernel ends a lease that the child has after 45 seconds.
        began = time.monotonic()
        open(path, "r+b").close()
        assert time.monotonic() - began < 30
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_file_that_is_cut_ends_as_the_kernels_map_does(numbers, mirror, tmp_path):
    path = tmp_path / "numbers"
    np.arange(MIB, dtype="u4").tofile(path)
    done = python(
        """
        import os, sys, lowtide
        array = lowtide.memmap(sys.argv[1], "u4", "r", budget="1M", map_mode="userfault")
        os.truncate(sys.argv[1], 4096)
        print(array._mmap.map_mode, array[1000], flush=True)
        array[1 << 18]
        """,
        path,
        check=False,
    )
    assert done.returncode == -signal.SIGBUS and done.stdout == "pagecache 1000\n", done


def test_the_interpreter_ends_beside_threads_that_read(numbers, mirror):
    out = python(
        """
        import sys, threading, lowtide
        array = lowtide.memmap(sys.argv[1], "u4", "r", budget="1M", map_mode="userfault")
        def read():
            while True:
                array[::1024].sum()
        for _ in range(2):
            threading.Thread(target=read, daemon=True).start()
        array[::1024].sum()
        print("end")
        """,
        numbers,
    )
    assert out == "end\n"


def test_one_that_is_dropped_leaves_nothing(numbers, mirror):
    def maps():
        with open("/proc/self/maps") as lines:
            return sum(str(numbers) in line for line in lines)

    # The mirror of this test hides one, which comes back at its end.
    files, mapped = open_files(), maps()
    for _ in range(50):
        array = lowtide.memmap(numbers, "u4", "r", budget="1M", map_mode="userfault")
        assert array[4096] == 4096
        del array
    assert settled(open_files, files) <= files
    assert maps() == mapped
