"""A grid of simulations, on processes of this machine or on a cluster of Ray (``pip install ray``).

    from sweep import sweep
    table = sweep({"workload": "zipf", "ops": "5k", "max": ["64M", "128M"], "seed": [1, 2]})
    print(table["max"], table["miss_ratio"])

A cell is one simulation, in a process of its own. It is the same wherever it ran (``_sim``), so a
cell whose process, worker or machine is lost is simulated again, and the table of a sweep is the
same in any case.
"""

import concurrent.futures as _futures
import itertools
import json
import os
import threading
import time

from lowtide import Table
from lowtide._sim import _Failed, _run, _words

#: How often a cell is tried whose process was killed.
_ATTEMPTS = 3
#: Seconds between two looks at how many cores a cluster has: it is a message to another machine.
_LOOK = 5


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


def _cell(cell, started=None):
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


def _on_processes(cells, workers):
    """Cells and their rows, in the order in which they are finished."""
    lock, running, stopped = threading.Lock(), set(), threading.Event()

    def started(process):
        with lock:
            running.add(process)
        if stopped.is_set():
            process.kill()

    def work(cell):
        return (cell, None) if stopped.is_set() else (cell, _cell(cell, started))

    pool = _futures.ThreadPoolExecutor(workers or os.cpu_count())
    try:
        for done in _futures.as_completed([pool.submit(work, cell) for cell in cells]):
            yield done.result()
    except BaseException:
        stopped.set()
        with lock:
            for process in running:
                process.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _on_ray(cells, workers):
    """The same on the cluster that the program is connected to, else on one that is started here
    for the time of the sweep. lowtide is installed on each of its machines."""
    import ray

    is_ours = not ray.is_initialized()
    if is_ours:
        ray.init(include_dashboard=False, log_to_driver=False)
    # A task that was on a machine that is gone runs on another one.
    task = ray.remote(num_cpus=1, max_retries=-1)(_cell)
    left, running, most, looked = iter(cells), {}, workers, None
    try:
        while True:
            # Machines may come and go. One task for each core runs, and one waits.
            if workers is None and (looked is None or time.monotonic() - looked > _LOOK):
                most = max(2, 2 * int(ray.cluster_resources().get("CPU", 1)))
                looked = time.monotonic()
            for cell in itertools.islice(left, max(0, most - len(running))):
                running[task.remote(cell)] = cell
            if not running:
                return
            (done,), _ = ray.wait(list(running), num_returns=1)
            try:
                rows = ray.get(done)
            except ray.exceptions.RayTaskError as error:
                # As it is without Ray: the exception of the cell.
                raise error.cause from None
            yield running.pop(done), rows
    finally:
        for late in running:
            ray.cancel(late, force=True)
        if is_ours:
            ray.shutdown()


#: Where cells are simulated.
_PLACES = {"processes": _on_processes, "ray": _on_ray}


def sweep(grid, *, on="processes", workers=None, file=None, progress=False):
    """Simulates every cell of a grid: a ``Table`` of all rows, in the order of the cells, whatever
    the number of workers.

    ``grid`` is a dictionary of lists, of which every combination is a cell (``workload``, and the
    options of ``sim``), or the cells themselves. Each cell is a process, ``workers`` at a time. In
    ``file`` finished cells are kept: a sweep that was interrupted goes on there. A cell whose
    process is killed is repeated.

    ``on="ray"`` uses a cluster of Ray: the one that the program is
    connected to by ``ray.init``, else one on this machine. Cells of a machine that is lost are
    repeated on the others.
    """
    if on not in _PLACES:
        raise ValueError(f"a sweep runs on {' or '.join(map(repr, _PLACES))}, not on {on!r}")
    cells = _cells(grid)
    for cell in cells:
        if "workload" not in cell:
            raise ValueError(f"a cell has a `workload`: {cell}")
    found = _finished(file)
    different = {_key(cell): cell for cell in cells}
    left = [cell for key, cell in different.items() if key not in found]
    count = _bar(len(left)) if progress else lambda: None
    out = open(file, "a", encoding="utf-8") if file is not None else None
    if out is not None and out.tell() > 0:
        # The last line may have been cut off.
        out.write("\n")
    finished = _PLACES[on](left, workers)
    try:
        for cell, rows in finished:
            found[_key(cell)] = rows
            if out is not None:
                out.write(json.dumps({"cell": cell, "rows": rows}) + "\n")
                out.flush()
            count()
    finally:
        finished.close()
        if out is not None:
            out.close()
    rows = [{**cell, **row} for cell in cells for row in found[_key(cell)]]
    return Table(rows, {"cells": len(cells)})
