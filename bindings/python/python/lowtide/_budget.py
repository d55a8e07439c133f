"""Which budget pays where none is named."""

import os
import threading

from ._lowtide import Pager, Tenant, parse_size

_lock = threading.Lock()
_default = None


def _memory_limit():
    """Bytes of memory that this process can have: the machine's, or less by a memory cgroup."""
    limit = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        with open("/proc/self/cgroup") as lines:
            groups = [line.rstrip("\n").split(":", 2)[1:] for line in lines]
    except OSError:
        return limit
    for names, group in groups:
        if "memory" in names.split(","):
            folder, name = "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
        elif not names:
            folder, name = "/sys/fs/cgroup", "memory.max"
        else:
            continue
        # The limits of all groups around it hold, too.
        while group:
            try:
                with open(f"{folder}{group}/{name}") as text:
                    limit = min(limit, int(text.read()))
            except (OSError, ValueError):
                pass
            group = "" if group == "/" else os.path.dirname(group)
    return limit


def default_pager():
    """The pager of maps for which no budget is named, made at its first use.

    Its budget is that of ``set_default``, else ``LOWTIDE_MAX`` of the environment, else half of the
    memory that this process can have.
    """
    global _default
    with _lock:
        if _default is None or _default.closed:
            _default = Pager(os.environ.get("LOWTIDE_MAX") or _memory_limit() // 2)
        return _default


def set_default(budget):
    """Makes a pager, or a new one of this size, the default; returns it. Maps that exist keep
    their budgets."""
    global _default
    pager = budget if isinstance(budget, Pager) else Pager(budget)
    with _lock:
        _default = pager
    return pager


def account(max=None, pager=None, tenant=None, policy=None, **rest):
    """The pager or tenant that these arguments name: at most one of the first three."""
    named = [one for one in (max, pager, tenant) if one is not None]
    if len(named) > 1:
        raise TypeError("`max`, `pager` and `tenant` exclude each other: name one budget")
    if max is not None:
        return Pager(parse_size(max), policy=policy or "mglru", **rest)
    if policy is not None:
        raise TypeError("`policy` is of a new budget: give `max`, too")
    if pager is not None and not isinstance(pager, Pager):
        raise TypeError(f"`pager` is a lowtide.Pager, not {type(pager).__name__}")
    if tenant is not None and not isinstance(tenant, Tenant):
        raise TypeError(f"`tenant` is a lowtide.Tenant, not {type(tenant).__name__}")
    return named[0] if named else None
