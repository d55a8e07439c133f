"""The names that programs use."""

import io
import mmap as _std
import os
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from typing_extensions import Buffer, Self

from ._errors import Busy as Busy
from ._errors import Closed as Closed
from ._errors import Error as Error
from ._errors import Exists as Exists
from ._errors import Gone as Gone
from ._errors import Locked as Locked
from ._errors import NotEmpty as NotEmpty
from ._errors import NotPossible as NotPossible
from ._errors import OutOfBudget as OutOfBudget
from ._errors import OutOfRange as OutOfRange
from ._errors import Poisoned as Poisoned
from ._errors import ReadOnly as ReadOnly
from ._errors import Timeout as Timeout
from ._lowtide import Pager as Pager
from ._lowtide import Tenant as Tenant
from ._lowtide import __version__ as __version__
from ._results import AutoStat as AutoStat
from ._results import Curve as Curve
from ._results import CurvePoint as CurvePoint
from ._results import Limits as Limits
from ._results import Pressure as Pressure
from ._results import PressureLine as PressureLine
from ._results import Stat as Stat

__all__ = [
    "Adoption", "AutoStat", "Busy", "Closed", "Curve", "CurvePoint", "Curves", "Error", "Exists",
    "Gone", "Limits", "Locked", "NotEmpty", "NotPossible", "OutOfBudget", "OutOfRange",
    "Pager", "Patched", "Poisoned", "Pressure", "PressureLine", "ReadOnly", "Stat", "Table",
    "Tenant", "Timeout", "View", "__version__", "adopt", "default_pager", "empty", "memmap", "mmap",
    "mrc", "open", "patch", "set_default", "sim", "zeros",
]

_Size = int | str
_Path = str | os.PathLike[str]
_Shape = int | Sequence[int]

_Budget = _Size | Pager | Tenant

class mmap(_std.mmap):
    def __new__(
        cls,
        fileno: int,
        length: int,
        *args: int,
        budget: _Budget | None = None,
        map_mode: Literal["auto", "pagecache", "userfault"] = "pagecache",
        **kwargs: Any,
    ) -> Self: ...
    @property
    def adopted(self) -> bool: ...
    @property
    def budget(self) -> Pager | Tenant | None: ...
    @property
    def map_mode(self) -> Literal["pagecache", "userfault"] | None: ...
    @property
    def resident(self) -> int: ...
    def close(self) -> None: ...
    def resize(self, newsize: int) -> None: ...
    def madvise(self, option: int, *args: int) -> None: ...
    def __exit__(self, *exception: object) -> None: ...

class memmap(np.memmap[Any, Any]):
    def __new__(
        subtype,
        filename: Any,
        dtype: DTypeLike = ...,
        mode: str = "r+",
        offset: int = 0,
        shape: _Shape | None = None,
        order: Literal["C", "F"] = "C",
        *,
        budget: _Budget | None = None,
        map_mode: Literal["auto", "pagecache", "userfault"] = "pagecache",
    ) -> Self: ...
    @property
    def budget(self) -> Pager | Tenant | None: ...
    @property
    def resident(self) -> int: ...
    def __array_wrap__(
        self, arr: Any, context: Any = None, return_scalar: bool = False
    ) -> Any: ...
    def __getitem__(self, index: Any) -> Any: ...
    def __reduce_ex__(self, protocol: Any) -> Any: ...

class View(io.RawIOBase):
    def __init__(
        self,
        path: _Path,
        mode: str = "r",
        *,
        budget: _Budget | None = None,
        page_size: int | None = None,
        create: _Size | None = None,
        lock: bool = True,
        read_ahead: _Size | None = None,
    ) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def mode(self) -> str: ...
    @property
    def budget(self) -> Pager | Tenant: ...
    @property
    def page_size(self) -> int: ...
    @property
    def direct(self) -> bool: ...
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...
    def rows(
        self,
        indices: ArrayLike,
        dtype: DTypeLike = "u1",
        shape: _Shape = (),
        out: NDArray[Any] | None = None,
        *,
        offset: int = 0,
    ) -> NDArray[Any]: ...
    def read_at(self, offset: int, size: int) -> bytes: ...
    def write_at(self, offset: int, data: Buffer) -> int: ...
    def prefetch(self, offset: int, size: int) -> None: ...
    def stat(self) -> Stat: ...
    def seek(self, offset: int, whence: int = 0) -> int: ...
    def readinto(self, buffer: Buffer) -> int: ...
    def readall(self) -> bytes: ...
    def write(self, data: Buffer) -> int: ...
    def truncate(self, size: int | None = None) -> int: ...
    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]: ...

class Adoption:
    budget: Pager | Tenant
    def __init__(self, kept: Any, keep: Any, account: Pager | Tenant) -> None: ...
    @property
    def addresses(self) -> list[tuple[int, int]]: ...
    @property
    def resident(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: object) -> None: ...

class Patched:
    budget: Pager | Tenant
    def __init__(self, budget: Pager | Tenant) -> None: ...
    def undo(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: object) -> None: ...

def open(
    path: _Path,
    mode: str = "r",
    *,
    budget: _Budget | None = None,
    page_size: int | None = None,
    create: _Size | None = None,
    lock: bool = True,
    read_ahead: _Size | None = None,
) -> View: ...
def adopt(
    path_or_obj: Any,
    *,
    budget: _Budget | None = None,
) -> Adoption: ...
def patch(
    *,
    budget: _Budget | None = None,
) -> Patched: ...
def empty(
    shape: _Shape,
    dtype: DTypeLike = ...,
    order: Literal["C", "F"] = "C",
    *,
    budget: _Budget | None = None,
    swap_dir: _Path | None = None,
) -> NDArray[Any]: ...

zeros = empty

def default_pager() -> Pager: ...
def set_default(budget: Pager | _Size) -> Pager: ...

class Table:
    rows: list[dict[str, Any]]
    about: dict[str, Any]
    def __init__(self, rows: list[dict[str, Any]], about: dict[str, Any]) -> None: ...
    def __getitem__(self, name: str) -> Any: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[dict[str, Any]]: ...

class Curves(Table):
    policies: list[str]
    footprint: int
    accesses: int
    cold: int
    advice: dict[str, dict[str, Any]]
    def __getitem__(self, policy: str) -> Any: ...
    def plot(self, axes: Any = None) -> Any: ...

def sim(workload: str, *arguments: _Path, **options: Any) -> Table: ...
def mrc(
    accesses: _Path | ArrayLike,
    *,
    page_size: int = 4096,
    policies: str | Sequence[str] = "mglru",
    baselines: str | Sequence[str] | None = "strict-lru,opt",
    points: int = 24,
    advise: float | None = None,
    **options: Any,
) -> Curves: ...
