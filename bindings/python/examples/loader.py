"""A loader of samples with worker processes, in the manner of torch's. The data is larger than the
budget, which all workers share. Arguments: a file of rows of 128 floats, the budget, the workers.
"""

import multiprocessing
import sys

import numpy as np

import lowtide


class Samples:
    """A dataset: a worker gets it by fork or in a pickle, and opens the file for itself."""

    def __init__(self, path, budget):
        self.view = lowtide.open(path, max=budget, page=512)

    def __len__(self):
        return len(self.view) // 512

    def __getitems__(self, ids):
        return self.view.rows(ids, "f4", 128)


def work(job):
    samples, ids = job
    return float(samples.__getitems__(ids).sum(dtype="f8"))


def main():
    path, budget, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    samples = Samples(path, budget)
    order = np.random.default_rng(1).permutation(len(samples))
    jobs = [(samples, ids) for ids in np.array_split(order, 64)]
    for method in ("fork", "forkserver", "spawn"):
        with multiprocessing.get_context(method).Pool(count) as pool:
            print(method, round(sum(pool.imap_unordered(work, jobs)), 3))


if __name__ == "__main__":
    main()
