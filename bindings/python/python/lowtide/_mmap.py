"""``lowtide.mmap``: the standard map of a file, within a budget.

The mapping is the kernel's, made by the standard class. The runtime watches it and evicts pages, so
everything that works with a ``mmap.mmap`` works with this one.

With ``map_mode="userfault"`` the runtime replaces the mapping by a mirror of the file, of which the
budget is exact (``Mirror``). The standard class does not see the difference.

The order in which things end matters: the runtime must not look at addresses that may be another
mapping's. So it forgets a map before ``close`` or ``resize`` change it. A map that is not closed is
forgotten, too: ``_kept`` is dropped when the object's slots are cleared, which Python does before
the standard class unmaps the memory. One thread at a time changes maps, so that a map which one
thread closes is not adopted again by another that has resized it.
"""

import mmap as _std
import os
import stat
import threading
import warnings

from . import _budget
from ._errors import NotPossible
from ._lowtide import Adopted, Mirror, address_of, lives_in_memory

#: The positional arguments of the standard class.
_NAMES = ("flags", "prot", "access", "offset")
_FLAGS, _PROT = _std.MAP_SHARED, _std.PROT_READ | _std.PROT_WRITE
#: What keeps a map within its budget.
_KEEPERS = {"pagecache": Adopted, "userfault": Mirror}
#: Of the thread that changes a map. Handlers of signals, which close maps, run in any call.
_changing = threading.RLock()


def in_child():
    """In a child of fork: the thread that has the lock may not be here."""
    global _changing
    _changing = threading.RLock()


def _why_not(fileno, flags=_FLAGS, prot=_PROT, access=_std.ACCESS_DEFAULT, offset=0, trackfd=True):
    """Why a mapping with these arguments is left to the kernel; None if it can be adopted."""
    if fileno == -1:
        return "it has no file"
    if access == _std.ACCESS_COPY or (
        access == _std.ACCESS_DEFAULT
        and flags & _std.MAP_PRIVATE
        and prot & _std.PROT_WRITE
    ):
        return "its stores are its own (mode 'c', ACCESS_COPY): a page that has one cannot go"
    if not stat.S_ISREG(os.fstat(fileno).st_mode):
        return "it is not of a regular file"
    if lives_in_memory(fileno):
        return "its file is memory (tmpfs, memfd): no page of it can go"
    return None


def _why_no_mirror(fileno, flags=_FLAGS, prot=_PROT, access=_std.ACCESS_DEFAULT, **rest):
    """Why a mapping with these arguments cannot be a mirror; None if it can."""
    if problem := _why_not(fileno, flags, prot, access):
        return problem
    if access == _std.ACCESS_READ or access == _std.ACCESS_DEFAULT and not prot & _std.PROT_WRITE:
        return None
    return "stores to a mirror do not reach the file: map it for reading (mode 'r')"


class mmap(_std.mmap):
    """A ``mmap.mmap`` of which the budget decides what stays in memory.

    The arguments are those of ``mmap.mmap``, and, by name only, ``budget``: a size, a ``Pager`` or
    a ``Tenant``; without one the default budget pays. Maps without a file, of files that are memory
    (tmpfs), and those whose stores are private, are left to the kernel; ``adopted`` says which it
    is.

    ``map_mode`` is ``"pagecache"``: the budget is exceeded for moments. Or it is ``"userfault"``:
    the budget is exact, for maps that are read, of files that nothing may change: the map holds a
    lease on its file. When the file is opened for writing the map becomes one of ``"pagecache"``.
    Other maps are refused.
    Or it is ``"auto"``: ``"userfault"`` for each map that can have it, ``"pagecache"`` for others.
    """

    __slots__ = ("_kept", "_account", "_offset", "_mode")

    @_budget.takes_budget
    def __new__(cls, fileno, length, *args, budget=None, map_mode="pagecache", **kwargs):
        if map_mode not in ("auto", *_KEEPERS):
            raise ValueError(f"map_mode is one of auto, {', '.join(_KEEPERS)}, not {map_mode!r}")
        account = _budget.account_of_map(budget)
        given = {**dict(zip(_NAMES, args)), **kwargs}
        if map_mode != "pagecache" and (problem := _why_no_mirror(fileno, **given)):
            if map_mode == "userfault":
                raise NotPossible(f"this cannot be mapped with map_mode='userfault': {problem}")
            map_mode = "pagecache"
        self = super().__new__(cls, fileno, length, *args, **kwargs)
        self._kept, self._account, self._offset, self._mode = None, account, 0, map_mode
        if account is not _budget.KERNEL and _why_not(fileno, **given) is None:
            self._offset = given.get("offset", 0)
            try:
                self._adopt(fileno)
            except BaseException:
                _std.mmap.close(self)
                raise
        return self

    def _adopt(self, fileno):
        address, length = address_of(self)
        is_named = self._account is not None
        try:
            account = self._account if is_named else _budget.default_pager()
            if self._mode == "auto":
                try:
                    self._kept = Mirror(address, length, fileno, self._offset, account)
                    self._mode, self._account = "userfault", account
                    return
                except OSError:
                    # The machine serves no page faults, or not for this user.
                    self._mode = "pagecache"
            make = _KEEPERS[self._mode]
            self._kept = make(address, length, fileno, self._offset, account)
        except OSError as error:
            if self._mode != "userfault" and _budget.is_used_up(error):
                return
            if is_named or self._mode == "userfault":
                raise
            warnings.warn(f"a map is left to the kernel: {error}", RuntimeWarning, stacklevel=4)
            return
        self._account = account

    @property
    def adopted(self):
        """Whether the map is kept within a budget."""
        return bool(self._kept)

    @property
    def budget(self):
        """The ``Pager`` or ``Tenant`` that pays; None for a map that is left to the kernel."""
        return self._account if self._kept else None

    @property
    def map_mode(self):
        """``"pagecache"`` or ``"userfault"``; None for a map that is left to the kernel."""
        if not self._kept:
            return None
        # A mirror whose file was opened for writing since is the kernel's own mapping again.
        return "pagecache" if self._mode == "userfault" and not self._kept.is_exact else self._mode

    @property
    def resident(self):
        """Bytes of the file that are known to be in memory."""
        return self._kept.resident if self._kept else 0

    def _without(self, change):
        """Changes the mapping while the runtime does not look at it, then adopts what is there."""
        with _changing:
            kept = self._kept
            if not kept:
                return change()
            kept.forget()
            try:
                return change()
            finally:
                if not self.closed:
                    kept.adopt_at(*address_of(self))

    def close(self):
        """Closes the map, unless arrays or views of it are alive: then it is a ``BufferError``."""
        return self._without(super().close)

    def resize(self, newsize):
        """As ``mmap.mmap.resize``."""
        return self._without(lambda: super(mmap, self).resize(newsize))

    def __exit__(self, *exception):
        self.close()

    def madvise(self, option, *args):
        """As ``mmap.mmap.madvise``; ahead of what is read in order, the runtime reads."""
        orders = {_std.MADV_NORMAL: False, _std.MADV_SEQUENTIAL: False, _std.MADV_RANDOM: True}
        if self._kept and self._mode == "userfault":
            return self._advise_mirror(option, *args)
        if not self._kept or option not in (*orders, _std.MADV_DONTFORK, _std.MADV_DOFORK):
            return super().madvise(option, *args)
        if option not in orders:
            self._kept.inherit(option == _std.MADV_DOFORK)
            return super().madvise(option, *args)
        # The kernel checks the range, and goes on to read nothing ahead.
        super().madvise(_std.MADV_RANDOM, *args)
        start = args[0] if args else 0
        rest = len(self) - start
        length = min(args[1], rest) if len(args) > 1 else rest
        if not self._kept.advise(start, length, orders[option]):
            super().madvise(option, *args)
        return None

    def _advise_mirror(self, option, start=0, length=None):
        """Nothing of it is for the kernel, which would take the mirror's memory for the file."""
        if not 0 <= start < len(self):
            raise ValueError("madvise start out of bounds")
        length = len(self) - start if length is None else min(length, len(self) - start)
        if length < 0:
            raise ValueError("madvise length invalid")
        if option in (_std.MADV_NORMAL, _std.MADV_SEQUENTIAL, _std.MADV_RANDOM):
            self._kept.advise(option == _std.MADV_RANDOM)
        elif option == _std.MADV_WILLNEED:
            self._kept.will_need(start, length)

    def __repr__(self):
        # As the standard class, whose name programs and tests look for.
        text = super().__repr__()
        return "<mmap.mmap" + text[text.index(" "):]
