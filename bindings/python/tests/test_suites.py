"""The test suites of numpy, CPython and joblib, run against our classes.

Each is the one that is installed. What does not apply is listed here, with the reason; a test in
such a list that passes is taken from it.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent

#: Tests that do not apply, and why.
DO_NOT_APPLY = {
    "numpy": {},
    "cpython": {},
    "joblib": {},
}


def run(name, *arguments):
    """Runs a suite in an interpreter of its own: what passed, and its output."""
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=280,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    text = done.stdout + done.stderr
    print(f"{name}: {text.strip().splitlines()[-1]}")
    return done.returncode, text


def pytest_suite(name, module, least):
    pytest.importorskip(module)
    code, text = run(
        name, "-m", "pytest", "-q", "-p", f"suites.{name}", "-p", "no:cacheprovider",
        "--rootdir", HERE, "-c", os.devnull, "--pyargs", module,
        *(f"--deselect={test}" for test in DO_NOT_APPLY[name]),
    )
    assert code == 0, text
    passed = int(re.search(r"(\d+) passed", text).group(1))
    assert passed >= least, f"only {passed} tests ran\n{text}"
    assert re.search(r"lowtide: ([1-9]\d*) maps were ours", text), text


@pytest.fixture(autouse=True)
def in_tests(monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONPATH", str(HERE), prepend=os.pathsep)
    monkeypatch.chdir(tmp_path)


def test_memmap_of_numpy():
    pytest_suite("numpy", "numpy._core.tests.test_memmap", 20)


def test_memmapping_of_joblib():
    pytest_suite("joblib", "joblib.test.test_memmapping", 30)


def test_mmap_of_cpython():
    try:
        import test.test_mmap  # noqa: F401
    except ImportError:
        pytest.skip("this Python came without its tests")
    code, text = run("cpython", "-m", "suites.cpython", *DO_NOT_APPLY["cpython"])
    assert code == 0, text
    ran = int(re.search(r"Ran (\d+) tests", text).group(1))
    assert ran >= 35, text
    assert re.search(r"lowtide: ([1-9]\d*) maps were ours", text), text
