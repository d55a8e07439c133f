"""How much memory is enough: simulations and curves by the command of the wheel."""

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
    curves = lowtide.mrc(pages, page_size=page, points=8)
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
