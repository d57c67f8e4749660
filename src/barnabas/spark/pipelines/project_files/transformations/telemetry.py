"""Metrics that clients push (KIP-714): points, and roll-ups by minute and hour."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from barnabas.common.topic_names import CLIENT_TELEMETRY_TOPIC
from barnabas.spark.pipelines.declared import CONFIG, read_topics, usable
from barnabas.spark.pipelines.rollup import HOUR, merge_rows
from barnabas.spark.pipelines.telemetry import KEYS, by_minute, parse, points_of

spark = SparkSession.active()


def pushed_points() -> DataFrame:
    return points_of(usable(spark.read.table("client_telemetry")))


@dp.table
def client_telemetry() -> DataFrame:
    return parse(read_topics(spark, "client_telemetry", CLIENT_TELEMETRY_TOPIC), CONFIG)


@dp.materialized_view
def points() -> DataFrame:
    return pushed_points()


@dp.materialized_view
def metrics_1m() -> DataFrame:
    return by_minute(pushed_points(), CONFIG)


@dp.materialized_view
def metrics_1h() -> DataFrame:
    return merge_rows(by_minute(pushed_points(), CONFIG), KEYS, HOUR)
