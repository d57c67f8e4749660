"""Parses records of ``__request_log`` for the pipelines ``requests`` and ``quotas``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.common.topic_names import REQUEST_LOG_TOPIC
from barnabas.spark.pipelines.json_records import JsonRecords

if TYPE_CHECKING:
    from pyspark.sql import Column

VERSION: Final = 1
SCHEMA: Final = (
    "schema_version int, node_id int, sample_rate double, api string, api_key int, api_version int, "
    "correlation_id int, client_id string, client_software_name string, client_software_version string, "
    "principal string, listener string, security_protocol string, client_address string, connection_id string, "
    "forwarded boolean, request_bytes bigint, response string, response_bytes bigint, start_time_us bigint, "
    "request_dequeue_time_us bigint, api_local_complete_time_us bigint, response_complete_time_us bigint, "
    "response_dequeue_time_us bigint, end_time_us bigint, callback_time_us bigint, throttle_time_ms bigint, "
    "errors map<string, int>"
)
REQUIRED: Final = (
    "node_id",
    "sample_rate",
    "api",
    "principal",
    "connection_id",
    "start_time_us",
    "request_dequeue_time_us",
    "api_local_complete_time_us",
    "response_complete_time_us",
    "response_dequeue_time_us",
    "end_time_us",
)
PARTS: Final = ("queue", "local", "remote", "response_queue", "send", "total", "throttle")
"""The parts of a request's time. The first five add up to the total. ``throttle`` is the throttle time that follows
it."""


def _wrong_rate(record: Column) -> Column:
    from pyspark.sql import functions as sf

    rate = record["sample_rate"]
    return sf.when((rate <= 0) | (rate > 1), sf.lit("sample_rate is not between 0 and 1"))


REQUEST_RECORDS: Final = JsonRecords(REQUEST_LOG_TOPIC, SCHEMA, VERSION, REQUIRED, _wrong_rate)


def duration_ms(part: str) -> Column:
    """Returns one of the `PARTS` of a row with the columns of `SCHEMA`, in milliseconds.

    Work after a wait (``callback_time_us``) counts as local time, although it lies between T2 and T3.
    """
    from pyspark.sql import functions as sf

    callback = sf.coalesce(sf.col("callback_time_us"), sf.lit(0))

    def between(start: str, end: str) -> Column:
        return sf.col(end) - sf.col(start)

    waited = between("api_local_complete_time_us", "response_complete_time_us") - callback
    microseconds = {
        "queue": between("start_time_us", "request_dequeue_time_us"),
        "local": between("request_dequeue_time_us", "api_local_complete_time_us") + callback,
        "remote": sf.greatest(waited, sf.lit(0)),
        "response_queue": between("response_complete_time_us", "response_dequeue_time_us"),
        "send": between("response_dequeue_time_us", "end_time_us"),
        "total": between("start_time_us", "end_time_us"),
        "throttle": sf.coalesce(sf.col("throttle_time_ms"), sf.lit(0)) * 1_000,
    }
    return microseconds[part] / 1_000.0
