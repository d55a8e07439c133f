"""``lowtide.empty``: arrays without a file, larger than their memory.

Pages that are not used are compressed within the budget; with a pager that
has a ``swap_dir`` they are written to a file there that has no name. The runtime serves the page
faults of this memory.

**fork.** A child does not have the memory: a touch there is ``SIGSEGV``, and making a new view of
it a ``BufferError``. Make such arrays in the process that uses them, or start workers by ``spawn``
or ``forkserver``, which get a copy by pickling.
"""

import math

import numpy as np

from . import _budget
from ._lowtide import Memory, Pager, Tenant


@_budget.takes_budget
def empty(shape, dtype=float, order="C", *, budget=None, swap_dir=None):
    """An array of zeroes that takes no memory before it is used.

    ``budget`` is a size, for which ``swap_dir`` takes the pages that do not compress; or a
    ``Pager`` or a ``Tenant``, whose pager needs ``swap`` or ``swap_dir``, or its pages stay.
    """
    if budget is None:
        raise TypeError("an array without a file needs a `budget`: a size, a Pager or a Tenant")
    if not isinstance(budget, (Pager, Tenant)):
        account = Pager(budget, swap="max", swap_dir=swap_dir)
    elif swap_dir is not None:
        raise TypeError("`swap_dir` is of a new budget: give a size, or make the Pager with it")
    else:
        account = budget
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
