"""The example of a grid of simulations (`examples/sweep.py`), on processes of this machine."""

import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import lowtide
import pytest
from conftest import EXAMPLES
from sweep import sweep

COMMAND = Path(lowtide.__file__).with_name("_bin") / "lowtide"
pytestmark = pytest.mark.skipif(not COMMAND.exists(), reason="built without the command")

GRID = {
    "workload": ["zipf", "uniform"], "ops": ["5k"], "max": ["64M", "128M"],
    "policy": ["mglru", "lru"], "seed": [1, 2, 3],
}


def test_a_sweep_is_the_same_with_any_number_of_workers(tmp_path):
    alone = sweep(GRID, workers=1)
    beside = sweep(GRID, workers=4, file=tmp_path / "cells")
    assert len(alone) == 24 and alone.rows == beside.rows
    assert [row["seed"] for row in alone][:3] == [1, 2, 3]
    first = lowtide.sim("zipf", ops="5k", max="64M", policy="mglru", seed=1).rows[0]
    assert alone.rows[0]["misses"] == first["misses"]


def test_a_sweep_goes_on_where_it_was_interrupted(tmp_path):
    path, whole = tmp_path / "cells", sweep(GRID, file=tmp_path / "whole")
    lines = (tmp_path / "whole").read_text().splitlines(keepends=True)
    marked = json.loads(lines[0])
    marked["rows"][0]["misses"] = -1
    # Ten are finished, the eleventh was cut off. The first says that it was not made again.
    path.write_text(json.dumps(marked) + "\n" + "".join(lines[1:10]) + lines[10][:20])
    again = sweep(GRID, file=path)
    differ = [at for at, rows in enumerate(zip(again, whole)) if rows[0] != rows[1]]
    assert len(differ) == 1 and again.rows[differ[0]]["misses"] == -1
    # What followed the line that was cut off is found again.
    assert sweep(GRID, file=path).rows == again.rows


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
    expected = sweep(cells)
    monkeypatch.setattr(_sim, "COMMAND", fragile)
    assert sweep(cells, workers=2).rows == expected.rows
    assert len(list(tmp_path.glob("marks-*"))) == 4
    fragile.write_text("#!/bin/sh\nkill -9 $$\n")
    with pytest.raises(lowtide.Error, match="-9"):
        sweep(cells)


def test_an_interrupt_ends_a_sweep_and_its_processes(tmp_path):
    script = textwrap.dedent(
        """
        import sys
        sys.path.insert(0, sys.argv[2])
        from sweep import sweep
        sweep([{"workload": "zipf", "ops": "200M", "seed": seed} for seed in range(4)],
              workers=2, file=sys.argv[1])
        """
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, tmp_path / "cells", EXAMPLES], stderr=subprocess.PIPE, text=True
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
        sweep({"seed": [1, 2]})
    with pytest.raises(ValueError, match="processes"):
        sweep(GRID, on="abacus")
