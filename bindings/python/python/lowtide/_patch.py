"""``lowtide.patch``: programs that know nothing of lowtide.

``numpy.memmap(...)`` makes a ``lowtide.memmap`` from then on, in all code: ``numpy.load`` with
``mmap_mode``, ``numpy.lib.format.open_memmap``, joblib in its workers, scikit-learn. The class
``numpy.memmap`` itself stays what it is, so ``isinstance`` answers as before. pandas maps files
with the module ``mmap``, of which its readers get ours.

Names are replaced once, by the first patch, and put back when the last one is undone. Of several
that are in force the latest pays, whatever the order in which they are undone.
"""

import sys
from types import SimpleNamespace

from . import _budget

#: The patches in force, the latest last.
_in_force: list = []
#: What each name was, and what it is, by its owner and itself.
_replaced: dict = {}


class Patched:
    """Names that are replaced, until ``undo`` or the end of a ``with`` block."""

    def __init__(self, budget):
        self.budget = budget

    def undo(self):
        """Ends it. Arrays that were made in the meantime stay as they are."""
        if self in _in_force:
            _in_force.remove(self)
        while _replaced and not _in_force:
            (owner, name), (before, ours) = _replaced.popitem()
            # What others have put there since is theirs.
            if vars(owner).get(name) is ours:
                setattr(owner, name, before)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.undo()


def _replace(owner, name, make):
    """``make`` gets what there was."""
    if (owner, name) not in _replaced:
        before = vars(owner)[name]
        _replaced[owner, name] = before, make(before)
        setattr(owner, name, _replaced[owner, name][1])


def _account():
    """Who pays now; the default budget for what still has a name that was put back."""
    return _in_force[-1].budget if _in_force else None


@_budget.takes_budget
def patch(*, budget=None):
    """Keeps the maps that numpy, joblib and pandas make from now on within a budget: a size, a
    ``Pager`` or a ``Tenant``, else the default budget. Returns what undoes it."""
    patched = Patched(_budget.account(budget) or _budget.default_pager())

    from . import memmap  # Imports numpy, too.
    from ._memmap import _NUMPY_NEW

    import numpy

    def new(subtype, *args, **kwargs):
        if subtype is not numpy.memmap or not _in_force:
            return _NUMPY_NEW(subtype, *args, **kwargs)
        return memmap(*args, **kwargs, budget=_account())

    _in_force.append(patched)
    _replace(numpy.memmap, "__new__", lambda _: staticmethod(new))
    for name in ("joblib._memmapping_reducer", "joblib.pool", "joblib.executor"):
        joblib = sys.modules.get(name)
        if hasattr(joblib, "get_memmapping_reducers"):
            reducers = lambda get: _joblib_reducers(get, numpy.memmap, memmap)
            _replace(joblib, "get_memmapping_reducers", reducers)
    pandas = sys.modules.get("pandas.io.common")
    if pandas is not None and hasattr(pandas, "mmap"):
        _replace(pandas, "mmap", _module)
    return patched


def _joblib_reducers(get, theirs, ours):
    """joblib's way to send arrays, in which maps of its own temporary files come back from workers
    by value, ours too: the files are removed. Other maps are sent to workers by our own way."""

    def get_reducers(*args, **kwargs):
        to_workers, back = get(*args, **kwargs)
        if theirs in back:
            back[ours] = back[theirs]
        return to_workers, back

    return get_reducers


def _module(std):
    """The module ``mmap``, whose maps are ours."""
    from ._mmap import mmap

    class Map(mmap):
        __slots__ = ()

        def __new__(cls, *args, **kwargs):
            return super().__new__(cls, *args, **kwargs, budget=_account())

    return SimpleNamespace(**{**vars(std), "mmap": Map})
