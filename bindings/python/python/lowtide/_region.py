"""``lowtide.empty``: arrays without a file, larger than their memory.

What is not used is compressed within the budget; with a pager that has a ``swap_dir`` it is written
to a file there that has no name. The runtime serves the page faults of this memory.

**fork.** A child does not have the memory: a touch there is ``SIGSEGV``, and making a new view of
it a ``BufferError``. Make such arrays in the process that uses them, or start workers by ``spawn``
or ``forkserver``, which get a copy by pickling.
"""

import math

import numpy as np

from . import _budget
from ._lowtide import Memory, Pager, parse_size


def empty(shape, dtype=float, order="C", *, max=None, pager=None, tenant=None, swap_dir=None):
    """An array of zeroes that takes no memory before it is used.

    ``max`` is a budget of its own, of which ``swap_dir`` says where pages go that do not compress;
    a ``pager`` needs ``swap`` or ``swap_dir``, or its pages stay.
    """
    if max is not None and pager is None and tenant is None:
        account = Pager(parse_size(max), swap="max", swap_dir=swap_dir)
    elif swap_dir is not None:
        raise TypeError("`swap_dir` is of a new budget: give `max`, too")
    else:
        account = _budget.account(max, pager, tenant)
        if account is None:
            raise TypeError("an array without a file needs a budget: `max`, `pager` or `tenant`")
    dtype = np.dtype(dtype)
    if dtype.hasobject:
        raise TypeError("Python objects cannot leave memory")
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    count = math.prod(shape)
    if count * dtype.itemsize == 0:
        return np.empty(shape, dtype, order)
    memory = Memory(count * dtype.itemsize, account)
    return np.frombuffer(memory, dtype, count).reshape(shape, order=order)


#: The memory is zeroed in any case.
zeros = empty
