"""The program of a cluster's user: reads a topic in a batch and in a stream, and says what it saw as JSON.

It runs in a process of its own: ``python cluster_program.py MASTER BOOTSTRAP TOPIC DIRECTORY``, where MASTER may be a
Spark Connect server (``sc://HOST:PORT``). Nothing is given to the
executors but the package that is installed there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession


def whereabouts(batches: Iterator[Any]) -> Iterator[Any]:
    """Where an executor has the package from.

    An executor is known by the process that its workers come from. Their directory is that of the session under Spark
    Connect, on all executors.
    """
    import os

    import pandas as pd

    import barnabas

    for _ in batches:
        yield pd.DataFrame({"executor": [os.getppid()], "package": [barnabas.__file__]})


def main() -> None:
    master, bootstrap_servers, topic, directory = sys.argv[1:]
    builder = SparkSession.builder
    if master.startswith("sc://"):
        spark = builder.remote(master).getOrCreate()
    else:
        settings: dict[str, bool | float | int | str | None] = {
            "spark.driver.host": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.local.dir": str(Path(directory) / "local"),
        }
        spark = builder.master(master).config(map=settings).getOrCreate()
    options = {"kafka.bootstrap.servers": bootstrap_servers, "subscribe": topic}
    table = str(Path(directory) / "table")
    batch = spark.read.format("barnabas").options(**options).load()
    query = (
        spark.readStream.format("barnabas")
        .options(**options, startingOffsets="earliest", maxOffsetsPerTrigger="600")
        .load()
        .writeStream.format("parquet")
        .option("checkpointLocation", str(Path(directory) / "checkpoint"))
        .trigger(availableNow=True)
        .start(table)
    )
    query.awaitTermination()
    streamed = spark.read.parquet(table)
    places = spark.range(0, 40, 1, 4).mapInPandas(whereabouts, "executor int, package string").distinct().collect()
    found = {
        "batch": batch.count(),
        "distinct": batch.select("partition", "offset").distinct().count(),
        "streamed": streamed.count(),
        "streamed distinct": streamed.select("partition", "offset").distinct().count(),
        "executors": sorted({row.executor for row in places}),
        "packages": sorted({row.package for row in places}),
    }
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
