"""The program of a user of Spark Connect: writes to a topic and reads it, and prints what it saw as JSON.

It runs in a process of its own, because a process has either kind of session:
``python connect_source_program.py BOOTSTRAP TOPIC``.
"""

from __future__ import annotations

import json
import os
import sys

import barnabas.spark  # before the session: workers use this interpreter


def main() -> None:
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from pyspark.sql import SparkSession
    from pyspark.sql.functions import spark_partition_id

    bootstrap_servers, topic = sys.argv[1:]
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    barnabas.spark.register(spark)
    options = {"kafka.bootstrap.servers": bootstrap_servers}
    made = spark.range(100).selectExpr("CAST(id AS STRING) AS value")
    made.write.format("barnabas").options(**options, topic=topic).save()
    rows = spark.read.format("barnabas").options(**options, subscribe=topic, targetPartitions="3").load()
    found: dict[str, object] = {"rows": rows.count(), "tasks": rows.select(spark_partition_id()).distinct().count()}
    try:
        spark.read.format("barnabas").options(bootstrapServers=bootstrap_servers, subscribe=topic).load().count()
    except Exception as error:  # noqa: BLE001 - its text is what counts
        found["error"] = str(error)
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
