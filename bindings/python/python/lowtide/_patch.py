"""``lowtide.patch``: programs that know nothing of lowtide.

``numpy.memmap(...)`` makes a ``lowtide.memmap`` from then on, in all code: ``numpy.load`` with
``mmap_mode``, ``numpy.lib.format.open_memmap``, joblib in its workers, scikit-learn. The class
``numpy.memmap`` itself stays what it is, so ``isinstance`` answers as before. pandas maps files
with the module ``mmap``, of which its readers get ours.
"""

import sys
from types import SimpleNamespace

from . import _budget


class Patched:
    """What was replaced, until ``undo`` or the end of a ``with`` block."""

    def __init__(self, budget, undone):
        self.budget, self._undone = budget, undone

    def undo(self):
        """Puts everything back. Arrays that were made meanwhile stay as they are."""
        while self._undone:
            self._undone.pop()()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.undo()


def _replace(owner, name, value):
    before = vars(owner)[name]
    setattr(owner, name, value)
    return lambda: setattr(owner, name, before)


def patch(*, max=None, pager=None, tenant=None, policy=None):
    """Keeps the maps that numpy, joblib and pandas make from now on within a budget: this one, or
    the default budget. Returns what undoes it."""
    account = _budget.account(max, pager, tenant, policy) or _budget.default_pager()
    kind = "tenant" if isinstance(account, _budget.Tenant) else "pager"
    undone = []

    import numpy

    from ._memmap import _NUMPY_NEW, memmap

    def new(subtype, *args, **kwargs):
        if subtype is not numpy.memmap:
            return _NUMPY_NEW(subtype, *args, **kwargs)
        return memmap(*args, **kwargs, **{kind: account})

    undone.append(_replace(numpy.memmap, "__new__", staticmethod(new)))
    for name in ("joblib._memmapping_reducer", "joblib.pool", "joblib.executor"):
        joblib = sys.modules.get(name)
        if hasattr(joblib, "get_memmapping_reducers"):
            reducers = _joblib_reducers(joblib.get_memmapping_reducers, numpy.memmap, memmap)
            undone.append(_replace(joblib, "get_memmapping_reducers", reducers))
    pandas = sys.modules.get("pandas.io.common")
    if pandas is not None and hasattr(pandas, "mmap"):
        undone.append(_replace(pandas, "mmap", _module(kind, account)))
    return Patched(account, undone)


def _joblib_reducers(get, theirs, ours):
    """joblib's way to send arrays, in which maps of its own temporary files come back from workers
    by value, ours too: the files are removed. Other maps are sent to workers by our own way."""

    def get_reducers(*args, **kwargs):
        to_workers, back = get(*args, **kwargs)
        if theirs in back:
            back[ours] = back[theirs]
        return to_workers, back

    return get_reducers


def _module(kind, account):
    """The module ``mmap``, whose maps are ours."""
    import mmap as std

    from ._mmap import mmap

    class Map(mmap):
        __slots__ = ()

        def __new__(cls, *args, **kwargs):
            return super().__new__(cls, *args, **kwargs, **{kind: account})

    return SimpleNamespace(**{**vars(std), "mmap": Map})
