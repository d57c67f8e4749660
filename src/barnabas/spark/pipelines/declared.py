"""Helpers for the transformations of a declared project, which ``barnabas pipeline init`` writes.

A transformation of Spark Declarative Pipelines is a function that returns a DataFrame. These functions make the frames
that a topic needs, and work in a classic session as well as under Spark Connect:

    @dp.table
    def order_records():
        orders = with_json(read_topics(spark, "order_records", "orders"), "id bigint, total double")
        return expect(orders, {"id is missing": "record.id is not null", "total is negative": "record.total >= 0"})

    @dp.materialized_view
    def orders():
        return usable(spark.read.table("order_records")).select("timestamp", "record.*")

Spark's own pipelines have no expectations. Here an expectation is a condition with a reason: a row that does not meet
it stays in the table, with the reason in the column ``problem``, and appears in the dead letters.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from barnabas.clients.common.blocking_client import ClientError
from barnabas.spark.pipelines.config import SOURCE_FORMAT, PipelineConfig
from barnabas.spark.pipelines.dead_letter import ORIGIN, PROBLEM, dead_letters
from barnabas.spark.pipelines.json_records import CORRUPT, NOT_JSON, is_unreadable, json_struct
from barnabas.spark.pipelines.topics import ensure_topics, source_options

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

logger = logging.getLogger(__name__)

SOURCE_PREFIX: Final = "spark.barnabas.source."
"""Settings of the project with this prefix are options of the source."""
DEAD_LETTER_TOPIC: Final = "spark.barnabas.dead.letter.topic"
RECORD: Final = "record"
"""The column that `with_json` adds."""
CONFIG: Final = PipelineConfig(out="")
"""The settings of roll-ups: the defaults of the pipelines."""
_BOOTSTRAP: Final = "kafka.bootstrap.servers"
_LOOKUP_TIMEOUT_MS: Final = "10000"


def options_of(spark: SparkSession) -> dict[str, str]:
    """Returns the options of the source that the project sets."""
    settings = spark.conf.getAll
    return {
        name.removeprefix(SOURCE_PREFIX): value for name, value in settings.items() if name.startswith(SOURCE_PREFIX)
    }


def read_topics(spark: SparkSession, table: str, *topics: str) -> DataFrame:
    """Returns the records of topics as a stream, with the source's columns and an empty column ``problem``.

    Offsets are committed to the group ``barnabas-pipeline-TABLE``, so that any tool shows the table's lag.

    Topics that do not exist are created, if the cluster allows it. That needs the broker; a dry run does not, so an
    unreachable broker is only logged here, and the run itself reports it.
    """
    from pyspark.sql import functions as sf

    given = options_of(spark)
    config = PipelineConfig(out="", bootstrap_servers=given.get(_BOOTSTRAP, CONFIG.bootstrap_servers))
    options = {**source_options(table, topics, config), **given}
    try:
        ensure_topics({"kafka.default.api.timeout.ms": _LOOKUP_TIMEOUT_MS, **options}, topics)
    except ClientError as error:
        logger.warning("%s cannot be reached: %s", options[_BOOTSTRAP], error)
    stream = spark.readStream.format(SOURCE_FORMAT).options(**options).load()
    return stream.withColumn(PROBLEM, sf.lit(None).cast("string"))


def with_json(rows: DataFrame, schema: str) -> DataFrame:
    """Adds the column ``record``: the value, parsed with a schema. A value that cannot be parsed is a problem."""
    from pyspark.sql import functions as sf

    added = rows.withColumn(RECORD, json_struct(schema))
    unreadable = sf.when(is_unreadable(sf.col(RECORD)), sf.lit(NOT_JSON))
    problem = sf.when(sf.col("value").isNull(), sf.lit("no value")).otherwise(unreadable)
    judged = added.withColumn(PROBLEM, sf.coalesce(PROBLEM, problem))
    return judged.withColumn(RECORD, sf.col(RECORD).dropFields(CORRUPT))


def expect(rows: DataFrame, expectations: Mapping[str, str | Column]) -> DataFrame:
    """Sets ``problem`` of each row to the first expectation that it does not meet, if there is no problem yet.

    Keys are reasons, values are conditions. A condition that is null counts as not met.
    """
    from pyspark.sql import functions as sf

    unmet = [
        sf.when(~sf.coalesce(sf.expr(condition) if isinstance(condition, str) else condition, sf.lit(False)), reason)
        for reason, condition in expectations.items()
    ]
    return rows.withColumn(PROBLEM, sf.coalesce(PROBLEM, *unmet))


def usable(rows: DataFrame) -> DataFrame:
    """Returns the rows without a problem."""
    from pyspark.sql import functions as sf

    return rows.where(sf.col(PROBLEM).isNull())


def dead_letter_topic(spark: SparkSession) -> str | None:
    """Returns the topic for dead letters; None if the project names none."""
    return spark.conf.get(DEAD_LETTER_TOPIC, "") or None


def sink_options(spark: SparkSession, topic: str) -> dict[str, str]:
    """Returns the options of a sink to a topic of the same cluster."""
    client = {name: value for name, value in options_of(spark).items() if name.startswith("kafka.")}
    return {_BOOTSTRAP: CONFIG.bootstrap_servers, **client, "topic": topic}


def dead_letter_records(rows: DataFrame) -> DataFrame:
    """Returns the rows with a problem as records: key and value as they came, and origin and reason as headers."""
    from pyspark.sql import functions as sf

    def header(name: str) -> Column:
        return sf.struct(sf.lit(name).alias("key"), sf.col(name).cast("string").cast("binary").alias("value"))

    headers = sf.array(*(header(name) for name in (*ORIGIN[:3], "reason")))
    return dead_letters(rows).select("key", "value", headers.alias("headers"))
