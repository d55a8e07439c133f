"""``lowtide.memmap``: numpy's memory map, within a budget.

The constructor is numpy's own, of whatever version is installed: its code runs with another
``import mmap``, so that the map it makes is a ``lowtide.mmap``. So modes, offsets, shapes and files
are treated as numpy treats them.

An array keeps a view of its map (``_hold``). numpy does not: closing the map of a ``numpy.memmap``
succeeds, and the next look at the array is a crash. Here it is a ``BufferError``.

A pickle has the path of the file and the place of the array in it, not the bytes. Where the file is
not to be found by its path any more, pickling is refused, and so is unpickling where it is another
file by then (``_identity``). An array for reading (mode 'r') is that of the bytes that it had.
"""

import builtins
import mmap as _std
import os
import pickle
import threading
from types import FunctionType, SimpleNamespace

import numpy as np

from . import _budget, _identity
from ._lowtide import Error, address_of
from ._mmap import mmap

#: numpy's constructor, before anything replaces it (``_patch``).
_NUMPY_NEW = np.memmap.__new__

_current = threading.local()


def _make_map(*args, **kwargs):
    """Called by numpy's constructor as ``mmap.mmap``."""
    return mmap(*args, **kwargs, **_current.budget)


_names = {name: value for name, value in vars(_std).items() if not name.startswith("__")}
_SHIM = SimpleNamespace(**{**_names, "mmap": _make_map})


def _import(name, *args, **kwargs):
    return _SHIM if name == "mmap" else builtins.__import__(name, *args, **kwargs)


def _constructor():
    """numpy's constructor, with another ``mmap``."""
    names = {**_NUMPY_NEW.__globals__, "mmap": _SHIM}
    names["__builtins__"] = {**vars(builtins), "__import__": _import}
    made = FunctionType(
        _NUMPY_NEW.__code__, names, "__new__", _NUMPY_NEW.__defaults__, _NUMPY_NEW.__closure__
    )
    made.__kwdefaults__ = _NUMPY_NEW.__kwdefaults__
    return made


_new = _constructor()


class memmap(np.memmap):
    """A ``numpy.memmap`` of which the budget decides what stays in memory.

    The arguments are those of ``numpy.memmap``, and, by name only, ``budget``: a size, a ``Pager``
    or a ``Tenant``; without one the default budget pays. ``map_mode`` is that of ``lowtide.mmap``.
    """

    @_budget.takes_budget
    def __new__(
        subtype,
        filename,
        dtype=np.uint8,
        mode="r+",
        offset=0,
        shape=None,
        order="C",
        *,
        budget=None,
        map_mode="pagecache",
    ):
        before = getattr(_current, "budget", None)
        _current.budget = {"budget": _budget.account_of_map(budget), "map_mode": map_mode}
        try:
            self = _new(subtype, filename, dtype, mode, offset, shape, order)
        finally:
            _current.budget = before
        self._hold = memoryview(self._mmap)
        return self

    @property
    def budget(self):
        """The ``Pager`` or ``Tenant`` that pays; None for an array that the kernel keeps."""
        return self._mmap.budget if isinstance(self._mmap, mmap) else None

    @property
    def resident(self):
        """Bytes of the file that are known to be in memory."""
        return self._mmap.resident if isinstance(self._mmap, mmap) else 0

    def __array_wrap__(self, arr, context=None, return_scalar=False):
        arr = np.ndarray.__array_wrap__(self, arr, context)
        if self is arr or type(self) is not memmap:
            return arr
        return arr[()] if return_scalar else arr.view(np.ndarray)

    def __getitem__(self, index):
        found = super().__getitem__(index)
        if type(found) is memmap and found._mmap is None:
            # Fancy indexing copies: the result is of no file.
            return found.view(np.ndarray)
        return found

    def __reduce_ex__(self, protocol):
        if self.mode == "c" or not isinstance(self._mmap, mmap):
            # Its bytes are nowhere but here.
            return super().__reduce_ex__(protocol)
        return _rebuild, _description(self)


def _description(array):
    """Everything that another process needs to make the same array of the same file."""
    made = array._mmap
    if array.filename is None:
        raise pickle.PicklingError(
            "a memmap of a file without a name cannot be pickled: copy it (numpy.array), or map a "
            "file that has a path"
        )
    path = os.fspath(array.filename)
    noted = _noted_of(made)
    if problem := _identity.problem(path, noted, array.mode != "r"):
        raise pickle.PicklingError(f"a memmap is pickled by its path, and {problem}: copy it")
    address, _ = address_of(made)
    low, high = _bounds(array)
    begin = made._offset + low - address
    lead = array.__array_interface__["data"][0] - low
    mode = "r" if array.mode == "r" else "r+"
    place = (begin, high - low, lead, array.shape, array.strides)
    return path, noted, array.dtype, mode, place, made._account, made.map_mode


def _noted_of(made):
    if made.adopted:
        return made._kept.file
    raise pickle.PicklingError("a memmap that the kernel keeps cannot be pickled: copy it")


def _bounds(array):
    """The first address of an array, and the one past its last."""
    low = high = array.__array_interface__["data"][0]
    if array.size == 0:
        return low, low
    for length, stride in zip(array.shape, array.strides):
        if stride < 0:
            low += (length - 1) * stride
        else:
            high += (length - 1) * stride
    return low, high + array.itemsize


def _rebuild(path, noted, dtype, mode, place, account, map_mode):
    """The array of a pickle."""
    begin, length, lead, shape, strides = place
    # Looked at before, or a file that is shorter by now would be a mere ValueError; and afterwards,
    # so that it is that of the map.
    problem, whole = _identity.problem(path, noted, mode != "r"), None
    if problem is None:
        whole = memmap(path, np.uint8, mode, begin, (length,), budget=account, map_mode=map_mode)
        problem = _identity.problem(path, noted, mode != "r")
    if problem:
        raise Error(f"a memmap was pickled by its path, and {problem}")
    made = np.ndarray.__new__(memmap, shape, dtype, whole, lead, strides)
    made._mmap, made._hold = whole._mmap, whole._hold
    made.filename, made.offset, made.mode = whole.filename, begin + lead, mode
    return made
