"""`lowtide.open`: rows, ranges, and what a file object does."""

import errno
import io
import json
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
import warnings
import zipfile

import lowtide
import numpy as np
import pytest
from conftest import MIB, in_child, python


def test_rows_are_those_of_the_file_within_the_budget(numbers):
    whole = np.fromfile(numbers, "u4").reshape(-1, 128)
    ids = np.random.default_rng(1).integers(0, len(whole), 30_000)
    with lowtide.open(numbers, budget="4M") as view:
        found = view.rows(ids, "u4", 128)
        assert found.dtype == np.uint32 and np.array_equal(found, whole[ids])
        assert view.page_size == 512, "the page is the row"
        assert view.budget.usage <= 4 * MIB == view.budget.max
        stat = view.stat()
        assert stat["misses"] > 0 and stat["read_bytes"] < 30_000 * 1024


@pytest.mark.parametrize(
    ("row", "page"), [(1, 512), (512, 512), (513, 1024), (1024, 1024), (2000, 2048), (9999, 4096)]
)
def test_the_page_is_chosen_by_the_rows(numbers, row, page):
    whole = np.fromfile(numbers, "u1")
    with lowtide.open(numbers, budget="4M") as view:
        found = view.rows([3, 0, 77], "u1", row)
        assert view.page_size == page
        for got, at in zip(found, (3, 0, 77)):
            assert np.array_equal(got, whole[at * row : (at + 1) * row])
    with lowtide.open(numbers, budget="4M", page_size=8192) as view:
        assert view.page_size == 8192 and np.array_equal(view.rows([3, 0, 77], "u1", row), found)


def test_rows_of_any_shape_type_and_offset(numbers):
    whole = np.fromfile(numbers, "u1")
    row = np.dtype([("a", "<u4"), ("b", "<f8"), ("c", "S3")])
    with lowtide.open(numbers, budget="4M") as view:
        part = whole[11:]
        part = part[: len(part) // row.itemsize * row.itemsize].view(row)
        assert np.array_equal(view.rows([5, 100_000], row, offset=11), part[[5, 100_000]])
        ids = np.array([[0, 5], [9, -1]], "i2")
        cubes = whole[: len(whole) // 48 * 48].view("u2").reshape(-1, 2, 3, 4)
        assert np.array_equal(view.rows(ids, "u2", (2, 3, 4)), cubes[ids])
        times = view.rows(np.array([1], "u1"), "M8[s]")
        assert times.dtype == "M8[s]" and times[0] == whole[8:16].view("M8[s]")[0]
        long = whole[: len(whole) // MIB * MIB].reshape(-1, MIB)
        assert np.array_equal(view.rows([2, 1], "u1", MIB), long[[2, 1]])
        assert view.rows([], "u4", 8).shape == (0, 8)
        assert view.rows(4, "u4") == 4


def test_rows_into_an_array_that_is_there(numbers):
    with lowtide.open(numbers, budget="4M") as view:
        out = np.zeros((2, 128), "u4")
        assert view.rows([1, 2], "u4", 128, out=out) is out and out[1, 0] == 256
        for wrong in (
            np.zeros((3, 128), "u4"), np.zeros((2, 128), "i4"), np.zeros((2, 256), "u4")[:, ::2],
            np.broadcast_to(np.zeros(128, "u4"), (2, 128)),
        ):
            with pytest.raises(ValueError, match="out"):
                view.rows([1, 2], "u4", 128, out=wrong)


def test_rows_that_are_not_there_are_an_index_error(numbers):
    with lowtide.open(numbers, budget="4M") as view:
        assert view.rows([-1], "u4", 128)[0, -1] == 8 * MIB - 1
        for wrong in (65536, -65537, 1 << 62, -(1 << 62)):
            with pytest.raises(IndexError, match="65536 rows"):
                view.rows([0, wrong], "u4", 128)
        with pytest.raises(IndexError, match="whole numbers"):
            view.rows([0.5], "u4", 128)
        with pytest.raises(IndexError, match="whole numbers"):
            view.rows([True, False], "u4", 128)
        with pytest.raises(TypeError, match="objects"):
            view.rows([0], object)
        with pytest.raises(ValueError, match="no bytes"):
            view.rows([0], "u4", 0)


def test_a_file_that_has_become_longer_has_more_rows(numbers):
    with lowtide.open(numbers, budget="4M") as view:
        with pytest.raises(IndexError):
            view.rows([65536], "u4", 128)
        with open(numbers, "ab") as file:
            np.full(128, 7, "u4").tofile(file)
        assert list(view.rows([65536], "u4", 128)[0]) == [7] * 128
        assert len(view) == 32 * MIB + 512


def test_threads_gather_from_one_view(numbers):
    whole, errors = np.fromfile(numbers, "u4").reshape(-1, 128), []

    def work(seed):
        draw = np.random.default_rng(seed)
        out = np.empty((1000, 128), "u4")
        try:
            for _ in range(20):
                ids = draw.integers(0, len(whole), 1000)
                assert np.array_equal(view.rows(ids, "u4", 128, out=out), whole[ids])
        except BaseException as error:
            errors.append(error)

    with lowtide.open(numbers, budget="2M") as view:
        workers = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert not errors, errors
        assert view.budget.usage <= 2 * MIB


def test_a_pager_says_how_large_it_should_be(numbers):
    pager = lowtide.Pager("4M")
    assert pager.curve() is None and pager.budget_for_misses() is None
    with lowtide.open(numbers, budget=pager) as view:
        rows = np.random.default_rng(1).integers(0, 2 * MIB // 4096, 20_000)
        for part in np.array_split(rows, 100):
            view.rows(part, "u1", 4096)
            pager.curve()
        # Pages of closed files are forgotten.
        curve = pager.curve()
    assert 0.8 < curve.footprint_bytes / (2 * MIB) < 1.2
    assert curve.first_accesses < 0.2 * curve.accesses
    assert [at.bytes for at in curve.points] == sorted(size for size, _ in curve["points"])
    assert repr(curve).startswith(f"Curve(accesses={curve.accesses}, first_accesses=")
    assert list(dict(curve))[-1] == "points" and curve.seconds > 0
    assert 1 * MIB < pager.budget_for_misses(0.02) < 3 * MIB
    assert pager.budget_for_misses(0.9) < 1 * MIB
    assert pager.budget_for_stalls() >= 0
    assert pager.stat().misses == pager.stat()["misses"] > 0
    assert "misses=" in repr(pager.stat()) and "misses" in dir(pager.stat())
    with pytest.raises(AttributeError, match="no counter 'mises'"):
        pager.stat().mises
    pressure = pager.pressure()
    assert pressure.some.total == pressure["some"]["total"] >= 0 and pressure.full.avg10 <= 1
    with pytest.raises(AttributeError):
        pressure.some.total = 0
    pager.close()


def test_a_pager_is_seen_by_other_processes_if_it_wants():
    def seen():
        stat = [sys.executable, "-m", "lowtide", "stat", str(os.getpid()), "--json"]
        ended = subprocess.run(stat, capture_output=True, text=True, check=False)
        return json.loads(ended.stdout) if ended.returncode == 0 else None

    with lowtide.Pager("4M") as pager:
        assert seen() is None
        pager.publish_status()
        page = seen()
        assert page["origin"] == "python"
        assert page["pagers"][0]["tenants"][0]["max_bytes"] == 4 * MIB


def test_it_is_a_file_object(numbers):
    whole = numbers.read_bytes()
    with lowtide.open(numbers, budget="4M") as view:
        assert isinstance(view, io.RawIOBase)
        assert (view.readable(), view.writable(), view.seekable()) == (True, False, True)
        assert view.name == str(numbers) and view.mode == "rb"
        assert view.read(10) == whole[:10] and view.tell() == 10
        assert view.seek(-5, io.SEEK_END) == len(whole) - 5 and view.read() == whole[-5:]
        assert view.read(1) == b"" and view.seek(3) == 3 and view.seek(4, io.SEEK_CUR) == 7
        assert view.read_at(1000, 1000) == whole[1000:2000]
        assert view.read_at(len(whole) - 3, 10) == whole[-3:] and view.read_at(1 << 40, 1) == b""
        with pytest.raises(ValueError, match="negative"):
            view.seek(-1)
        with pytest.raises(ValueError, match="whence"):
            view.seek(0, 9)
        with pytest.raises(io.UnsupportedOperation):
            view.write(b"x")
        view.seek(0)
        assert io.BufferedReader(view).read() == whole
    assert view.closed
    with pytest.raises(ValueError, match="closed"):
        view.rows([0], "u4", 1)
    with pytest.raises(ValueError, match="closed"):
        view.read(1)


def test_a_file_is_made_written_and_read_again(tmp_path):
    path = tmp_path / "new"
    with lowtide.open(path, budget="1M", create=10_000) as view:
        assert len(view) == 10_000
        assert view.write_at(5000, np.arange(3000, dtype="u4")) == 12_000
        view.seek(1)
        assert view.write(b"one") == 3
        view.flush()
        assert path.read_bytes()[:5] == b"\0one\0"
        assert view.truncate(6000) == 6000
    found = path.read_bytes()
    assert len(found) == 6000 and found[5004:5008] == b"\1\0\0\0"
    with lowtide.open(path, "r+", budget="1M") as view:
        assert view.writable() and view.rows([1], "u1", 3)[0].tobytes() == b"e\0\0"


def test_errors_say_what_and_where(tmp_path, numbers):
    with pytest.raises(FileNotFoundError) as error:
        lowtide.open(tmp_path / "none", budget="1M")
    assert error.value.errno == 2
    with pytest.raises(OSError):
        lowtide.open(tmp_path, budget="1M", page_size=512)
    with pytest.raises(ValueError, match="mode"):
        lowtide.open(numbers, "w", budget="1M")
    with pytest.raises(TypeError, match="page_size"):
        lowtide.open(numbers, page_size=512, budget=lowtide.Pager("1M"))
    with pytest.raises(ValueError, match="power of two"):
        lowtide.open(numbers, budget="1M", page_size=1000)


def test_what_makes_no_sense_is_said_at_once(tmp_path, numbers):
    with pytest.raises(IsADirectoryError):
        lowtide.open(tmp_path, budget="1M")
    with lowtide.open(numbers, budget="1M") as view:
        with pytest.raises(ValueError, match="not at -1"):
            view.rows([0], "u4", 1, offset=-1)
        with pytest.raises(TypeError, match="not a list"):
            view.rows([0], "u4", 1, out=[0])
        with pytest.raises(IndexError, match="row 9223372036854775808 is not"):
            view.rows(np.array([2**63], "u8"), "u4", 1)
        assert view.rows(np.array([3], "u8"), "u4") == 3


@pytest.mark.parametrize("way", ["before", "after", "in a child"])
def test_a_view_is_passed_on_with_its_file(tmp_path, way):
    path = tmp_path / "x"
    np.full(1000, 1.0).tofile(path)
    view = lowtide.open(path, budget="1M", page_size=4096)
    assert view.rows([0], "f8", 1)[0] == 1
    text = pickle.dumps(view)
    with pickle.loads(text) as again:
        assert again.rows([0], "f8", 1)[0] == 1
    new = tmp_path / "new"
    np.full(1000, 2.0).tofile(new)
    os.replace(new, path)
    refused = pytest.raises(lowtide.Error, match="is another file by now")
    if way == "before":
        with refused:
            pickle.loads(text)
    elif way == "after":
        with refused:
            pickle.dumps(view)
    else:

        def work():
            with refused:
                view.rows([0], "f8", 1)
            return True

        assert in_child(work)
    assert view.rows([999], "f8", 1)[0] == 1


END = """
import os, signal, sys, lowtide
view = lowtide.open(sys.argv[1], "r+", budget="2M")
view.write(b"data")
{}
"""


@pytest.mark.parametrize(
    ("end", "is_kept"),
    [
        ("pass", True), ("sys.exit(1)", True), ("del lowtide; raise SystemExit(1)", True),
        ("1 / 0", True), ("view.flush(); os._exit(0)", True), ("os._exit(0)", None),
        ("os.kill(os.getpid(), 15)", None),
        ("signal.signal(15, lambda *_: sys.exit(1)); os.kill(os.getpid(), 15)", True),
    ],
)
def test_what_is_written_outlives_an_end_of_which_python_hears(tmp_path, end, is_kept):
    path = tmp_path / "x"
    path.write_bytes(b"." * 65536)
    python(END.format(end), path, check=False)
    # What Python does not hear of may have been written back in time.
    assert path.read_bytes()[:4] in ((b"data",) if is_kept else (b"data", b"...."))


def write_in_worker(path):
    global of_worker
    of_worker = lowtide.open(path, "r+", budget="2M")
    of_worker.write(b"data")


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_worker_makes_durable_what_it_has_written(tmp_path, method):
    path = tmp_path / "x"
    path.write_bytes(b"." * 65536)
    worker = multiprocessing.get_context(method).Process(target=write_in_worker, args=(path,))
    worker.start()
    worker.join()
    assert worker.exitcode == 0 and path.read_bytes()[:4] == b"data"


def test_a_child_does_not_flush_what_its_parent_has_written(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"." * 65536)
    view = lowtide.open(path, "r+", budget="2M")
    view.write(b"data")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert in_child(lambda: lowtide._view.flush_all() is None)
    view.close()
    assert path.read_bytes()[:4] == b"data"


def test_errors_of_the_runtime_are_told_apart(tmp_path, numbers):
    """Each is a `lowtide.Error`, and what Python's own functions raise for the same."""
    pager = lowtide.Pager("1M")
    tenant = pager.tenant("a", min="128K")
    with lowtide.open(numbers, "r+", budget=pager, lock=True):
        with pytest.raises(lowtide.Locked) as locked:
            lowtide.open(numbers, "r+", budget="1M", page_size=4096)
        assert isinstance(locked.value, BlockingIOError) and locked.value.errno == errno.EAGAIN
    with pytest.raises(ValueError, match="cannot name a tenant"):
        pager.tenant("a/b")
    pager.close()
    with pytest.raises(lowtide.Closed) as closed:
        tenant.usage
    assert isinstance(closed.value, ValueError)
    assert issubclass(lowtide.OutOfBudget, MemoryError)
    assert issubclass(lowtide.OutOfRange, IndexError) and issubclass(lowtide.Timeout, TimeoutError)
    for kind in lowtide._errors.__all__:
        kind = getattr(lowtide, kind)
        assert issubclass(kind, lowtide.Error) and issubclass(kind, OSError)
        assert kind.__module__ == "lowtide" and pickle.loads(pickle.dumps(kind("x"))).args == ("x",)


def test_an_archive_is_read_through_it(tmp_path):
    path, data = tmp_path / "archive.zip", np.random.default_rng(1).bytes(3 * MIB)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("inside", data)
    with lowtide.open(path, budget="1M") as view, zipfile.ZipFile(view) as archive:
        assert archive.read("inside") == data


def test_arrow_reads_files_through_it(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({"a": np.arange(MIB), "b": np.random.default_rng(1).random(MIB)})
    parquet.write_table(table, tmp_path / "table.parquet")
    with lowtide.open(tmp_path / "table.parquet", budget="2M") as view:
        assert parquet.read_table(view).equals(table)
    with pyarrow.OSFile(str(tmp_path / "t.arrow"), "wb") as sink:
        with pyarrow.ipc.new_file(sink, table.schema) as out:
            out.write_table(table)
    with lowtide.open(tmp_path / "t.arrow", budget="2M") as view:
        assert pyarrow.ipc.open_file(view).read_all().equals(table)
        assert view.budget.usage <= 2 * MIB


def test_h5py_reads_files_through_it(tmp_path):
    h5py = pytest.importorskip("h5py")
    rows = np.random.default_rng(1).random((1000, 128))
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file.create_dataset("rows", data=rows, chunks=(10, 128))
    with lowtide.open(tmp_path / "rows.h5", budget="1M") as view, h5py.File(view, "r") as file:
        assert np.array_equal(file["rows"][[5, 70, 999]], rows[[5, 70, 999]])


def test_fsspec_opens_files_through_it(numbers):
    fsspec = pytest.importorskip("fsspec")
    with fsspec.open(f"lowtide://{numbers}", budget="4M") as file:
        assert isinstance(file, lowtide.View)
        file.seek(400)
        assert int.from_bytes(file.read(4), "little") == 100
        assert file.budget.max == 4 * MIB
    with pytest.raises(ValueError, match="for reading"):
        fsspec.open(f"lowtide://{numbers}", "wb", budget="4M").open()
