"""Tables in Arrow's IPC format and in Parquet, read through a budget by pyarrow and polars. Neither
maps the file: a view is the file object that they read from, and what is read again is in memory.
Arguments: an IPC file and a Parquet file of the columns `key` and `value`, the budget."""

import sys

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import lowtide

ipc, parquet, budget = sys.argv[1:]
pager = lowtide.Pager(budget)

with lowtide.open(ipc, budget=pager) as view:
    batches = pa.ipc.open_file(view)
    total = 0
    for number in range(batches.num_record_batches):
        total += pc.sum(batches.get_batch(number)["value"]).as_py()
    print("ipc", total)

with lowtide.open(parquet, budget=pager) as view:
    file = pq.ParquetFile(view)
    total = 0
    for batch in file.iter_batches(columns=["value"]):
        total += pc.sum(batch["value"]).as_py()
    print("parquet", total)
    usage = pager.usage

try:
    import polars as pl
except ImportError:
    print("polars is not installed")
else:
    with lowtide.open(parquet, budget=pager) as view:
        table = pl.read_parquet(view, columns=["key", "value"])
        print("polars", table.filter(pl.col("key") == 3)["value"].sum())
print(usage)
