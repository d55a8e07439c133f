"""Tenants whose limit sets itself."""

import time

import lowtide
import numpy as np
import pytest
from conftest import MIB


def test_a_tenant_gets_what_it_uses(numbers):
    pager = lowtide.Pager("32M", page_size=4096)
    tenant = pager.tenant("a")
    assert tenant.auto() is None
    tenant.set_auto("512K", "8M")
    whole = np.fromfile(numbers, "u4").reshape(-1, 128)
    random = np.random.default_rng(1)
    deadline = time.monotonic() + 120
    with lowtide.open(numbers, budget=tenant) as view:
        while tenant.auto().limit < MIB:
            assert time.monotonic() < deadline, tenant.auto()
            ids = random.integers(0, 4 * MIB // 512, 2_000)
            assert np.array_equal(view.rows(ids, "u4", 128), whole[ids])
    found = tenant.auto()
    assert found.least == MIB // 2 and found.grown > 0 and found["waited"] > 0


def test_limits_are_set_and_said():
    tenant = lowtide.Pager("32M").tenant("a", low="1M", max="8M")
    assert tenant.limits["low"] == MIB and tenant.limits.high is None
    assert tenant.set_high("4M") is True and tenant.set_max("6M") is True
    assert repr(tenant.limits) == f"Limits(min=0, low={MIB}, high={4 * MIB}, max={6 * MIB})"


@pytest.mark.parametrize("bounds", [("8M", "4M"), (0, "4M")])
def test_impossible_bounds_are_refused(bounds):
    tenant = lowtide.Pager("32M").tenant("a")
    with pytest.raises(ValueError, match="impossible bounds"):
        tenant.set_auto(*bounds)
