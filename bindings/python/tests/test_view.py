"""`lowtide.open`: rows, ranges, and what a file object does."""

import io
import json
import os
import subprocess
import sys
import threading
import zipfile

import lowtide
import numpy as np
import pytest
from conftest import MIB


def test_rows_are_those_of_the_file_within_the_budget(numbers):
    whole = np.fromfile(numbers, "u4").reshape(-1, 128)
    ids = np.random.default_rng(1).integers(0, len(whole), 30_000)
    with lowtide.open(numbers, max="4M") as view:
        found = view.rows(ids, "u4", 128)
        assert found.dtype == np.uint32 and np.array_equal(found, whole[ids])
        assert view.page == 512, "the page is the row"
        assert view.budget.usage <= 4 * MIB == view.budget.max
        stat = view.stat()
        assert stat["misses"] > 0 and stat["read_bytes"] < 30_000 * 1024


@pytest.mark.parametrize(
    ("row", "page"), [(1, 512), (512, 512), (513, 1024), (1024, 1024), (2000, 2048), (9999, 4096)]
)
def test_the_page_is_chosen_by_the_rows(numbers, row, page):
    whole = np.fromfile(numbers, "u1")
    with lowtide.open(numbers, max="4M") as view:
        found = view.rows([3, 0, 77], "u1", row)
        assert view.page == page
        for got, at in zip(found, (3, 0, 77)):
            assert np.array_equal(got, whole[at * row : (at + 1) * row])
    with lowtide.open(numbers, max="4M", page=8192) as view:
        assert view.page == 8192 and np.array_equal(view.rows([3, 0, 77], "u1", row), found)


def test_rows_of_any_shape_type_and_offset(numbers):
    whole = np.fromfile(numbers, "u1")
    row = np.dtype([("a", "<u4"), ("b", "<f8"), ("c", "S3")])
    with lowtide.open(numbers, max="4M") as view:
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
    with lowtide.open(numbers, max="4M") as view:
        out = np.zeros((2, 128), "u4")
        assert view.rows([1, 2], "u4", 128, out=out) is out and out[1, 0] == 256
        for wrong in (
            np.zeros((3, 128), "u4"), np.zeros((2, 128), "i4"), np.zeros((2, 256), "u4")[:, ::2],
            np.broadcast_to(np.zeros(128, "u4"), (2, 128)),
        ):
            with pytest.raises(ValueError, match="out"):
                view.rows([1, 2], "u4", 128, out=wrong)


def test_rows_that_are_not_there_are_an_index_error(numbers):
    with lowtide.open(numbers, max="4M") as view:
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
    with lowtide.open(numbers, max="4M") as view:
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

    with lowtide.open(numbers, max="2M") as view:
        workers = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert not errors, errors
        assert view.budget.usage <= 2 * MIB


def test_a_pager_says_how_large_it_should_be(numbers):
    pager = lowtide.Pager("4M")
    assert pager.curve() is None and pager.advice() is None
    with lowtide.open(numbers, pager=pager) as view:
        rows = np.random.default_rng(1).integers(0, 2 * MIB // 4096, 20_000)
        for part in np.array_split(rows, 100):
            view.rows(part, "u1", 4096)
            pager.curve()
        # Pages of closed files are forgotten.
        curve = pager.curve()
    assert 0.8 < curve["footprint_bytes"] / (2 * MIB) < 1.2
    assert curve["first_accesses"] < 0.2 * curve["accesses"]
    assert [size for size, _ in curve["points"]] == sorted(size for size, _ in curve["points"])
    assert 1 * MIB < pager.advice(0.02) < 3 * MIB and pager.advice(0.9) < 1 * MIB
    assert pager.stall_advice() >= 0
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
    with lowtide.open(numbers, max="4M") as view:
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
    with lowtide.open(path, max="1M", create=10_000) as view:
        assert len(view) == 10_000
        assert view.write_at(5000, np.arange(3000, dtype="u4")) == 12_000
        view.seek(1)
        assert view.write(b"one") == 3
        view.flush()
        assert path.read_bytes()[:5] == b"\0one\0"
        assert view.truncate(6000) == 6000
    found = path.read_bytes()
    assert len(found) == 6000 and found[5004:5008] == b"\1\0\0\0"
    with lowtide.open(path, "r+", max="1M") as view:
        assert view.writable() and view.rows([1], "u1", 3)[0].tobytes() == b"e\0\0"


def test_errors_say_what_and_where(tmp_path, numbers):
    with pytest.raises(FileNotFoundError) as error:
        lowtide.open(tmp_path / "none", max="1M")
    assert error.value.errno == 2
    with pytest.raises(OSError):
        lowtide.open(tmp_path, max="1M", page=512)
    with pytest.raises(ValueError, match="mode"):
        lowtide.open(numbers, "w", max="1M")
    with pytest.raises(TypeError, match="exclude"):
        lowtide.open(numbers, max="1M", pager=lowtide.Pager("1M"))
    with pytest.raises(TypeError, match="page"):
        lowtide.open(numbers, page=512, pager=lowtide.Pager("1M"))
    with pytest.raises(ValueError, match="power of two"):
        lowtide.open(numbers, max="1M", page=1000)


def test_an_archive_is_read_through_it(tmp_path):
    path, data = tmp_path / "archive.zip", np.random.default_rng(1).bytes(3 * MIB)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("inside", data)
    with lowtide.open(path, max="1M") as view, zipfile.ZipFile(view) as archive:
        assert archive.read("inside") == data


def test_arrow_reads_files_through_it(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({"a": np.arange(MIB), "b": np.random.default_rng(1).random(MIB)})
    parquet.write_table(table, tmp_path / "table.parquet")
    with lowtide.open(tmp_path / "table.parquet", max="2M") as view:
        assert parquet.read_table(view).equals(table)
    with pyarrow.OSFile(str(tmp_path / "t.arrow"), "wb") as sink:
        with pyarrow.ipc.new_file(sink, table.schema) as out:
            out.write_table(table)
    with lowtide.open(tmp_path / "t.arrow", max="2M") as view:
        assert pyarrow.ipc.open_file(view).read_all().equals(table)
        assert view.budget.usage <= 2 * MIB


def test_h5py_reads_files_through_it(tmp_path):
    h5py = pytest.importorskip("h5py")
    rows = np.random.default_rng(1).random((1000, 128))
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file.create_dataset("rows", data=rows, chunks=(10, 128))
    with lowtide.open(tmp_path / "rows.h5", max="1M") as view, h5py.File(view, "r") as file:
        assert np.array_equal(file["rows"][[5, 70, 999]], rows[[5, 70, 999]])


def test_fsspec_opens_files_through_it(numbers):
    fsspec = pytest.importorskip("fsspec")
    with fsspec.open(f"lowtide://{numbers}", max="4M") as file:
        assert isinstance(file, lowtide.View)
        file.seek(400)
        assert int.from_bytes(file.read(4), "little") == 100
        assert file.budget.max == 4 * MIB
