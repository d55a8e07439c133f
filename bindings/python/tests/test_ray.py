"""A sweep on machines of Ray, one of which is lost in the middle, is the sweep of one machine."""

import os
import threading
import time

import pytest
from conftest import settled
from lowtide.__main__ import COMMAND
from sweep import sweep

ray = pytest.importorskip("ray")
#: 2000 take a minute or two.
CELLS = int(os.environ.get("LOWTIDE_TEST_RAY_CELLS", "200"))


@pytest.fixture
def cluster():
    if not COMMAND.exists():
        pytest.skip("this package was built without the command (build-wheel)")
    from ray.cluster_utils import Cluster

    try:
        made = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 1, "include_dashboard": False},
        )
    except Exception as error:
        pytest.skip(f"Ray does not start here: {error}")
    try:
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


def grid(count):
    """Cells that differ in seed, size and policy."""
    return {
        "workload": "zipf", "ops": "2k", "policy": ["mglru", "lru"], "max": ["16M", "64M"],
        "seed": list(range(count // 4)),
    }


def test_a_machine_that_is_lost_costs_no_cell(cluster, tmp_path):
    other, path = cluster.add_node(num_cpus=1), tmp_path / "cells"
    ray.init(address=cluster.address, log_to_driver=False)
    removed_at = []

    def lose():
        while not path.exists() or path.read_text().count("\n") < CELLS // 2:
            time.sleep(0.01)
        removed_at.append(path.read_text().count("\n"))
        cluster.remove_node(other, allow_graceful=False)

    loser = threading.Thread(target=lose)
    loser.start()
    table = sweep(grid(CELLS), on="ray", file=path)
    loser.join()
    assert CELLS // 2 <= removed_at[0] < CELLS, "it was lost in the middle"
    # A cluster notices a while later that a machine is gone.
    assert settled(lambda: sum(node["Alive"] for node in ray.nodes()), 1, patience=120) == 1
    assert len(table) == CELLS
    assert path.read_text().count("\n") == CELLS, "each cell is there once"
    assert table.rows == sweep(grid(CELLS)).rows


def test_the_error_of_a_cell_is_that_of_the_simulator(cluster):
    ray.init(address=cluster.address, log_to_driver=False)
    cells = [{"workload": "zipf", "ops": "2k", "seed": 1}, {"workload": "zipf", "no_such": 1}]
    with pytest.raises(ValueError, match="no-such"):
        sweep(cells, on="ray")
    assert ray.is_initialized(), "the program's connection stays"
