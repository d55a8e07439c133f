"""Batches of tokens, as programs that train language models read them. The function has no new
line; numpy's name stands for lowtide's. Arguments: a file of two-byte tokens, the budget."""

import sys

import numpy as np

import lowtide

path, budget = sys.argv[1:]
lowtide.patch(budget=budget)                                  # the only new line of the program

BLOCK, BATCH = 256, 32
random = np.random.default_rng(1)


def get_batch():
    # Made again for every batch, as the programs do that would fill the memory otherwise.
    data = np.memmap(path, dtype=np.uint16, mode="r")
    ix = random.integers(0, len(data) - BLOCK, BATCH)
    x = np.stack([data[i : i + BLOCK].astype(np.int64) for i in ix])
    y = np.stack([data[i + 1 : i + 1 + BLOCK].astype(np.int64) for i in ix])
    return x, y


for _ in range(100):
    x, y = get_batch()
    assert np.array_equal(x[:, 1:], y[:, :-1])
data = np.memmap(path, dtype=np.uint16, mode="r")
print(type(data).__name__, x.shape, data.budget.usage)
