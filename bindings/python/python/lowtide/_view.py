"""``lowtide.open``: a file that is read through the budget, by rows, ranges, or as a file object.

Nothing is mapped here: a failed read is an exception, the budget is exact, and a call for many rows
has many reads in flight. Libraries that take file objects (pyarrow, h5py, zipfile) read through
it.

**The page.** What comes in for a row are whole pages, so rows that are smaller than a page bring in
bytes that no caller wants, and these take the place of rows. Unless a budget or ``page`` says
otherwise, the page has the size of the rows of the first call of ``rows``; the file is opened by
the first call that reads it.
"""

import io
import math
import os
import threading

from . import _budget
from ._lowtide import Error, RawView, parse_size

#: Bytes of the pages that are chosen here: the smallest that a device reads, and the kernel's.
_SMALLEST, _USUAL = 512, 4096


def _page_for(row):
    """The page for rows of this size."""
    return min(_USUAL, max(_SMALLEST, 1 << (row - 1).bit_length()))


class View(io.RawIOBase):
    """An open file of a budget. A raw binary file object, and more; see ``lowtide.open``.

    ``rows``, ``read_at`` and ``write_at`` have no position and may be called by several threads at
    a time. So do not ``read`` and ``seek``: as with every raw file, the position is shared.
    """

    def __init__(
        self,
        path,
        mode="r",
        *,
        max=None,
        pager=None,
        tenant=None,
        policy=None,
        page=None,
        create=None,
        lock=True,
        read_ahead=None,
    ):
        if mode not in ("r", "rb", "r+", "r+b", "rb+"):
            raise ValueError(f"mode is 'r' or 'r+', not {mode!r}: `create` makes a file")
        self._path = os.path.abspath(os.fspath(path))
        self._writes = "+" in mode or create is not None
        self._options = {"create": create, "lock": lock, "read_ahead": read_ahead}
        self._lock, self._at, self._opened = threading.Lock(), 0, None
        if max is None and (pager is not None or tenant is not None):
            if page is not None:
                raise TypeError("`page` is of a new budget: make the Pager with that page")
            self._account, self._made_of = _budget.account(None, pager, tenant, policy), None
        else:
            if pager is not None or tenant is not None:
                raise TypeError("`max`, `pager` and `tenant` exclude each other: name one budget")
            max = parse_size(max) if max is not None else _budget.default_pager().max
            self._account, self._made_of = None, (max, policy or "mglru", page)
        if create is None:
            # An error is said now, even if the file is opened later.
            os.close(os.open(self._path, os.O_RDONLY | os.O_CLOEXEC))
        if self._made_of is None or page is not None or create is not None:
            self._raw()

    def _raw(self, row=_USUAL):
        """The runtime's file, opened if this is the first use."""
        if self.closed:
            raise ValueError("I/O operation on closed file")
        if self._opened is not None:
            return self._opened
        with self._lock:
            if self._opened is None:
                if self._account is None:
                    max, policy, page = self._made_of
                    self._account = _budget.Pager(max, policy=policy, page=page or _page_for(row))
                self._opened = RawView(
                    self._path, self._account, write=self._writes, **self._options
                )
        return self._opened

    @property
    def name(self):
        """The path."""
        return self._path

    @property
    def mode(self):
        """``"rb"``, or ``"rb+"``."""
        return "rb+" if self._writes else "rb"

    @property
    def budget(self):
        """The ``Pager`` or ``Tenant`` that pays."""
        self._raw()
        return self._account

    @property
    def page(self):
        """Bytes of a page."""
        return self._raw().page

    @property
    def direct(self):
        """Whether the file is read past the kernel's page cache."""
        return self._raw().direct

    def __len__(self):
        return self._raw().size()

    def __bool__(self):
        return True

    def rows(self, indices, dtype="u1", shape=(), out=None, *, offset=0):
        """The rows with these numbers, in one array: ``indices.shape + shape``.

        A row is ``shape`` elements of ``dtype``; row 0 begins at byte ``offset``. Numbers below
        zero count from the end. With ``out``, an array of that shape and type in C order, nothing
        is allocated. The reads of rows that are not in memory overlap, and Python's lock is free
        meanwhile.
        """
        import numpy as np

        dtype = np.dtype(dtype)
        if dtype.hasobject:
            raise TypeError("a file has no Python objects")
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        row = dtype.itemsize * math.prod(shape)
        if row <= 0:
            raise ValueError(f"a row of shape {shape} and type {dtype} has no bytes")
        indices = np.asarray(indices)
        if indices.size and indices.dtype.kind not in "iu":
            raise IndexError(f"rows are named by whole numbers, not by {indices.dtype}")
        wanted = np.ascontiguousarray(indices, dtype=np.int64)
        whole = indices.shape + shape
        if out is None:
            out = np.empty(whole, dtype)
        elif out.dtype != dtype or out.shape != whole:
            raise ValueError(f"`out` is {out.dtype}{out.shape}, and the rows are {dtype}{whole}")
        elif not (out.flags.c_contiguous and out.flags.writeable):
            raise ValueError("`out` is in one piece, in C order, and writable")
        if out.size:
            into = out.reshape(-1).view(np.uint8)
            self._raw(row).gather(wanted, row, offset, into)
        return out

    def read_at(self, offset, size):
        """At most ``size`` bytes from ``offset`` on."""
        found = bytearray(max(0, min(size, len(self) - offset)))
        count = self._raw().read_into(offset, found)
        return bytes(found[:count])

    def write_at(self, offset, data):
        """Stores bytes at ``offset``; the file becomes longer if need be."""
        self._check_writable()
        return self._raw().write(offset, data)

    def prefetch(self, start, end):
        """The range of bytes is soon wanted: it is read in the background."""
        self._raw().prefetch(start, end)

    def stat(self):
        """The counters of the budget."""
        return self.budget.stat()

    # What a raw file has.

    def readable(self):
        return not self.closed

    def writable(self):
        return self._writes

    def seekable(self):
        return True

    def tell(self):
        self._raw()
        return self._at

    def seek(self, offset, whence=os.SEEK_SET):
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at}.get(whence)
        if base is None:
            if whence != os.SEEK_END:
                raise ValueError(f"invalid whence ({whence}, should be 0, 1 or 2)")
            base = len(self)
        if base + offset < 0:
            raise ValueError(f"negative seek position {base + offset}")
        self._at = base + offset
        return self._at

    def readinto(self, buffer):
        count = self._raw().read_into(self._at, buffer)
        self._at += count
        return count

    def readall(self):
        found = self.read_at(self._at, len(self))
        self._at += len(found)
        return found

    def write(self, data):
        self._check_writable()
        count = self._raw().write(self._at, data)
        self._at += count
        return count

    def truncate(self, size=None):
        self._check_writable()
        size = self._at if size is None else size
        self._raw().truncate(size)
        return size

    def flush(self):
        """Makes what was stored durable."""
        if self._writes and self._opened is not None and not self.closed:
            self._opened.flush()

    def close(self):
        if self.closed:
            return
        try:
            super().close()
        finally:
            if self._opened is not None:
                self._opened.close()

    def _check_writable(self):
        if not self._writes:
            raise io.UnsupportedOperation("not writable")

    def __reduce__(self):
        if self.closed:
            raise Error("a closed view cannot be pickled")
        self._raw()
        if self._options["create"] is not None or self._writes:
            raise Error(
                "a view that writes is of one process, which has the file's lock: open the file in "
                "the other process"
            )
        return _again, (self._path, self._account, self._options)

    def __repr__(self):
        state = "closed " if self.closed else ""
        return f"<{state}lowtide.View of {self._path!r}, mode {self.mode!r}>"


def _again(path, account, options):
    kind = "tenant" if isinstance(account, _budget.Tenant) else "pager"
    options = {name: value for name, value in options.items() if name != "create"}
    return View(path, **{kind: account}, **options)


def open(
    path,
    mode="r",
    *,
    max=None,
    pager=None,
    tenant=None,
    policy=None,
    page=None,
    create=None,
    lock=True,
    read_ahead=None,
):
    """Opens a file under a budget.

    ``max`` is a budget of its own, ``pager`` or ``tenant`` one that others share; without one the
    size of the default budget is taken. ``page`` is the bytes of a page, from 512 to 65536: by
    default it is chosen by the first rows. ``create`` makes the file, at least so long. ``lock``:
    whether the file is locked against other programs that write it. ``read_ahead``: the most that
    is read ahead where it is read in order.
    """
    return View(
        path,
        mode,
        max=max,
        pager=pager,
        tenant=tenant,
        policy=policy,
        page=page,
        create=create,
        lock=lock,
        read_ahead=read_ahead,
    )
