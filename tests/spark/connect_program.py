"""A script of a user of Spark Connect, run by itself: a process has either a classic session or a Connect session.

It starts a local Connect server, and prints a line of JSON with what it has seen.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import barnabas.spark  # noqa: F401 - the workers run this interpreter
from barnabas.cli.doctor_spark import examine_session
from barnabas.spark.pipelines import lake
from barnabas.spark.pipelines.config import PipelineConfig

LIMIT_S = 300


def main(bootstrap: str, topic: str, copy: str, directory: Path) -> None:
    spark = (
        SparkSession.builder.remote("local[2,4]")
        .config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
        .config("spark.connect.grpc.binding.address", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    seen: dict[str, Any] = {"session": type(spark).__module__}
    server = {"kafka.bootstrap.servers": bootstrap}
    rows = spark.createDataFrame([("1", "tea"), ("2", "cake")], "key string, value string")
    rows.write.format("barnabas").options(**server, topic=topic).mode("append").save()
    source = {**server, "subscribe": topic, "startingOffsets": "earliest"}
    read = spark.read.format("barnabas").options(**source).load()
    seen["batch"] = sorted(row["value"] for row in read.selectExpr("cast(value as string) as value").collect())
    stream = (
        spark.readStream.format("barnabas").options(**source).load().selectExpr("key", "upper(string(value)) value")
    )
    writer = stream.writeStream.format("barnabas").options(**server, topic=copy, exactlyOnce="true")
    query = writer.option("checkpointLocation", str(directory / "copy")).trigger(availableNow=True).start()
    assert query.awaitTermination(LIMIT_S)
    config = PipelineConfig(out=str(directory / "tables"), bootstrap_servers=bootstrap, once=True)
    assert lake.build(spark, lake.LakeConfig(config, (topic,))).awaitTermination(LIMIT_S)
    seen["doctor"] = {finding.step: finding.status for finding in examine_session(spark)}
    sys.stdout.write(f"{json.dumps(seen)}\n")
    sys.stdout.flush()
    spark.stop()
    os._exit(0)  # the local server would be waited for


if __name__ == "__main__":
    _, address, source_topic, target_topic, place = sys.argv[:5]
    main(address, source_topic, target_topic, Path(place))
