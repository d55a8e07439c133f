"""The stubs say what the package has."""

import os
import subprocess
import sys
from pathlib import Path

import lowtide
import pytest


PROGRAM = """
import lowtide
a = lowtide.memmap('x', dtype='f4', mode='r', shape=(5, 7), budget='2G')
view = lowtide.open('x', budget=1 << 30)
rows = view.rows([1, 2], 'f4', 128)
reveal_type(view.page_size)
lowtide.open('x', max='2G')
"""


def begun(folder):
    """The two checks under way, each with the file of what it says: they read all of numpy's stubs,
    beside the tests that come before these."""
    (folder / "program.py").write_text(PROGRAM)
    here = Path(__file__).parent
    stubs = ["mypy.stubtest", "lowtide", "--ignore-unused-allowlist",
             "--allowlist", here / "stubs-allowed.txt", "--mypy-config-file", here / "stubs-mypy.ini"]
    program = ["mypy", "--cache-dir", folder / "cache", folder / "program.py"]
    checks = {}
    for name, arguments in ("stubs", stubs), ("program", program):
        output = folder / name
        with output.open("w") as file:
            check = subprocess.Popen(
                [sys.executable, "-m", *arguments], stdout=file, stderr=file, cwd=folder,
                env={**os.environ, "MYPY_CACHE_DIR": str(folder / "cache-of-stubs")})
        checks[name] = check, output
    return checks


def said(checks, name):
    """The status of a check, and what it says."""
    pytest.importorskip("mypy")
    check, output = checks[name]
    return check.wait(250), output.read_text()


def test_stubs_agree_with_the_package(checks_of_types):
    status, text = said(checks_of_types, "stubs")
    assert status == 0, text


def test_a_program_that_uses_it_is_checked(checks_of_types):
    _, text = said(checks_of_types, "program")
    assert 'Revealed type is "builtins.int"' in text or '"int"' in text, text
    errors = [line for line in text.splitlines() if ": error:" in line]
    assert len(errors) == 1 and '"max"' in errors[0], text


def test_the_package_says_that_it_is_typed():
    folder = Path(lowtide.__file__).parent
    assert (folder / "py.typed").exists() and (folder / "__init__.pyi").exists()
