"""The examples do what they say, on data that is several times their budget."""

import os
import subprocess
import sys

import numpy as np
import pytest
from conftest import EXAMPLES, MIB, cached_bytes, python, settled, uncache

ROWS = 4 * MIB // 128


def example(name, *arguments):
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, *map(str, arguments)],
        capture_output=True, text=True, timeout=200, env=os.environ,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def vectors(tmp_path):
    """16 MiB of floats, in rows of 128."""
    path = tmp_path / "vectors.f4"
    np.random.default_rng(1).random(4 * MIB, "f4").tofile(path)
    uncache(path)
    return path


@pytest.fixture
def queries(tmp_path, vectors):
    """A few of the rows, almost, and their numbers."""
    numbers = [5, 77, 4000, 8191]
    rows = np.fromfile(vectors, "f4").reshape(-1, 128)[numbers] + np.float32(1e-4)
    path = tmp_path / "queries.f4"
    rows.tofile(path)
    return path, numbers


def test_batches_of_a_program_with_one_new_line(tmp_path):
    path = tmp_path / "tokens.u2"
    np.random.default_rng(1).integers(0, 50_000, 16 * MIB).astype("u2").tofile(path)
    uncache(path)
    name, shape = example("get_batch.py", path, "4M").split(" ", 1)
    assert name == "memmap" and shape.startswith("(32, 256)")
    assert settled(lambda: cached_bytes(path), 4 * MIB) <= 4 * MIB


def test_workers_of_all_kinds_load_every_sample_once(vectors):
    expected = float(np.fromfile(vectors, "f4").sum(dtype="f8"))
    words = example("loader.py", vectors, "4M", 2).split()
    assert words[::3] == ["fork", "forkserver", "spawn"]
    assert words[1::3] == [str(ROWS)] * 3
    assert all(abs(float(found) - expected) < 0.01 for found in words[2::3]), (words, expected)


def test_the_nearest_rows_are_found(vectors):
    found, resident = example("nearest.py", vectors, "2M").rsplit(" ", 1)
    assert found == f"[5, 77, {ROWS - 1}]"
    assert settled(lambda: cached_bytes(vectors), 2 * MIB) <= 2 * MIB
    assert int(resident) > 0


def test_an_index_of_usearch_is_searched_in_a_part_of_its_size(tmp_path, vectors, queries):
    pytest.importorskip("usearch")
    path, (asked, _) = tmp_path / "vectors.usearch", queries
    # In an interpreter of its own: it does not go with faiss in one process. Its graph is built by
    # threads and differs each time, so what is nearest in it is asked of a copy in memory.
    expected = python(
        """
        import sys, numpy as np
        from usearch.index import Index
        rows = np.fromfile(sys.argv[1], "f4").reshape(-1, 128)[:8192]
        index = Index(ndim=128, metric="l2sq", dtype="f32", connectivity=8, expansion_add=16)
        index.add(np.arange(len(rows)), rows)
        index.save(sys.argv[2])
        asked = np.fromfile(sys.argv[3], "f4").reshape(-1, 128)
        print(Index.restore(sys.argv[2]).search(asked, 1).keys.ravel().tolist())
        """,
        vectors,
        path,
        asked,
    )
    uncache(path)
    found, resident = example("search.py", "usearch", path, asked, "1M").rsplit(" ", 1)
    assert found == expected.strip()
    assert 4 * MIB < path.stat().st_size and 0 < int(resident) <= MIB


def test_an_index_of_faiss_is_searched_in_a_part_of_its_size(tmp_path, vectors, queries):
    pytest.importorskip("faiss")
    path, (asked, numbers) = tmp_path / "vectors.faiss", queries
    python(
        """
        import faiss, sys, numpy as np
        rows = np.fromfile(sys.argv[1], "f4").reshape(-1, 128)
        index = faiss.index_factory(128, "IVF64,Flat")
        index.train(rows[::8])
        index.add(rows)
        faiss.write_index(index, sys.argv[2])
        """,
        vectors,
        path,
    )
    uncache(path)
    found, resident = example("search.py", "faiss", path, asked, "2M").rsplit(" ", 1)
    assert found == str(numbers)
    assert 16 * MIB < path.stat().st_size and 0 < int(resident) <= 2 * MIB


def test_tables_are_read_through_a_budget(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    keys, values = np.arange(MIB) % 7, np.arange(MIB)
    table = pa.table({"key": keys, "value": values})
    ipc, parquet = tmp_path / "table.arrow", tmp_path / "table.parquet"
    with pa.OSFile(str(ipc), "wb") as sink, pa.ipc.new_file(sink, table.schema) as out:
        out.write_table(table, max_chunksize=65_536)
    pq.write_table(table, parquet, row_group_size=65_536, compression="none", use_dictionary=False)
    assert ipc.stat().st_size > 16 * MIB and parquet.stat().st_size > 8 * MIB
    *lines, usage = example("tables.py", ipc, parquet, "2M").splitlines()
    assert lines[:2] == [f"ipc {values.sum()}", f"parquet {values.sum()}"]
    assert lines[2] in (f"polars {values[keys == 3].sum()}", "polars is not installed")
    assert 0 < int(usage) <= 2 * MIB
