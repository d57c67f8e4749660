"""Who uses what, who was throttled, and the traffic that quota-advice and quota-dry-run work on."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from barnabas.common.topic_names import QUOTA_USAGE_TOPIC
from barnabas.spark.pipelines.declared import read_topics, usable
from barnabas.spark.pipelines.json_records import parse_json
from barnabas.spark.pipelines.quotas import (
    TRAFFIC,
    USAGE_RECORDS,
    charged_requests,
    tenants_by_minute,
    traffic_of,
    usage_rows,
)

spark = SparkSession.active()


def charged() -> DataFrame:
    return traffic_of(charged_requests(usable(spark.read.table("request_log"))))


@dp.table
def quota_usage() -> DataFrame:
    return parse_json(read_topics(spark, "quota_usage", QUOTA_USAGE_TOPIC), {"usage": USAGE_RECORDS})


@dp.materialized_view
def usage() -> DataFrame:
    return usage_rows(usable(spark.read.table("quota_usage")).select("usage.*"))


@dp.materialized_view
def traffic() -> DataFrame:
    return charged().select(*TRAFFIC.column_names)


@dp.materialized_view
def tenants_1m() -> DataFrame:
    return tenants_by_minute(charged())
