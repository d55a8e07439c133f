"""Arrays, maps and files that are larger than the memory you give them.

    a = lowtide.memmap("vectors.f32", dtype="f4", shape=(50_000_000, 128), max="2G")
    with lowtide.open("vectors.f32", max="2G") as view:
        batch = view.rows(ids, "f4", 128)

``memmap`` is a ``numpy.memmap`` and ``mmap`` a ``mmap.mmap``: what is in memory of them is kept
within a budget. ``open`` gives a file whose rows are gathered with overlapping reads, ``empty`` an
array without a file. ``patch`` makes programs use them that know nothing of lowtide, ``adopt``
takes over what a library has mapped, and ``python -m lowtide run`` does so for whole programs.
``sim``, ``mrc`` and ``sweep`` say how much memory is enough.

numpy is imported when it is needed first.
"""

import atexit as _atexit
import os as _os
import warnings as _warnings

from . import _log as _log
from . import _lowtide
from ._adopt import Adoption, adopt
from ._budget import default_pager, set_default
from ._errors import OutOfBudget
from ._lowtide import Error, Pager, Tenant, __version__
from ._mmap import mmap
from ._patch import Patched, patch
from ._view import View, open

__all__ = [
    "Adoption", "Curves", "Error", "OutOfBudget", "Pager", "Patched", "Table", "Tenant", "View",
    "__version__", "adopt", "default_pager", "empty", "memmap", "mmap", "mrc", "open", "patch",
    "set_default", "sim", "sweep", "zeros",
]

#: Where names are that need numpy.
_LATER = {
    "memmap": "_memmap",
    **dict.fromkeys(["empty", "zeros"], "_region"),
    **dict.fromkeys(["Curves", "Table", "mrc", "sim"], "_sim"),
    "sweep": "_sweep",
}


def __getattr__(name):
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module("." + _LATER[name], __name__), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted(set(globals()) | set(__all__))


def _in_child():
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
_atexit.register(_lowtide.leave_all)
