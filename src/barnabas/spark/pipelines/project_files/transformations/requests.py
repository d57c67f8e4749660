"""The request log of the brokers: where the time of requests goes, by minute and hour.

``request_log`` holds the records, each once. The other tables are computed from it with every run.
"""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from barnabas.common.topic_names import REQUEST_LOG_TOPIC
from barnabas.spark.pipelines.declared import CONFIG, read_topics, usable
from barnabas.spark.pipelines.json_records import parse_json
from barnabas.spark.pipelines.request_log import REQUEST_RECORDS
from barnabas.spark.pipelines.requests import KEYS, counts_by_minute, latency_by_minute
from barnabas.spark.pipelines.rollup import HOUR, merge_rows

spark = SparkSession.active()


def requests() -> DataFrame:
    return usable(spark.read.table("request_log")).select("timestamp", "request.*")


@dp.table
def request_log() -> DataFrame:
    return parse_json(read_topics(spark, "request_log", REQUEST_LOG_TOPIC), {"request": REQUEST_RECORDS})


@dp.materialized_view
def latency_1m() -> DataFrame:
    return latency_by_minute(requests(), CONFIG)


@dp.materialized_view
def latency_1h() -> DataFrame:
    return merge_rows(latency_by_minute(requests(), CONFIG), KEYS, HOUR)


@dp.materialized_view
def counts_1m() -> DataFrame:
    return counts_by_minute(requests())
