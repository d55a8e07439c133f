"""The file system ``lowtide`` of fsspec: local files, read through a budget.

    fsspec.open("lowtide:///data/table.parquet", max="2G")
"""

from fsspec.implementations.local import LocalFileSystem

from . import _budget
from ._view import View


class BudgetFileSystem(LocalFileSystem):
    """Local files. Those that are opened for reading are views of one budget."""

    protocol = "lowtide"

    def __init__(self, max=None, pager=None, tenant=None, **options):
        super().__init__(**options)
        account = _budget.account(max, pager, tenant)
        self.budget = account if account is not None else _budget.default_pager()

    def _open(self, path, mode="rb", block_size=None, **options):
        if mode != "rb":
            return super()._open(path, mode, block_size, **options)
        kind = "tenant" if isinstance(self.budget, _budget.Tenant) else "pager"
        return View(self._strip_protocol(path), **{kind: self.budget})
