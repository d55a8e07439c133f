"""A loader of samples with worker processes: torch's, or one of numpy's arrays in the manner of
torch's where that is not installed. The data is larger than the budget, which all workers share.
Arguments: a file of rows of 128 floats, the budget, the workers.
"""

import multiprocessing
import sys

import numpy as np

import lowtide

BATCH = 512


class Samples:
    """A dataset: a worker gets it by fork or in a pickle, and opens the file for itself."""

    def __init__(self, path, budget):
        self.view = lowtide.open(path, budget=budget, page_size=512)

    def __len__(self):
        return len(self.view) // 512

    def __getitems__(self, ids):
        return self.view.rows(ids, "f4", 128)


def as_they_are(rows):
    """A batch is an array already."""
    return rows


def with_torch(samples, method, workers):
    from torch.utils.data import DataLoader

    return DataLoader(
        samples,
        BATCH,
        shuffle=True,
        num_workers=workers,
        multiprocessing_context=method,
        collate_fn=as_they_are,
    )


def load(job):
    samples, ids = job
    return samples.__getitems__(ids)


def with_numpy(samples, method, workers):
    order = np.random.default_rng(1).permutation(len(samples))
    parts = np.array_split(order, -(-len(samples) // BATCH))
    with multiprocessing.get_context(method).Pool(workers) as pool:
        yield from pool.imap_unordered(load, [(samples, ids) for ids in parts])


def main():
    path, budget, workers = sys.argv[1], sys.argv[2], int(sys.argv[3])
    samples = Samples(path, budget)
    try:
        import torch  # noqa: F401

        batches = with_torch
    except ImportError:
        batches = with_numpy
    for method in ("fork", "forkserver", "spawn"):
        count, total = 0, 0.0
        for rows in batches(samples, method, workers):
            count, total = count + len(rows), total + float(rows.sum(dtype=np.float64))
        print(method, count, round(total, 3))


if __name__ == "__main__":
    main()
