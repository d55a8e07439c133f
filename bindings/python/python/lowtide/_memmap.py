"""``lowtide.memmap``: numpy's memory map, within a budget.

The constructor is numpy's own, of whatever version is installed: its code runs with another
``import mmap``, so that the map it makes is a ``lowtide.mmap``. What it does with modes, offsets,
shapes and files is what numpy does.

An array keeps a view of its map (``_hold``). numpy does not: closing the map of a ``numpy.memmap``
succeeds, and the next look at the array is a crash. Here it is a ``BufferError``.

A pickle has the path of the file and the place of the array in it, not the bytes. Where the file is
not to be found by its path any more, pickling is refused.
"""

import builtins
import mmap as _std
import os
import pickle
import threading
from types import FunctionType, SimpleNamespace

import numpy as np

from . import _budget
from ._lowtide import Error, address_of
from ._mmap import mmap

#: numpy's constructor, before anything replaces it (``_patch``).
_NUMPY_NEW = np.memmap.__new__

_current = threading.local()


def _make_map(*args, **kwargs):
    """What numpy's constructor calls as ``mmap.mmap``."""
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

    The arguments are those of ``numpy.memmap``, and, by name only, ``max`` for a budget of its
    own, or ``pager`` or ``tenant``; without one the default budget pays. ``map_mode`` is that of
    ``lowtide.mmap``.
    """

    def __new__(
        subtype,
        filename,
        dtype=np.uint8,
        mode="r+",
        offset=0,
        shape=None,
        order="C",
        *,
        max=None,
        pager=None,
        tenant=None,
        policy=None,
        map_mode="pagecache",
    ):
        account = _budget.account(max, pager, tenant, policy)
        kind = "tenant" if isinstance(account, _budget.Tenant) else "pager"
        before = getattr(_current, "budget", None)
        _current.budget = {kind: account, "map_mode": map_mode}
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


def _file_of(path, number):
    """Whether a file is still the one with this device and number."""
    try:
        found = os.stat(path)
    except OSError as error:
        return f"{path} is not to be found any more ({error.strerror})"
    if (found.st_dev, found.st_ino) != number:
        return f"{path} is another file by now"
    return None


def _description(array):
    """Everything that another process needs to make the same array of the same file."""
    made = array._mmap
    if array.filename is None:
        raise pickle.PicklingError(
            "a memmap of a file without a name cannot be pickled: copy it (numpy.array), or map a "
            "file that has a path"
        )
    path = os.fspath(array.filename)
    number = _number_of(made)
    if problem := _file_of(path, number):
        raise pickle.PicklingError(f"a memmap is pickled by its path, and {problem}: copy it")
    address, _ = address_of(made)
    low, high = _bounds(array)
    begin = made._offset + low - address
    lead = array.__array_interface__["data"][0] - low
    mode = "r" if array.mode == "r" else "r+"
    place = (begin, high - low, lead, array.shape, array.strides)
    return path, number, array.dtype, mode, place, made._account, made.map_mode


def _number_of(made):
    if made.adopted:
        return made._kept.file
    raise pickle.PicklingError("a memmap that the kernel keeps cannot be pickled: copy it")


def _bounds(array):
    """The first address of an array, and the one behind its last."""
    low = high = array.__array_interface__["data"][0]
    if array.size == 0:
        return low, low
    for length, stride in zip(array.shape, array.strides):
        if stride < 0:
            low += (length - 1) * stride
        else:
            high += (length - 1) * stride
    return low, high + array.itemsize


def _rebuild(path, number, dtype, mode, place, account, map_mode):
    """The array of a pickle."""
    begin, length, lead, shape, strides = place
    if problem := _file_of(path, number):
        raise Error(f"a memmap was pickled by its path, and {problem}")
    kind = "tenant" if isinstance(account, _budget.Tenant) else "pager"
    budget = {kind: account, "map_mode": map_mode}
    whole = memmap(path, np.uint8, mode, begin, (length,), **budget)
    if whole._mmap.adopted and whole._mmap._kept.file != number:
        raise Error(f"a memmap was pickled by its path, and {path} is another file by now")
    made = np.ndarray.__new__(memmap, shape, dtype, whole, lead, strides)
    made._mmap, made._hold = whole._mmap, whole._hold
    made.filename, made.offset, made.mode = whole.filename, begin + lead, mode
    return made
