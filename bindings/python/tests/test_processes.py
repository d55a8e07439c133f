"""Children of `fork`, workers of all kinds, and the end of the interpreter."""

import multiprocessing
import os
import pickle
import sys
import threading
import time

import lowtide
import numpy as np
import pytest
from conftest import MIB, cached_bytes, in_child, python, settled

TOTAL = (8 * MIB) * (8 * MIB - 1) // 2


def part_sum(job):
    """The sum of a part, by a worker."""
    array, start, end = job
    return int(array[start:end].sum(dtype="u8"))


def random_sum(job):
    """The sum of random rows, by a worker: they are read again and again."""
    array, seed = job
    picked = np.random.default_rng(seed).integers(0, len(array), 20_000)
    return int(np.asarray(array)[picked].astype("u8").sum())


def rows_sum(job):
    """The sum of rows of a view, by a worker."""
    view, start = job
    return int(view.rows(np.arange(start, start + 1000), "u4", 128).sum(dtype="u8"))


def test_a_child_adopts_what_it_inherits(numbers):
    array = lowtide.memmap(numbers, "u4", "r", budget="8M")
    array[:100].sum()

    def work():
        assert int(array.sum(dtype="u8")) == TOTAL
        assert settled(lambda: cached_bytes(numbers), 9 * MIB) <= 9 * MIB
        assert 0 < array.resident <= 8 * MIB
        return True

    assert in_child(work)
    assert int(array.sum(dtype="u8")) == TOTAL
    assert settled(lambda: cached_bytes(numbers), 8 * MIB) <= 8 * MIB


def test_a_child_closes_what_it_inherits_and_maps_anew(numbers):
    array = lowtide.memmap(numbers, "u4", "r", budget="8M")

    def work():
        nonlocal array
        made = array._mmap
        array = None
        made.close()
        again = lowtide.memmap(numbers, "u4", "r", budget="8M")
        return int(again.sum(dtype="u8")) == TOTAL

    assert in_child(work)
    assert array[7] == 7


def test_a_grandchild_does_so_too(numbers):
    array = lowtide.memmap(numbers, "u4", "r", budget="8M")
    view = lowtide.open(numbers, budget="4M", page_size=512)
    assert view.rows([1], "u4", 128)[0, 0] == 128

    def work():
        return array[9] == 9 and view.rows([2], "u4", 128)[0, 0] == 256

    assert in_child(lambda: work() and in_child(work))


def test_a_child_reads_views_and_pagers_of_its_parent(numbers):
    pager = lowtide.Pager("8M", page_size=512)
    view = lowtide.open(numbers, budget=pager.tenant("rows", max="4M"))
    view.seek(4)
    assert in_child(lambda: view.read(4) == b"\1\0\0\0" and pager.usage > 0)
    assert view.read(4) == b"\1\0\0\0"


def test_a_fork_beside_budgets_that_end(numbers):
    array = lowtide.memmap(numbers, "u4", "r", budget="4M")
    for turn in range(40):
        # What a child shares has a thread, which ends with its budget.
        others = [lowtide.memmap(numbers, "u4", "r", budget="1M") for _ in range(3)]
        assert in_child(lambda: others[0][turn] == turn)
        ending = threading.Thread(target=others.clear)
        ending.start()
        assert in_child(lambda: array[turn] == turn)
        ending.join()


def test_a_fork_while_a_budget_ends_waits_for_that(numbers):
    if not hasattr(lowtide._lowtide, "hold_descriptors"):
        pytest.skip("the hook is of quick builds alone")
    array = lowtide.memmap(numbers, "u4", "r", budget="4M")
    assert in_child(lambda: array[1] == 1)
    lowtide._lowtide.hold_descriptors(0.5)
    assert in_child(lambda: array[7] == 7), "it does not have the lock as it was"


def test_a_fork_waits_for_an_import_of_the_package(numbers):
    python(
        """
        import os, sys, threading, time, lowtide, signal
        begins = threading.Event()
        class Slow:
            def find_spec(self, name, *rest):
                if name == "lowtide._memmap":
                    begins.set()
                    time.sleep(1)
        sys.meta_path.insert(0, Slow())
        read = lambda: int(lowtide.memmap(sys.argv[1], "u4", "r", budget="1M")[7])
        other = threading.Thread(target=read)
        other.start()
        begins.wait()
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            os._exit(read())
        assert os.waitpid(child, 0)[1] == 7 << 8
        other.join()
        """,
        numbers,
    )


def test_a_fork_beside_threads_that_map_and_read(numbers):
    pager, stop, errors = lowtide.Pager("8M"), threading.Event(), []
    array = lowtide.memmap(numbers, "u4", "r", budget=pager)
    view = lowtide.open(numbers, budget="4M", page_size=512)

    def work():
        try:
            while not stop.is_set():
                other = lowtide.memmap(numbers, "u4", "r", budget="1M")
                assert other[4096] == 4096
                assert view.rows([5], "u4", 128)[0, 0] == 5 * 128
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    try:
        for turn in range(30):
            at = 1000 * turn
            assert in_child(lambda: array[at] == at and view.rows([at], "u4", 128)[0, 0] == 128 * at)
    finally:
        stop.set()
        for worker in workers:
            worker.join()
    assert not errors, errors


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
@pytest.mark.parametrize("count", [2, 8])
def test_workers_share_the_budget_of_their_parent(numbers, method, count):
    array = lowtide.memmap(numbers, "u4", "r", budget="16M")
    expected = [random_sum((np.fromfile(numbers, "u4"), seed)) for seed in range(2 * count)]
    peak, stop = [0], threading.Event()

    def watch():
        while not stop.wait(0.02):
            peak[0] = max(peak[0], cached_bytes(numbers))

    watcher = threading.Thread(target=watch)
    with multiprocessing.get_context(method).Pool(count) as pool:
        watcher.start()
        try:
            step = len(array) // 8
            jobs = [(array, start, start + step) for start in range(0, len(array), step)]
            assert sum(pool.map(part_sum, jobs)) == TOTAL
            assert pool.map(random_sum, [(array, seed) for seed in range(2 * count)]) == expected
        finally:
            stop.set()
            watcher.join()
    most = 16 * MIB * 115 // 100
    print(f"{method}, {count} workers: at most {peak[0] / MIB:.1f} MiB of 16 in the page cache")
    # A map is trimmed a moment after pages came in: the peak is printed, and judged by what stays.
    assert settled(lambda: cached_bytes(numbers), most) <= most


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_workers_read_rows(numbers, method):
    view = lowtide.open(numbers, budget="8M", page_size=512)
    expected = [int(np.arange(128 * at, 128 * (at + 1000)).sum()) for at in (0, 1000, 2000)]
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map(rows_sum, [(view, at) for at in (0, 1000, 2000)]) == expected


def test_what_writes_is_not_passed_on(tmp_path):
    with lowtide.open(tmp_path / "new", budget="1M", create=4096) as view:
        with pytest.raises(lowtide.Error, match="one process"):
            pickle.dumps(view)


def test_the_table_of_shares_goes_with_its_last_process(numbers):
    out = python(
        """
        import os, pickle, sys, lowtide
        array = lowtide.memmap(sys.argv[1], "u4", "r", budget="8M")
        text = pickle.dumps(array)
        path = array.budget.__reduce__()[1][1]
        assert os.path.exists(path), path
        print(path)
        """,
        numbers,
    )
    assert not os.path.exists(out.strip())


def test_the_interpreter_ends_with_everything_open(numbers):
    out = python(
        """
        import sys, threading, lowtide, numpy as np
        kept = [lowtide.memmap(sys.argv[1], "u4", "r", budget="2M") for _ in range(5)]
        views = [lowtide.open(sys.argv[1], budget="1M", page_size=512) for _ in range(3)]
        for array in kept:
            array[::4096].sum()
        def work():
            while True:
                views[0].rows(np.random.randint(0, 65536, 1000), "u4", 128)
                kept[0][np.random.randint(0, 8 << 20, 1000)].sum()
        for _ in range(2):
            threading.Thread(target=work, daemon=True).start()
        kept[1].cycle, kept[2].cycle = kept[2], kept[1]
        print("end")
        """,
        numbers,
    )
    assert out == "end\n"


@pytest.mark.parametrize("how", ["os._exit(3)", "os.kill(os.getpid(), 9)", "sys.exit(3)"])
def test_an_end_in_any_other_way_is_an_end(numbers, how):
    done = python(
        f"""
        import os, sys, lowtide
        array = lowtide.memmap(sys.argv[1], "u4", "r", budget="8M")
        array.sum()
        {how}
        """,
        numbers,
        check=False,
    )
    assert done.returncode == (-9 if "kill" in how else 3), done.stderr


def test_an_interrupt_ends_a_long_call(numbers):
    done = python(
        """
        import os, signal, sys, threading, time, lowtide, numpy as np
        view = lowtide.open(sys.argv[1], budget="1M", page_size=512)
        ids = np.random.default_rng(1).integers(0, 65536, 200_000)
        out = np.empty((len(ids), 128), "u4")
        view.rows(ids[:10], "u4", 128)
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            for _ in range(1000):
                view.rows(ids, "u4", 128, out=out)
        except KeyboardInterrupt:
            print("interrupted")
        """,
        numbers,
    )
    assert done == "interrupted\n"


def test_threads_go_on_while_a_view_is_read(numbers):
    """Python's lock is free: a thread counts while another one gathers in a single call."""
    view = lowtide.open(numbers, budget="1M", page_size=512)
    ids = np.random.default_rng(1).integers(0, 65536, 60_000)
    counted, stop = [0], threading.Event()

    def count():
        while not stop.is_set():
            counted[0] += 1
            time.sleep(0)

    view.rows(ids[:10], "u4", 128)
    counter = threading.Thread(target=count)
    before = sys.getswitchinterval()
    # A thread that wants the lock does not get it by waiting: only where it is given back.
    sys.setswitchinterval(1000)
    try:
        counter.start()
        while counted[0] < 10:
            time.sleep(0.001)
        had = counted[0]
        view.rows(ids, "u4", 128)
        has = counted[0]
    finally:
        stop.set()
        sys.setswitchinterval(before)
        counter.join()
    assert has > had
