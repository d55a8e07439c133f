"""``lowtide.sim``, ``lowtide.mrc``: how much memory is enough.

The simulator is the command of the wheel. It runs the engine in virtual time, so the same seed
gives the same result on any machine.
"""

import html
import json
import os
import subprocess
import tempfile

import numpy as np

from .__main__ import COMMAND
from ._budget import renamed
from ._lowtide import Error

#: A line of the format `oracle-general`, which the command reads.
_ACCESS = np.dtype([("time", "<u4"), ("page", "<u8"), ("bytes", "<u4"), ("next", "<i8")])


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
        self._given = code, text

    def __reduce__(self):
        return _Failed, self._given


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


@renamed("page")
def mrc(accesses, *, page_size=4096, policies="mglru", baselines="strict-lru,opt", points=24,
        advise=None, **options):
    """Miss-ratio curves of a trace: the file of one, or an array of page numbers in the order in
    which they were used.

    ``page_size`` is the bytes of a page of the array. ``advise`` is a share of misses, such as
    0.01: the smallest budget with no more is ``curves.advice``.
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
    if page_size != 4096:
        machine["footprint_bytes"] = machine["footprint_bytes"] // 4096 * page_size
        for row in found["rows"]:
            row["max_bytes"] = row["max_bytes"] // 4096 * page_size
    return Curves(found["rows"], machine)
