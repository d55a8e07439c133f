"""The examples do what they say, on data that is several times their budget."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import MIB, cached_bytes, settled, uncache

EXAMPLES = Path(__file__).parents[1] / "examples"


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


def test_batches_of_a_program_with_one_new_line(tmp_path):
    path = tmp_path / "tokens.u2"
    np.random.default_rng(1).integers(0, 50_000, 16 * MIB).astype("u2").tofile(path)
    uncache(path)
    name, shape = example("get_batch.py", path, "4M").split(" ", 1)
    assert name == "memmap" and shape.startswith("(32, 256)")
    assert settled(lambda: cached_bytes(path), 4 * MIB) <= 4 * MIB


def test_workers_of_all_kinds_load_the_same(vectors):
    expected = float(np.fromfile(vectors, "f4").sum(dtype="f8"))
    lines = example("loader.py", vectors, "4M", 2).split()
    assert lines[::2] == ["fork", "forkserver", "spawn"]
    assert all(abs(float(found) - expected) < 1 for found in lines[1::2]), (lines, expected)


def test_the_nearest_rows_are_found(vectors):
    found, resident = example("nearest.py", vectors, "4M").rsplit(" ", 1)
    assert found == f"[5, 77, {4 * MIB // 128 - 1}]"
    assert settled(lambda: cached_bytes(vectors), 4 * MIB) <= 4 * MIB
    assert int(resident) > 0
