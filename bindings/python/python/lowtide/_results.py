"""What budgets answer: results with names. Each is also a mapping, so ``dict(result)`` and
``result["name"]`` work."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import NamedTuple


class _Named(Mapping):
    """A mapping of the fields of a dataclass."""

    __slots__ = ()

    def __getitem__(self, name):
        if isinstance(name, str) and name in self.__dataclass_fields__:
            return getattr(self, name)
        raise KeyError(name)

    def __iter__(self):
        return (field.name for field in fields(self))

    def __len__(self):
        return len(fields(self))


class Stat(Mapping):
    """Counters: those of the kernel's ``memory.stat`` by its names, and lowtide's own.
    ``stat.pgfault`` is ``stat["pgfault"]``."""

    __slots__ = ("_counters",)

    def __init__(self, counters):
        self._counters = dict(counters)

    def __getattr__(self, name):
        if name != "_counters" and name in self._counters:
            return self._counters[name]
        raise AttributeError(f"there is no counter {name!r}: {', '.join(self)}"
                             if name[:1] != "_" else name)

    def __getitem__(self, name):
        return self._counters[name]

    def __iter__(self):
        return iter(self._counters)

    def __len__(self):
        return len(self._counters)

    def __dir__(self):
        return [*super().__dir__(), *self]

    def __reduce__(self):
        return Stat, (self._counters,)

    def __repr__(self):
        found = ", ".join(f"{name}={value}" for name, value in self.items() if value)
        return f"lowtide.Stat({found})"


@dataclass(frozen=True, slots=True, eq=False)
class PressureLine(_Named):
    """How much of the time is lost: shares of the last 10, 60 and 300 seconds, and seconds in
    all."""

    avg10: float
    avg60: float
    avg300: float
    total: float


@dataclass(frozen=True, slots=True, eq=False)
class Pressure(_Named):
    """Time lost by waiting for memory: by ``some`` threads, by all (``full``), and by sleeping
    over a limit (``throttle``)."""

    some: PressureLine
    full: PressureLine
    throttle: PressureLine

    def __post_init__(self):
        for name in self:
            object.__setattr__(self, name, PressureLine(**getattr(self, name)))


class CurvePoint(NamedTuple):
    """A size, and the accesses that would miss with it."""

    bytes: int
    misses: float


@dataclass(frozen=True, slots=True, eq=False)
class Curve(_Named):
    """How many accesses would miss at other sizes: ``points``, and what they were computed from.
    ``first_accesses`` miss at any size, ``missed`` did at the size there was; ``error`` is a share
    of the accesses."""

    accesses: int
    first_accesses: int
    missed: int
    error: float
    seconds: float
    footprint_bytes: int
    points: tuple

    def __post_init__(self):
        object.__setattr__(self, "points", tuple(CurvePoint(*point) for point in self.points))


@dataclass(frozen=True, slots=True, eq=False)
class AutoStat(_Named):
    """What became of a limit that sets itself: sizes in bytes, ``waited`` in seconds."""

    limit: int
    least: int
    most: int
    mean: int
    mean_usage: int
    grown: int
    shrunk: int
    refaults: int
    waited: float
    stall_share: float


@dataclass(frozen=True, slots=True, eq=False)
class Limits(_Named):
    """The limits of a tenant in bytes; ``None`` where there is none."""

    min: int
    low: int
    high: int | None
    max: int | None


for _kind in (Stat, PressureLine, Pressure, CurvePoint, Curve, AutoStat, Limits):
    _kind.__module__ = "lowtide"
