"""The runtime's exceptions. Each is a ``lowtide.Error``, which is an ``OSError``; some have the class
that Python's own functions raise for the same as a second base."""

from ._lowtide import Error


class OutOfBudget(Error, MemoryError):
    """The budget has no room for what was asked, or a tenant has none."""


class OutOfRange(Error, IndexError):
    """A place past the end of the file."""


class Timeout(Error, TimeoutError):
    """The device, or memory that has to be written, did not come in time."""


class Busy(Error):
    """Something is in use at this moment: pages, or a tenant that is reclaimed from. Try again."""


class ReadOnly(Error, PermissionError):
    """The file was opened for reading."""


class Locked(Error, BlockingIOError):
    """Another program, or another pager, writes the file."""


class Closed(Error, ValueError):
    """The pager is closed."""


class Gone(Error):
    """The tenant was removed."""


class Exists(Error, ValueError):
    """A tenant of this name exists."""


class NotEmpty(Error):
    """There are tenants below this one."""


class NotPossible(Error):
    """This machine, or this file, does not have such a map. The text says why."""


class Poisoned(Error):
    """The pager met a defect before. Flushed data is safe; make another pager."""


__all__ = [
    "Busy", "Closed", "Error", "Exists", "Gone", "Locked", "NotEmpty", "NotPossible", "OutOfBudget",
    "OutOfRange", "Poisoned", "ReadOnly", "Timeout",
]
for _name in __all__:
    globals()[_name].__module__ = "lowtide"
