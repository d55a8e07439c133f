"""Exceptions with more than one base."""

from ._lowtide import Error


class OutOfBudget(Error, MemoryError):
    """The budget has no room for what was asked, or a tenant has none."""


OutOfBudget.__module__ = "lowtide"
