"""A Spark session in a process of its own, for `spark_case`: a job on each line of standard input, as JSON."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def read(spark: SparkSession, job: dict[str, Any]) -> dict[str, Any]:
    """The query makes every row and drops it; how many there were is asked after the clock has stopped."""
    loader = spark.read.format("kafka").option("kafka.bootstrap.servers", job["bootstrap"])
    rows = loader.option("subscribe", job["topic"]).load()
    started = time.perf_counter()
    rows.write.format("noop").mode("overwrite").save()
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "rows": rows.count()}


def write(spark: SparkSession, job: dict[str, Any]) -> dict[str, Any]:
    made = spark.range(0, job["records"], 1, job["partitions"])
    rows = made.selectExpr(f"lpad(id, {job['size']}, 'x') AS value")
    writer = rows.write.format("kafka").mode("append").option("kafka.bootstrap.servers", job["bootstrap"])
    started = time.perf_counter()
    writer.option("topic", job["topic"]).save()
    return {"seconds": time.perf_counter() - started}


JOBS = {"read": read, "write": write}


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="barnabas-spark-") as directory:
        spark = session(Path(directory))
        try:
            for line in sys.stdin:
                job = json.loads(line)
                try:
                    answer = JOBS[job["job"]](spark, job)
                except Exception as error:  # noqa: BLE001 - whatever it is, the other side is to hear of it
                    answer = {"error": f"{type(error).__name__}: {error}"}
                print(json.dumps(answer), flush=True)
        finally:
            spark.stop()


if __name__ == "__main__":
    main()
