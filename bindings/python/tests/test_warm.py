"""`Pager(warm=...)`: a pager begins with the pages that another one had."""

import lowtide
import numpy as np
import pytest


def test_a_pager_begins_with_the_pages_that_it_had(numbers, tmp_path):
    whole = np.fromfile(numbers, "u4").reshape(-1, 1024)
    ids = np.random.default_rng(1).permutation(len(whole))[:200]
    for start in range(2):
        with lowtide.Pager("4M", warm=tmp_path / "list") as pager:
            with lowtide.open(numbers, budget=pager) as view:
                assert pager.wait_warm(60)
                before = pager.stat()["misses"]
                assert np.array_equal(view.rows(ids, "u4", 1024), whole[ids])
                missed = pager.stat()["misses"] - before
                assert missed == (0 if start else len(ids))
                if not start:
                    pager.save_warm(tmp_path / "now")
        assert (tmp_path / "list").stat().st_size > 200 and (tmp_path / "now").exists()


def test_lists_that_cannot_be_used_or_saved(numbers, tmp_path):
    (tmp_path / "list").write_bytes(b"something else")
    with lowtide.Pager("4M", warm=tmp_path / "list") as pager:
        with lowtide.open(numbers, budget=pager) as view:
            assert len(view.read_at(0, 100)) == 100
        with pytest.raises(OSError, match="nowhere/list"):
            pager.save_warm(tmp_path / "nowhere/list")
        for wrong in [-1, float("nan"), 1e30]:
            with pytest.raises(ValueError):
                pager.wait_warm(wrong)
