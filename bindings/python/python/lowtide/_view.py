"""``lowtide.open``: a file that is read through the budget, by rows, ranges, or as a file object.

Nothing is mapped here: a failed read is an exception, the budget is exact, and a call for many rows
has many reads in flight. Libraries that take file objects (pyarrow, h5py, zipfile) read through
it.

**Stores.** Written bytes are in this process until the runtime writes them back, and lost if the
process ends before. So views are flushed at the end of the interpreter (``atexit``), and of a
worker of ``multiprocessing``, which ends by ``os._exit``. Python does not hear of other calls of
``os._exit``, and of signals that end the process.

**The page.** Whole pages come in for a row, so rows that are smaller than a page bring in
bytes that no caller wants, and these take the place of rows. Unless a pager or ``page_size`` says
otherwise, the page has the size of the rows of the first call of ``rows``; the file is opened by
the first call that reads it.
"""

import errno
import io
import math
import os
import stat
import sys
import threading
import warnings
import weakref

from . import _budget, _identity
from ._lowtide import Error, Pager, RawView, Tenant, parse_size

#: Bytes of the pages that are chosen here: the smallest that a device reads, and the kernel's.
_SMALLEST, _USUAL = 512, 4096


def _page_for(row):
    """The page for rows of this size."""
    return min(_USUAL, max(_SMALLEST, 1 << (row - 1).bit_length()))


#: Views that were written to, by process: a child of fork flushes none of its parent's.
_written: dict = {}


def flush_all():
    """Makes what was written durable: the process ends."""
    for view in list(_written.get(os.getpid(), ())):
        try:
            view.flush()
        except Exception as error:
            warnings.warn(f"{view!r}: what was written is lost: {error}", RuntimeWarning)


def _note_written(view):
    process = os.getpid()
    if process not in _written and "multiprocessing.util" in sys.modules:
        # After what the program registers, which may write.
        sys.modules["multiprocessing.util"].Finalize(None, flush_all, exitpriority=-100)
    _written.setdefault(process, weakref.WeakSet()).add(view)


def _check_path(path):
    """Says an error now, even if the file is opened later. Nothing is opened: a process that closes
    a descriptor of a file loses its locks on that (``fcntl(2)``)."""
    if stat.S_ISDIR(os.stat(path).st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not os.access(path, os.R_OK, effective_ids=True):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)


class View(io.RawIOBase):
    """An open file of a budget. A raw binary file object, and more; see ``lowtide.open``.

    ``rows``, ``read_at`` and ``write_at`` have no position and may be called by several threads at
    a time. So do not ``read`` and ``seek``: as with every raw file, the position is shared.
    """

    @_budget.takes_budget
    @_budget.renamed("page")
    def __init__(
        self,
        path,
        mode="r",
        *,
        budget=None,
        page_size=None,
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
        if isinstance(budget, (Pager, Tenant)):
            if page_size is not None:
                raise TypeError("`page_size` is of a new budget: make the Pager with it")
            self._account, self._made_of = budget, None
        else:
            size = parse_size(budget) if budget is not None else _budget.default_pager().max
            self._account, self._made_of = None, (size, page_size)
        if create is None:
            _check_path(self._path)
        if self._made_of is None or page_size is not None or create is not None:
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
                    size, page_size = self._made_of
                    self._account = Pager(size, page_size=page_size or _page_for(row))
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
    def page_size(self):
        """Bytes of a page."""
        return self._raw().page_size

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
        during the call.
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
        if indices.size and indices.dtype == np.uint64 and (most := int(indices.max())) >> 63:
            raise IndexError(f"row {most} is not one of the rows of {self._path}")
        if offset < 0:
            raise ValueError(f"row 0 begins at a byte of the file, not at {offset}")
        wanted = np.ascontiguousarray(indices, dtype=np.int64)
        whole = indices.shape + shape
        if out is None:
            out = np.empty(whole, dtype)
        elif not isinstance(out, np.ndarray):
            raise TypeError(f"`out` is an array, not a {type(out).__name__}")
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

    def prefetch(self, offset, size):
        """``size`` bytes from ``offset`` on are soon wanted: they are read in the background."""
        self._raw().prefetch(offset, size)

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
        _note_written(self)

    def __reduce__(self):
        if self.closed:
            raise Error("a closed view cannot be pickled")
        noted = self._raw().file
        if self._options["create"] is not None or self._writes:
            raise Error(
                "a view that writes is of one process, which has the file's lock: open the file in "
                "the other process"
            )
        if problem := _problem(self._path, noted):
            raise Error(f"a view is pickled by its path, and {problem}")
        return _again, (self._path, noted, self._account, self._options)

    def __repr__(self):
        state = "closed " if self.closed else ""
        return f"<{state}lowtide.View of {self._path!r}, mode {self.mode!r}>"


def _problem(path, noted):
    # A view shows the file as it is. Only where files have no birth, one that was written to may be
    # another one.
    return _identity.problem(path, noted, noted[2] is not None)


def _again(path, noted, account, options):
    if problem := _problem(path, noted):
        raise Error(f"a view was pickled by its path, and {problem}")
    options = {name: value for name, value in options.items() if name != "create"}
    view = View(path, budget=account, **options)
    if view._raw().file[:3] != noted[:3]:
        view.close()
        raise Error(f"a view was pickled by its path, and {path} is another file by now")
    return view


@_budget.takes_budget
@_budget.renamed("page")
def open(
    path,
    mode="r",
    *,
    budget=None,
    page_size=None,
    create=None,
    lock=True,
    read_ahead=None,
):
    """Opens a file under a budget.

    ``budget`` is a size for a budget of its own, or a ``Pager`` or a ``Tenant``, which others
    share; without one the size of the default budget is taken. ``page_size`` is the bytes of a
    page, from 512 to 65536: by default it is chosen by the first rows. ``create`` makes the file,
    at least so long. ``lock``: whether the file is locked against other programs that write it.
    ``read_ahead``: the most that is read ahead where it is read in order.

    Written bytes are in this process until ``flush``, ``close``, the end of the interpreter or of a
    worker of ``multiprocessing``, each of which makes them durable. ``os._exit``, and a signal that
    ends the process (``SIGTERM``, without a handler that exits), lose those that were written
    since: call ``flush`` where that matters.
    """
    return View(
        path,
        mode,
        budget=budget,
        page_size=page_size,
        create=create,
        lock=lock,
        read_ahead=read_ahead,
    )
