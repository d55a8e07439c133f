"""A vector index of usearch or faiss that is larger than its memory. Both map the file in C++;
`adopt` takes the map over. Arguments: `usearch` or `faiss`, the index file, a file of queries (rows
of 128 floats), the budget."""

import sys

import numpy as np

import lowtide

library, path, queries, budget = sys.argv[1:]
queries = np.fromfile(queries, "f4").reshape(-1, 128)

if library == "usearch":
    from usearch.index import Index

    index = Index.restore(path, view=True)
    search = lambda: index.search(queries, 1).keys
else:
    import faiss

    index = faiss.read_index(path, faiss.IO_FLAG_MMAP_IFC)
    index.nprobe = 4
    search = lambda: index.search(queries, 1)[1]

with lowtide.adopt(path, budget=budget) as adoption:
    found = search()
    print(found.ravel().tolist(), adoption.resident)
