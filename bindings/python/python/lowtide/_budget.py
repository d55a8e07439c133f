"""Which budget pays where none is named."""

import errno
import functools
import os
import threading
import warnings

from ._lowtide import Error, Pager, Tenant, pager_for_maps

_lock = threading.Lock()
_default = None

#: What stands for a budget where none can be had: the kernel alone keeps the map, as numpy's.
KERNEL = object()
#: Errors that say that the process, or the machine, has no more descriptors, threads or mappings.
_USED_UP = {errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM}
_said: set = set()


def is_used_up(error):
    """Whether an error says that something that a map needs is used up, so that the map is to be
    the kernel's. The first is warned of; the program goes on, as it would without a budget."""
    if isinstance(error, Error) or error.errno not in _USED_UP:
        return False
    _warn_once(
        "used up",
        "maps are left to the kernel, outside of any budget, since descriptors, threads or "
        f"mappings are used up (ulimit -n, ulimit -u, vm.max_map_count): {error}",
    )
    return True


def _warn_once(what, text):
    if what not in _said:
        _said.add(what)
        warnings.warn(text, RuntimeWarning, stacklevel=6)


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


def account(budget, make=pager_for_maps):
    """The pager or tenant that pays; one that is made for a size; None where none is named."""
    if budget is None or isinstance(budget, (Pager, Tenant)):
        return budget
    if not isinstance(budget, (int, str)) and not hasattr(budget, "__index__"):
        kind = type(budget).__name__
        raise TypeError(
            f"a budget is a size such as '2G', a lowtide.Pager or a lowtide.Tenant, not a {kind}"
        )
    return make(budget)


def account_of_map(budget):
    """As ``account``; ``KERNEL`` where there are no threads for a new pager."""
    if budget is KERNEL:
        return KERNEL
    try:
        return account(budget)
    except OSError as error:
        if is_used_up(error):
            return KERNEL
        raise


#: What arguments are that had other names, or were of another function.
_NOW = {
    **dict.fromkeys(["max", "pager", "tenant"], "`budget`: a size, a Pager or a Tenant"),
    "policy": "the Pager's: budget=lowtide.Pager(size, policy=...)",
    "page": "`page_size`",
}


def renamed(*names):
    """Makes a function say what an argument of these names is now."""

    def decorate(function):
        @functools.wraps(function)
        def checked(*args, **kwargs):
            for name in names:
                if name in kwargs:
                    raise TypeError(f"`{name}` is now {_NOW[name]}")
            return function(*args, **kwargs)

        return checked

    return decorate


#: For functions with a `budget`.
takes_budget = renamed("max", "pager", "tenant", "policy")
