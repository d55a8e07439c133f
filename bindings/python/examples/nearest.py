"""The nearest rows of a matrix that is larger than its memory, exactly, block by block. Arguments: a
file of rows of 128 floats, the budget."""

import sys

import numpy as np

import lowtide

path, budget = sys.argv[1:]
matrix = lowtide.memmap(path, "f4", "r", budget=budget).reshape(-1, 128)
queries = np.array(matrix[[5, 77, len(matrix) - 1]]) + 1e-4

best = np.full(len(queries), np.inf)
found = np.zeros(len(queries), int)
for start in range(0, len(matrix), 4096):
    block = matrix[start : start + 4096]
    far = ((queries[:, None, :] - block[None, :, :]) ** 2).sum(axis=2)
    nearest = far.argmin(axis=1)
    closer = far[np.arange(len(queries)), nearest] < best
    best[closer] = far[np.arange(len(queries)), nearest][closer]
    found[closer] = start + nearest[closer]
print(found.tolist(), matrix.resident)
