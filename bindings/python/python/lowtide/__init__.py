"""Arrays, maps and files that are larger than the memory you give them.

    a = lowtide.memmap("vectors.f32", dtype="f4", shape=(50_000_000, 128), budget="2G")
    with lowtide.open("vectors.f32", budget="2G") as view:
        batch = view.rows(ids, "f4", 128)

``memmap`` is a ``numpy.memmap`` and ``mmap`` a ``mmap.mmap`` whose pages in memory stay within a
budget. ``open`` gives a file whose rows are gathered with overlapping reads, ``empty`` an array
without a file. ``patch`` makes programs use them that know nothing of lowtide, ``adopt`` takes over
what a library has mapped, and ``python -m lowtide run`` does so for whole programs. ``sim`` and
``mrc`` say how much memory is enough.

numpy is imported when it is needed first.
"""

import atexit as _atexit
import os as _os
import threading as _threading
import warnings as _warnings

from . import _log as _log
from . import _lowtide
from ._adopt import Adoption, adopt
from ._budget import default_pager, set_default
from ._errors import (
    Busy,
    Closed,
    Error,
    Exists,
    Gone,
    Locked,
    NotEmpty,
    NotPossible,
    OutOfBudget,
    OutOfRange,
    Poisoned,
    ReadOnly,
    Timeout,
)
from ._lowtide import Pager, Tenant, __version__
from ._mmap import in_child as _changes_in_child
from ._mmap import mmap
from ._patch import Patched, patch
from ._results import AutoStat, Curve, CurvePoint, Limits, Pressure, PressureLine, Stat
from ._view import View, open
from ._view import flush_all as _flush_all

__all__ = [
    "Adoption", "AutoStat", "Busy", "Closed", "Curve", "CurvePoint", "Curves", "Error", "Exists",
    "Gone", "Limits", "Locked", "NotEmpty", "NotPossible", "OutOfBudget", "OutOfRange",
    "Pager", "Patched", "Poisoned", "Pressure", "PressureLine", "ReadOnly", "Stat", "Table",
    "Tenant", "Timeout", "View", "__version__", "adopt", "default_pager", "empty", "memmap", "mmap",
    "mrc", "open", "patch", "set_default", "sim", "zeros",
]

#: Where names are that need numpy.
_LATER = {
    "memmap": "_memmap",
    **dict.fromkeys(["empty", "zeros"], "_region"),
    **dict.fromkeys(["Curves", "Table", "mrc", "sim"], "_sim"),
}


#: Of the thread that imports. A child of fork has the locks of modules that another thread was
#: importing, taken for ever; so a fork waits for imports of this package, but no longer than this.
_importing, _PATIENCE = _threading.RLock(), 5
_forking = _threading.local()


def __getattr__(name):
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    with _importing:
        value = getattr(import_module("." + _LATER[name], __name__), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted(set(globals()) | set(__all__))


def _before_fork():
    _forking.has = _importing.acquire(timeout=_PATIENCE)


def _after_fork():
    if _forking.has:
        _importing.release()


def _in_child():
    _changes_in_child()
    for problem in _lowtide.after_fork_in_child():
        _warnings.warn(
            f"a map that this child of fork inherited is left to the kernel: {problem}",
            RuntimeWarning,
            stacklevel=2,
        )


# `logging` registers itself, too, and was imported before this: so its locks are taken after ours
# at a fork, and its handlers are closed after our last record.
_os.register_at_fork(
    before=_lowtide.before_fork,
    after_in_parent=_lowtide.after_fork_in_parent,
    after_in_child=_in_child,
)
_os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork
)
_atexit.register(_lowtide.leave_all)
_atexit.register(_flush_all)
