"""What the tests have in common: files, counts of the page cache, and other interpreters."""

import ctypes
import gc
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

MIB = 1 << 20
#: The package's examples, which tests import, too.
EXAMPLES = Path(__file__).parents[1] / "examples"
sys.path.insert(0, str(EXAMPLES))
_libc = ctypes.CDLL(None, use_errno=True)


def cached_bytes(path):
    """Bytes of a file that are in the page cache (cachestat(2), Linux 6.5)."""
    fd = os.open(path, os.O_RDONLY)
    try:
        whole, found = (ctypes.c_uint64 * 2)(0, 0), (ctypes.c_uint64 * 5)()
        if _libc.syscall(451, fd, whole, found, 0) != 0:
            pytest.skip("this kernel has no cachestat(2)")
        return found[0] * os.sysconf("SC_PAGE_SIZE")
    finally:
        os.close(fd)


def uncache(path):
    """Takes a file out of memory: what was just written could not leave."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def settled(measure, most, patience=20.0):
    """What `measure` says once it is at most `most`, or after a long time. How long is no
    verdict: pages of a map leave a moment after they came."""
    deadline = time.monotonic() + patience
    while (found := measure()) > most and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def python(source, *arguments, check=True, env=None):
    """Runs a program in an interpreter of its own; what it printed."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(source), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, **(env or {})},
    )
    if check:
        assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout
    return done


def in_child(work):
    """Runs a function in a child of `os.fork`; whether it returned true."""
    child = os.fork()
    if child == 0:
        code = 2
        try:
            code = 0 if work() else 1
        finally:
            sys.stderr.flush()
            os._exit(code)
    # A child that waits for ever, perhaps in `fork` itself, is an error, not the end of all tests.
    deadline = time.monotonic() + 120
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.002)
    status = ended[1]
    assert not os.WIFSIGNALED(status), signal.Signals(os.WTERMSIG(status)).name
    return os.waitstatus_to_exitcode(status) == 0


def replaced(path, make):
    """Writes a file anew until it has the number that the old one had, as ext4 gives out at once;
    whether it has."""
    before = os.stat(path).st_ino
    for _ in range(50):
        os.remove(path)
        make(path)
        if os.stat(path).st_ino == before:
            return True
    return False


def open_files():
    """Descriptors of this process."""
    return len(os.listdir("/proc/self/fd"))


def threads():
    """Threads of this process."""
    return len(os.listdir("/proc/self/task"))


@pytest.fixture
def numbers(tmp_path):
    """A file of 32 MiB, of which nothing is in memory: the numbers from 0 on, four bytes each."""
    path = tmp_path / "numbers.u4"
    with open(path, "wb") as file:
        np.arange(8 * MIB, dtype="u4").tofile(file)
    uncache(path)
    return path


@pytest.fixture(autouse=True)
def collected():
    """Maps and pagers of a test do not live into the next."""
    yield
    gc.collect()


@pytest.fixture(scope="session", autouse=True)
def checks_of_types(request, tmp_path_factory):
    """What mypy has to say, where a test asks for it: begun early, since it takes long."""
    tests = [item.module for item in request.session.items if item.path.stem == "test_stubs"]
    checks = tests[0].begun(tmp_path_factory.mktemp("types")) if tests else {}
    yield checks
    for check, _ in checks.values():
        check.kill()
        check.wait()
