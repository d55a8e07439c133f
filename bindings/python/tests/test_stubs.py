"""The stubs say what the package has."""

import os
import subprocess
import sys
from pathlib import Path

import lowtide
import pytest


def test_stubs_agree_with_the_package(tmp_path):
    pytest.importorskip("mypy")
    done = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "lowtide",
         "--ignore-unused-allowlist", "--allowlist", Path(__file__).with_name("stubs-allowed.txt"),
         "--mypy-config-file", Path(__file__).with_name("stubs-mypy.ini")],
        capture_output=True, text=True, timeout=250, cwd=tmp_path,
        env={**os.environ, "MYPY_CACHE_DIR": str(tmp_path / "cache")},
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_program_that_uses_it_is_checked(tmp_path):
    pytest.importorskip("mypy")
    program = tmp_path / "program.py"
    program.write_text(
        "import lowtide\n"
        "a = lowtide.memmap('x', dtype='f4', mode='r', shape=(5, 7), max='2G')\n"
        "view = lowtide.open('x', max=1 << 30)\n"
        "rows = view.rows([1, 2], 'f4', 128)\n"
        "reveal_type(view.page)\n"
        "lowtide.open('x', maximum='2G')\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", tmp_path / "cache", program],
        capture_output=True, text=True, timeout=250, cwd=tmp_path,
    )
    assert 'Revealed type is "builtins.int"' in done.stdout or '"int"' in done.stdout, done.stdout
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert len(errors) == 1 and "maximum" in errors[0], done.stdout


def test_the_package_says_that_it_is_typed():
    folder = Path(lowtide.__file__).parent
    assert (folder / "py.typed").exists() and (folder / "__init__.pyi").exists()
