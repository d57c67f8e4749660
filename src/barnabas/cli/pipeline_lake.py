"""The options of ``barnabas pipeline run lake``: topics, table and value format."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from barnabas.cli.console import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from barnabas.cli.arguments import ArgumentParser
    from barnabas.spark.pipelines.config import PipelineConfig
    from barnabas.spark.pipelines.lake import LakeConfig
    from barnabas.spark.pipelines.progress import ProgressDisplay

VALUES: Final = ("raw", "json", "avro", "protobuf")


def add_lake_options(parser: ArgumentParser) -> None:
    lake = parser.add_argument_group("lake")
    lake.add_argument("--topic", dest="topics", action="append", default=[], metavar="TOPIC", help="a topic to read")
    lake.add_argument("--table", metavar="NAME", help="the name of the table; default: the name of the topic")
    lake.add_argument("--values", choices=VALUES, default="raw", help="the format of the values; default: raw (bytes)")
    lake.add_argument(
        "--schema",
        metavar="SCHEMA",
        help="json: columns as Spark writes them, or a file; avro: a schema file; protobuf: a descriptor set",
    )
    lake.add_argument("--message", metavar="NAME", help="protobuf: the message, such as shop.Order")
    lake.add_argument(
        "--registry-header",
        action="store_true",
        help="values begin with the header of a schema registry; the schema is not looked up",
    )


def lake_config(
    pipeline: PipelineConfig,
    *,
    topics: list[str],
    table: str | None,
    values: str,
    schema: str | None,
    message: str | None,
    registry_header: bool,
) -> LakeConfig:
    """Makes the configuration from the options; raises `UsageError` if they are invalid."""
    from barnabas.spark.pipelines.lake import LakeConfig
    from barnabas.spark.pipelines.lake_values import ValueFormatError, value_format

    if not topics:
        raise UsageError("lake needs a --topic")
    try:
        reader = value_format(values, schema, message, confluent=registry_header)
        return LakeConfig(pipeline, tuple(topics), table, reader)
    except (ValueError, ValueFormatError) as error:
        raise UsageError(str(error)) from None
    except ImportError as error:
        raise UsageError(f"{error.name} is missing: pip install 'barnabas[lake]'") from None


def run_lake(spark: SparkSession, config: LakeConfig, display: ProgressDisplay, stop: threading.Event) -> None:
    from barnabas.spark.pipelines.lake import build
    from barnabas.spark.pipelines.runner import watch_and_stop

    name = f"lake-{config.name}"
    display.note(name, "starting")
    query = build(spark, config)
    watch_and_stop(query, name, display, stop)
    display.note(name, f"done: {config.location}")
