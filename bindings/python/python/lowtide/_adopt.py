"""``lowtide.adopt``: maps that a library has made, in C++ or elsewhere, within a budget.

The kernel says which files are mapped where (``/proc/self/maps``). Shared mappings can be adopted,
and private ones without the right to store.
"""

import os
from collections import namedtuple

from . import _budget
from ._lowtide import Adopted, Error, address_of, as_mapped, close

_Line = namedtuple("_Line", "start end rights offset number path")


def _lines():
    """The mappings of files in this process."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            range_, rights, offset, device, number, *path = line.rstrip("\n").split(maxsplit=5)
            if not path or not path[0].startswith("/"):
                continue
            start, end = (int(part, 16) for part in range_.split("-"))
            major, minor = (int(part, 16) for part in device.split(":"))
            number = (os.makedev(major, minor), int(number))
            # The kernel writes a line break in a name as `\012`, and nothing else differently.
            path = path[0].replace("\\012", "\n")
            yield _Line(start, end, rights, int(offset, 16), number, path)


def _address(obj):
    """Where the memory of an object begins, and its bytes; None for something else."""
    interface = getattr(obj, "__array_interface__", None)
    if interface is not None:
        return interface["data"][0], max(getattr(obj, "nbytes", 1), 1)
    for name in ("address", "data_ptr"):
        value = getattr(obj, name, None)
        value = value() if callable(value) else value
        if isinstance(value, int):
            sizes = (getattr(obj, size, None) for size in ("nbytes", "size"))
            return value, next((size for size in sizes if isinstance(size, int) and size), 1)
    try:
        return address_of(obj)
    except (TypeError, BufferError):
        return None


class Adoption:
    """Mappings that were taken over, until ``close`` or the end of a ``with`` block.

    What made them must not unmap them before: an object that was passed to ``adopt`` is kept alive
    for that reason. After ``adopt`` of a path, close this before the library closes its map.
    """

    def __init__(self, kept, keep, account):
        self._kept, self._keep, self.budget = kept, keep, account

    @property
    def addresses(self):
        """First address and bytes of each mapping."""
        return [kept.addresses for kept in self._kept]

    @property
    def resident(self):
        """Bytes of the files that are known to be in memory."""
        return sum({kept.file: kept.resident for kept in self._kept}.values())

    @property
    def closed(self):
        """Whether the mappings are the kernel's again."""
        return not any(self._kept)

    def close(self):
        """Leaves the mappings to the kernel."""
        for kept in self._kept:
            kept.forget()
        self._kept, self._keep = [], None

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def __repr__(self):
        return f"<lowtide.Adoption of {len(self._kept)} mappings>"


@_budget.takes_budget
def adopt(path_or_obj, *, budget=None):
    """Keeps what is mapped of a file, or the mapping that an object's memory is in, within a
    budget: a size, a ``Pager`` or a ``Tenant``.

    A path means all mappings of that file in this process. An object is one with a buffer, an
    ``__array_interface__`` or an ``address``: an array, a ``pyarrow.Buffer``, a ``memoryview``.
    """
    account = _budget.account(budget) or _budget.default_pager()
    is_path = isinstance(path_or_obj, (str, bytes, os.PathLike))
    if is_path and not isinstance(path_or_obj, bytes):
        found = os.stat(path_or_obj)
        chosen = [line for line in _lines() if line.number[1] == found.st_ino
                  and _is_same(line, (found.st_dev, found.st_ino))]
        what = f"no mapping of {os.fspath(path_or_obj)} is in this process"
    else:
        place = _address(path_or_obj)
        if place is None:
            kind = type(path_or_obj).__name__
            raise TypeError(f"a path, or an object with memory, is adopted, not a {kind}")
        start, length = place
        chosen = [line for line in _lines() if line.start < start + length and start < line.end]
        what = f"the memory of this {type(path_or_obj).__name__} is no mapping of a file"
    if not chosen:
        raise Error(f"{what}: what was read into memory has no file to come back from")
    refused = [line for line in chosen if line.rights[3] == "p" and "w" in line.rights]
    if refused:
        path = refused[0].path
        raise Error(f"{path} is mapped privately and writable: its pages may have stores")
    return Adoption(_take(chosen, account), None if is_path else path_or_obj, account)


def _is_same(line, number):
    """Whether a mapping is of the file with this number: file systems may have other devices in
    /proc than in stat."""
    try:
        found = os.stat(line.path)
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == number


def _take(lines, account):
    taken = []
    try:
        for line in lines:
            fd = os.open(line.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                if as_mapped(fd) != line.number:
                    raise Error(f"{line.path} is another file than the one that is mapped")
                taken.append(Adopted(line.start, line.end - line.start, fd, line.offset, account))
            finally:
                close(fd)
    except BaseException:
        for kept in taken:
            kept.forget()
        raise
    return taken
