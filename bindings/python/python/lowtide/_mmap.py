"""``lowtide.mmap``: the standard map of a file, within a budget.

The mapping is the kernel's, made by the standard class. The runtime watches it and lets pages go,
so everything that works with a ``mmap.mmap`` works with this one.

With ``map_mode="userfault"`` the runtime replaces the mapping by a mirror of the file, of which the
budget is exact (``Mirror``). The standard class does not see the difference.

The order in which things end matters: the runtime must not look at addresses that may be another
mapping's. So it forgets a map before ``close`` or ``resize`` change it. A map that is not closed is
forgotten, too: ``_kept`` is dropped when the object's slots are cleared, which Python does before
the standard class unmaps the memory.
"""

import mmap as _std
import os
import stat
import warnings

from . import _budget
from ._lowtide import Adopted, Error, Mirror, address_of

#: The positional arguments of the standard class.
_NAMES = ("flags", "prot", "access", "offset")
_FLAGS, _PROT = _std.MAP_SHARED, _std.PROT_READ | _std.PROT_WRITE
#: What keeps a map within its budget.
_MODES = {"pagecache": Adopted, "userfault": Mirror}


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

    The arguments are those of ``mmap.mmap``, and, by name only, ``max`` for a budget of its own,
    or ``pager`` or ``tenant``; without one the default budget pays. Maps without a file, and those
    whose stores are private, are left to the kernel; ``adopted`` says which it is.

    ``map_mode`` is ``"pagecache"``: the budget is exceeded for moments. Or it is ``"userfault"``:
    the budget is exact, the map is for reading, and the file must not change while it is mapped.
    What cannot be mapped so is refused.
    """

    __slots__ = ("_kept", "_account", "_offset", "_mode")

    def __new__(
        cls,
        fileno,
        length,
        *args,
        max=None,
        pager=None,
        tenant=None,
        policy=None,
        map_mode="pagecache",
        **kwargs,
    ):
        if map_mode not in _MODES:
            raise ValueError(f"map_mode is one of {', '.join(_MODES)}, not {map_mode!r}")
        account = _budget.account(max, pager, tenant, policy)
        given = {**dict(zip(_NAMES, args)), **kwargs}
        if map_mode == "userfault" and (problem := _why_no_mirror(fileno, **given)):
            raise Error(f"this cannot be mapped with map_mode='userfault': {problem}")
        self = super().__new__(cls, fileno, length, *args, **kwargs)
        self._kept, self._account, self._offset, self._mode = None, account, 0, map_mode
        if _why_not(fileno, **given) is None:
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
        account = self._account if is_named else _budget.default_pager()
        make = _MODES[self._mode]
        try:
            self._kept = make(address, length, fileno, self._offset, account)
        except OSError as error:
            if is_named or make is Mirror:
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
        return self._mode if self._kept else None

    @property
    def resident(self):
        """Bytes of the file that are known to be in memory."""
        return self._kept.resident if self._kept else 0

    def _without(self, change):
        """Changes the mapping while the runtime does not look at it; adopts what is there then."""
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
