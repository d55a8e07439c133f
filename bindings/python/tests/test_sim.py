"""How much memory is enough: simulations, curves and sweeps by the command of the wheel."""

import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import lowtide
import numpy as np
import pytest

COMMAND = Path(lowtide.__file__).with_name("_bin") / "lowtide"
pytestmark = pytest.mark.skipif(not COMMAND.exists(), reason="built without the command")


def test_a_simulation_is_a_table_with_a_row_for_each_policy():
    table = lowtide.sim("zipf", ops="20k", max="64M", policy=["mglru", "lru"], seed=7)
    assert len(table) == 2 and list(table["policy"]) == ["mglru", "lru"]
    ratios = table["miss_ratio"]
    assert ratios.dtype == float and np.all((0 < ratios) & (ratios < 1))
    assert table.rows == lowtide.sim("zipf", ops="20k", max="64M", policy="mglru,lru", seed=7).rows
    assert "<td>mglru</td>" in table._repr_html_()
    with pytest.raises(KeyError, match="miss_ratio"):
        table["mis_ratio"]


def test_what_cannot_be_simulated_is_a_value_error():
    with pytest.raises(ValueError, match="no-such-option"):
        lowtide.sim("zipf", no_such_option=1)
    with pytest.raises(ValueError):
        lowtide.sim("no-such-workload")


def lru_misses(pages, size):
    """Misses of strict LRU, by its definition."""
    kept, misses = {}, 0
    for page in pages.tolist():
        if page in kept:
            del kept[page]
        else:
            misses += 1
            if len(kept) == size:
                del kept[next(iter(kept))]
        kept[page] = True
    return misses


@pytest.mark.parametrize("page", [4096, 512])
def test_curves_of_an_array_are_those_of_its_accesses(page):
    pages = np.minimum(np.random.default_rng(1).zipf(1.2, 5000), 700).astype("u8") * (1 << 20)
    curves = lowtide.mrc(pages, page=page, points=8)
    assert (curves.accesses, curves.cold) == (5000, len(np.unique(pages)))
    assert curves.footprint == len(np.unique(pages)) * page
    sizes, ratios = curves["strict-lru"]
    assert len(sizes) >= 5 and np.all(np.diff(sizes) > 0) and sizes[-1] == curves.footprint
    for size, ratio in zip(sizes, ratios):
        assert ratio == lru_misses(pages, size // page) / 5000
    least = curves["opt"][1]
    assert np.all(least <= ratios) and set(curves.policies) == {"mglru", "strict-lru", "opt"}


def test_advice_is_a_budget_that_is_enough():
    pages = np.tile(np.arange(500), 20)
    curves = lowtide.mrc(pages, baselines="strict-lru", advise=0.06)
    assert "strict-lru" in curves.advice and curves.advice["strict-lru"]["max_bytes"] == 500 * 4096


def test_curves_of_a_file_of_another_tool(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("op,space,page,pages\n" + "".join(f"read,file:a,{n % 50},1\n" for n in range(500)))
    curves = lowtide.mrc(path, policies="lru", baselines=None)
    assert (curves.accesses, curves.cold, curves.policies) == (500, 50, ["lru"])
    with pytest.raises(OSError):
        lowtide.mrc(tmp_path / "none.csv")
    with pytest.raises(TypeError, match="page numbers"):
        lowtide.mrc([0.5])


def test_curves_are_drawn():
    plt = pytest.importorskip("matplotlib.pyplot")
    axes = lowtide.mrc(np.arange(1000) % 300, points=4).plot(plt.figure().gca())
    assert len(axes.lines) == 3


GRID = {
    "workload": ["zipf", "uniform"], "ops": ["5k"], "max": ["64M", "128M"],
    "policy": ["mglru", "lru"], "seed": [1, 2, 3],
}


def test_a_sweep_is_the_same_with_any_number_of_workers(tmp_path):
    alone = lowtide.sweep(GRID, workers=1)
    beside = lowtide.sweep(GRID, workers=4, file=tmp_path / "cells")
    assert len(alone) == 24 and alone.rows == beside.rows
    assert [row["seed"] for row in alone][:3] == [1, 2, 3]
    first = lowtide.sim("zipf", ops="5k", max="64M", policy="mglru", seed=1).rows[0]
    assert alone.rows[0]["misses"] == first["misses"]


def test_a_sweep_goes_on_where_it_was_interrupted(tmp_path):
    path, whole = tmp_path / "cells", lowtide.sweep(GRID, file=tmp_path / "whole")
    lines = (tmp_path / "whole").read_text().splitlines(keepends=True)
    marked = json.loads(lines[0])
    marked["rows"][0]["misses"] = -1
    # Ten are finished, the eleventh was cut off. The first says that it was not made again.
    path.write_text(json.dumps(marked) + "\n" + "".join(lines[1:10]) + lines[10][:20])
    again = lowtide.sweep(GRID, file=path)
    differ = [at for at, rows in enumerate(zip(again, whole)) if rows[0] != rows[1]]
    assert len(differ) == 1 and again.rows[differ[0]]["misses"] == -1
    # What followed the line that was cut off is found again.
    assert lowtide.sweep(GRID, file=path).rows == again.rows


def test_a_cell_whose_process_is_killed_is_repeated(tmp_path, monkeypatch):
    from lowtide import _sim

    marks, real = tmp_path / "marks", COMMAND
    fragile = tmp_path / "lowtide"
    # Every process but the second of a cell is killed.
    fragile.write_text(
        f"#!/bin/sh\nfor w in \"$@\"; do c=$c$w; done\nif [ -e {marks}-$c ]; then exec {real} \"$@\"; fi\n"
        f"touch {marks}-$c\nkill -9 $$\n"
    )
    fragile.chmod(0o755)
    cells = [{"workload": "zipf", "ops": "5k", "seed": seed, "policy": "lru"} for seed in range(4)]
    expected = lowtide.sweep(cells)
    monkeypatch.setattr(_sim, "COMMAND", fragile)
    assert lowtide.sweep(cells, workers=2).rows == expected.rows
    assert len(list(tmp_path.glob("marks-*"))) == 4
    fragile.write_text("#!/bin/sh\nkill -9 $$\n")
    with pytest.raises(lowtide.Error, match="-9"):
        lowtide.sweep(cells)


def test_an_interrupt_ends_a_sweep_and_its_processes(tmp_path):
    script = textwrap.dedent(
        """
        import sys, lowtide
        lowtide.sweep([{"workload": "zipf", "ops": "200M", "seed": seed} for seed in range(4)],
                      workers=2, file=sys.argv[1])
        """
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, tmp_path / "cells"], stderr=subprocess.PIPE, text=True
    )
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    found = set()
    while len(found) < 2 and process.poll() is None:
        for task in Path(f"/proc/{process.pid}/task").iterdir():
            found |= set((task / "children").read_text().split())
        time.sleep(0.05)
    process.send_signal(2)
    _, problem = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in problem and len(found) == 2, problem
    assert children and not any(os.path.exists(f"/proc/{child}") for child in found)


def test_a_grid_without_a_workload_is_refused():
    with pytest.raises(ValueError, match="workload"):
        lowtide.sweep({"seed": [1, 2]})
    with pytest.raises(ValueError, match="processes"):
        lowtide.sweep(GRID, on="abacus")
