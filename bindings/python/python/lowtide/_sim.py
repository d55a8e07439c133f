"""``lowtide.sim``, ``lowtide.mrc``, ``lowtide.sweep``: how much memory is enough.

The simulator is the command of the wheel. It runs the engine in virtual time, so the same seed gives
the same result on any machine, and a cell of a sweep is the same wherever it ran.
"""

import concurrent.futures as _futures
import html
import itertools
import json
import os
import subprocess
import tempfile
import threading

import numpy as np

from .__main__ import COMMAND
from ._lowtide import Error

#: A line of the format `oracle-general`, which the command reads.
_ACCESS = np.dtype([("time", "<u4"), ("page", "<u8"), ("bytes", "<u4"), ("next", "<i8")])
#: How often a cell is tried whose process was killed.
_ATTEMPTS = 3


def _words(options):
    """Options of Python as options of the command."""
    words = []
    for name, value in options.items():
        if value is None or value is False:
            continue
        word = "--" + name.rstrip("_").replace("_", "-")
        if isinstance(value, (list, tuple)):
            value = ",".join(map(str, value))
        words.append(word if value is True else f"{word}={value}")
    return words


def _run(words, started=None):
    """The object that the command prints for these words."""
    if not COMMAND.exists():
        raise Error("this package was built without the command, which is the simulator")
    words = [os.fspath(word) for word in words]
    if "--mrc" not in words and not any(word.startswith("--timing") for word in words):
        # How fast the simulator was is another figure each time. Curves have none.
        words.append("--timing=off")
    line = [str(COMMAND), "sim", *words, "--json"]
    with subprocess.Popen(
        line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        if started is not None:
            started(process)
        try:
            out, problem = process.communicate()
        except BaseException:
            process.kill()
            raise
    if process.returncode == 2:
        raise ValueError(problem.strip())
    if process.returncode != 0:
        raise _Failed(process.returncode, problem.strip())
    return json.loads(out)


class _Failed(Error):
    """The simulator ended without a result."""

    def __init__(self, code, text):
        super().__init__(text or f"the simulator ended with {code}")
        self.was_killed = code < 0


class Table:
    """Rows of a simulation. ``table["misses"]`` is a column, as an array; ``rows`` are
    dictionaries; ``about`` says what was simulated."""

    def __init__(self, rows, about):
        self.rows, self.about = rows, about

    def __getitem__(self, name):
        if not any(name in row for row in self.rows):
            known = sorted({name for row in self.rows for name in row})
            raise KeyError(f"no row has {name!r}; there are {', '.join(known)}")
        return np.array([row.get(name) for row in self.rows])

    def __len__(self):
        return len(self.rows)

    def __iter__(self):
        return iter(self.rows)

    def __repr__(self):
        return f"<lowtide.Table of {len(self.rows)} rows>"

    def _columns(self):
        first = self.rows[0] if self.rows else {}
        return [name for name, value in first.items() if not isinstance(value, (dict, list))]

    def _repr_html_(self):
        names = self._columns()

        def line(cells, tag):
            cells = (f"<{tag}>{html.escape(str(cell))}</{tag}>" for cell in cells)
            return f"<tr>{''.join(cells)}</tr>"

        body = (line((row.get(name, "") for name in names), "td") for row in self.rows)
        return f"<table>{line(names, 'th')}{''.join(body)}</table>"


class Curves(Table):
    """Miss ratios by the size of memory. ``curves["mglru"]`` are the sizes in bytes, ascending, and
    the miss ratios there, as two arrays; ``policies`` are the names; ``advice`` answers
    ``advise``."""

    def __init__(self, rows, about):
        super().__init__(rows, about)
        self.policies = list(dict.fromkeys(row["policy"] for row in rows))
        self.footprint, self.accesses = about["footprint_bytes"], about["accesses"]
        self.cold = about["cold_misses"]
        self.advice = {row["policy"]: row for row in about.get("advice", [])}

    def __getitem__(self, policy):
        if policy not in self.policies:
            return super().__getitem__(policy)
        points = [row for row in self.rows if row["policy"] == policy]
        points.sort(key=lambda row: row["max_bytes"])
        sizes = np.array([row["max_bytes"] for row in points])
        return sizes, np.array([row["miss_ratio"] for row in points])

    def plot(self, axes=None):
        """Draws the curves with matplotlib; returns its axes."""
        if axes is None:
            import matplotlib.pyplot as plt

            axes = plt.gca()
        for policy in self.policies:
            sizes, ratios = self[policy]
            axes.plot(sizes / (1 << 20), ratios, label=policy)
        axes.set(xlabel="memory, MiB", ylabel="miss ratio")
        axes.set_ylim(bottom=0)
        axes.legend()
        return axes


def sim(workload, *arguments, **options):
    """Simulates a workload (``"zipf"``, ``"uniform"``, ``"loop"``, ``"trace"`` and its file): a
    ``Table`` with a row for each policy.

    The options are those of ``lowtide sim WORKLOAD --help``, with underscores: ``ops="1M"``,
    ``max="64M"``, ``policy=["mglru", "lru"]``, ``machine="laptop"``, ``seed=7``.
    """
    found = _run([workload, *arguments, *_words(options)])
    return Table(found["rows"], found["machine"])


def mrc(accesses, *, page=4096, policies="mglru", baselines="strict-lru,opt", points=24,
        advise=None, **options):
    """Miss-ratio curves of a trace: the file of one, or an array of page numbers in the order in
    which they were used.

    ``page`` is the bytes of a page of the array. ``advise`` is a share of misses, such as 0.01: the
    smallest budget with no more is ``curves.advice``.
    """
    wanted = {
        "mrc": True, "policy": policies, "baseline": baselines or "none", "points": points,
        "advise": advise, **options,
    }
    if isinstance(accesses, (str, os.PathLike)):
        found = _run(["trace", accesses, *_words(wanted)])
        return Curves(found["rows"], found["machine"])
    pages = np.asarray(accesses)
    if pages.dtype.kind not in "iu" or pages.ndim != 1:
        raise TypeError("a trace is a file, or an array of page numbers, one after the other")
    with tempfile.NamedTemporaryFile(suffix=".oracle") as file:
        for start in range(0, len(pages), 1 << 20):
            part = pages[start : start + (1 << 20)]
            lines = np.zeros(len(part), _ACCESS)
            # Bytes of an object: one page of those that the format counts in.
            lines["page"], lines["bytes"], lines["next"] = part, 4096, -1
            lines.tofile(file)
        file.flush()
        found = _run(["trace", file.name, *_words({**wanted, "format": "oracle-general"})])
    machine = found["machine"]
    if page != 4096:
        machine["footprint_bytes"] = machine["footprint_bytes"] // 4096 * page
        for row in found["rows"]:
            row["max_bytes"] = row["max_bytes"] // 4096 * page
    return Curves(found["rows"], machine)


def _cells(grid):
    """Each combination of a dictionary of lists; or dictionaries as they are."""
    if not isinstance(grid, dict):
        return [dict(cell) for cell in grid]
    lists = [value if isinstance(value, (list, tuple)) else [value] for value in grid.values()]
    return [dict(zip(grid, values)) for values in itertools.product(*lists)]


def _key(cell):
    return json.dumps(cell, sort_keys=True)


def _finished(path):
    """The cells of a file of an earlier sweep. A line that was cut off is none."""
    found = {}
    if path is not None and os.path.exists(path):
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                try:
                    one = json.loads(line)
                except ValueError:
                    continue
                found[_key(one["cell"])] = one["rows"]
    return found


def _cell(cell, started):
    given = dict(cell)
    words = [given.pop("workload"), *given.pop("arguments", [])]
    for attempt in itertools.count(1):
        try:
            return _run([*words, *_words(given)], started)["rows"]
        except _Failed as error:
            if not error.was_killed or attempt == _ATTEMPTS:
                raise


def _bar(total):
    """A function that counts, on a bar of tqdm if that is installed."""
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return lambda: None
    return tqdm(total=total, unit="cell").update


def sweep(grid, *, on="processes", workers=None, file=None, progress=False):
    """Simulates every cell of a grid: a ``Table`` of all rows, in the order of the cells, whatever
    the number of workers.

    ``grid`` is a dictionary of lists, of which every combination is a cell (``workload``, and the
    options of ``sim``), or the cells themselves. Each cell is a process, ``workers`` at a time. In
    ``file`` finished cells are kept: a sweep that was interrupted goes on there. A cell whose
    process is killed is repeated.
    """
    if on != "processes":
        raise ValueError(f"a sweep runs on 'processes', not on {on!r}")
    cells = _cells(grid)
    for cell in cells:
        if "workload" not in cell:
            raise ValueError(f"a cell has a `workload`: {cell}")
    found = _finished(file)
    left = [cell for cell in {_key(cell): cell for cell in cells}.values() if _key(cell) not in found]
    count = _bar(len(left)) if progress else lambda: None
    lock, running, stopped = threading.Lock(), set(), threading.Event()

    def started(process):
        with lock:
            running.add(process)
        if stopped.is_set():
            process.kill()

    def work(cell):
        if stopped.is_set():
            return None
        return cell, _cell(cell, started)

    out = open(file, "a", encoding="utf-8") if file is not None else None
    if out is not None and out.tell() > 0:
        # The last line may have been cut off.
        out.write("\n")
    pool = _futures.ThreadPoolExecutor(workers or os.cpu_count())
    try:
        for done in _futures.as_completed([pool.submit(work, cell) for cell in left]):
            cell, rows = done.result()
            found[_key(cell)] = rows
            if out is not None:
                out.write(json.dumps({"cell": cell, "rows": rows}) + "\n")
                out.flush()
            count()
    except BaseException:
        stopped.set()
        with lock:
            for process in running:
                process.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        if out is not None:
            out.close()
    rows = [{**cell, **row} for cell in cells for row in found[_key(cell)]]
    return Table(rows, {"cells": len(cells)})
