"""What the runtime says is logged, and logging never waits for what waits for it."""

import logging
import resource
import signal
import time

import lowtide
import pytest
from conftest import MIB, python

#: Every pager says which I/O engine it has, to those that look for details.
EVENT = "I/O engine chosen"


def arrived(caplog, text, patience=20.0):
    """The records with this text: they come a moment later, from a thread."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        found = [record for record in caplog.records if text in record.getMessage()]
        if found:
            return found
        time.sleep(0.01)
    return []


def test_messages_of_the_runtime_are_records_of_the_logger(caplog):
    caplog.set_level(logging.DEBUG, logger="lowtide")
    lowtide.Pager("1M")
    record = arrived(caplog, EVENT)[0]
    assert (record.name, record.levelname) == ("lowtide", "DEBUG")
    assert record.filename.endswith(".rs") and record.lineno > 0
    assert "reason:" in record.getMessage()


def test_a_write_that_fails_in_the_background_is_a_warning(tmp_path, caplog):
    path = tmp_path / "data"
    view = lowtide.open(path, budget="8M", create=4 * MIB)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, hard))
    try:
        view.write_at(2 * MIB, b"x" * 4096)
        with pytest.raises(OSError):
            view.flush()
        record = arrived(caplog, "write-back failed")[0]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert record.levelname == "WARNING" and str(path) in record.getMessage()
    view.close()
    assert path.read_bytes()[2 * MIB : 2 * MIB + 4096] == b"x" * 4096


@pytest.mark.parametrize("level, count", [("DEBUG", 20), ("INFO", 0)])
def test_what_is_queued_at_the_end_is_logged_if_it_is_wanted(tmp_path, level, count):
    log = tmp_path / "log"
    python(
        """
        import sys, lowtide, logging
        logging.basicConfig(filename=sys.argv[1], level=sys.argv[2])
        for _ in range(20):
            lowtide.Pager("1M")
        """,
        log,
        level,
    )
    assert log.read_text().count(EVENT) == count


def test_a_handler_may_use_lowtide_and_wait_for_python_threads(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(bytes(MIB))
    out = python(
        """
        import logging, sys, threading, lowtide
        seen = []
        class Handler(logging.Handler):
            def emit(self, record):
                if len(seen) < 10:
                    with lowtide.open(sys.argv[1], budget="1M", page_size=512) as view:
                        seen.append(view.rows([3], "u1", 512).sum())
                other = threading.Thread(target=lambda: None)
                other.start()
                other.join()
        logging.getLogger("lowtide").addHandler(Handler())
        logging.getLogger("lowtide").setLevel(logging.DEBUG)
        for _ in range(10):
            lowtide.Pager("1M")
        import time
        while len(seen) < 10:
            time.sleep(0.01)
        print(len(seen))
        """,
        path,
    )
    assert out == "10\n"


def test_a_handler_that_fails_is_reported_and_the_next_one_is_called():
    done = python(
        """
        import logging, lowtide, time
        seen = []
        class Filter(logging.Filter):
            def filter(self, record):
                seen.append(record)
                raise ZeroDivisionError("of a filter")
        logging.getLogger("lowtide").addFilter(Filter())
        logging.getLogger("lowtide").setLevel(logging.DEBUG)
        for turn in range(3):
            lowtide.Pager("1M")
            while len(seen) == turn:
                time.sleep(0.01)
        """,
        check=False,
    )
    assert done.returncode == 0 and done.stderr.count("ZeroDivisionError: of a filter") == 3


def test_children_of_fork_log_beside_threads_that_log(tmp_path):
    log = tmp_path / "log"
    python(
        """
        import logging, os, sys, threading, lowtide
        form = "%(process)d %(message)s"
        logging.basicConfig(filename=sys.argv[1], level=logging.DEBUG, format=form)
        stop = threading.Event()
        def work():
            while not stop.is_set():
                lowtide.Pager("1M")
        workers = [threading.Thread(target=work) for _ in range(2)]
        for worker in workers:
            worker.start()
        for _ in range(20):
            if (child := os.fork()) == 0:
                lowtide.Pager("1M")
                lowtide._lowtide.leave_all()
                os._exit(7)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        stop.set()
        for worker in workers:
            worker.join()
        print(os.getpid())
        """,
        log,
    )
    processes = {line.split()[0] for line in log.read_text().splitlines() if "chosen" in line}
    assert len(processes) == 21


def test_a_thread_that_has_the_lock_holds_no_thread_of_the_runtime_up(caplog):
    """Events come while no Python code runs but a call that keeps Python's lock."""
    out = python(
        """
        import ctypes, logging, sys, threading, lowtide
        logging.basicConfig(stream=sys.stdout, level=logging.DEBUG, format="%(message)s")
        made = []
        def work():
            for _ in range(200):
                made.append(lowtide.Pager("1M"))
        worker = threading.Thread(target=work)
        worker.start()
        sleep = ctypes.PyDLL(None).usleep                  # keeps Python's lock
        while worker.is_alive():
            sleep(2000)
            worker.join(0.001)
        made.clear()
        """
    )
    assert out.count(EVENT) == 200
