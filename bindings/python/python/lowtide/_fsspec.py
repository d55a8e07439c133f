"""The file system ``lowtide`` of fsspec: local files, read through a budget.

    fsspec.open("lowtide:///data/table.parquet", budget="2G")
"""

from fsspec.implementations.local import LocalFileSystem

from . import _budget
from ._lowtide import Pager
from ._view import View


class BudgetFileSystem(LocalFileSystem):
    """Local files, which are read: each is a view of one budget."""

    protocol = "lowtide"

    @_budget.takes_budget
    def __init__(self, budget=None, **options):
        super().__init__(**options)
        account = _budget.account(budget, Pager)
        self.budget = account if account is not None else _budget.default_pager()

    def _open(self, path, mode="rb", block_size=None, **options):
        if mode != "rb":
            raise ValueError(f"lowtide:// is for reading (mode 'rb', not {mode!r}): write to file://")
        return View(self._strip_protocol(path), budget=self.budget)
