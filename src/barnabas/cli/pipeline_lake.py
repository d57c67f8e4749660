"""The options of ``barnabas pipeline run lake``: topics, table and value format."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

from barnabas.cli.console import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from barnabas.cli.arguments import ArgumentParser
    from barnabas.spark.pipelines.changes import ChangesConfig
    from barnabas.spark.pipelines.config import PipelineConfig
    from barnabas.spark.pipelines.lake import LakeConfig
    from barnabas.spark.pipelines.lake_values import ValueFormat, ValueSettings
    from barnabas.spark.pipelines.progress import ProgressDisplay
    from barnabas.spark.pipelines.registry_schemas import Reader
    from barnabas.spark.pipelines.schema_registry import RegistryConfig
    from barnabas.spark.pipelines.value_schemas import ValueSchemas

VALUES: Final = ("raw", "json", "connect", "avro", "protobuf")


@dataclass(frozen=True, slots=True)
class ValueOptions:
    """The options that say which topics become a table, and what their values are."""

    topics: list[str]
    table: str | None
    values: str
    schema: str | None
    message: str | None
    registry_header: bool
    registry: str | None
    registry_options: list[str]
    reader_schema: str | None
    subject: str | None

    def registry_config(self) -> RegistryConfig | None:
        from barnabas.spark.pipelines.schema_registry import RegistryConfig

        if self.registry is None:
            if self.registry_options:
                raise UsageError("--registry-option is for a --registry")
            return None
        return RegistryConfig(self.registry, dict(pair(one, "--registry-option") for one in self.registry_options))

    def reader(self) -> Reader | None:
        from barnabas.spark.pipelines.registry_schemas import Reader

        if self.reader_schema is None:
            if self.subject is not None:
                raise UsageError("--subject is for a --reader-schema")
            return None
        # The subject that serializers use unless they are told otherwise.
        subject = self.subject or (f"{self.topics[0]}-value" if len(self.topics) == 1 else None)
        return Reader(self.reader_schema, subject)

    def settings(self) -> ValueSettings:
        from barnabas.spark.pipelines.lake_values import ValueSettings

        return ValueSettings(
            self.values,
            self.schema,
            self.message,
            confluent=self.registry_header,
            registry=self.registry_config(),
            reader=self.reader(),
        )

    def schemas(self) -> ValueSchemas:
        from barnabas.spark.pipelines.lake_values import schemas_of

        return schemas_of(self.settings())

    def value_format(self) -> ValueFormat:
        from barnabas.spark.pipelines.lake_values import value_format

        return value_format(self.settings())


VALUE_OPTIONS: Final = tuple(one.name for one in fields(ValueOptions))


def add_lake_options(parser: ArgumentParser) -> None:
    lake = parser.add_argument_group("lake and changes")
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
    lake.add_argument("--registry", metavar="URL", help="a schema registry, which has the schemas of the values")
    lake.add_argument(
        "--registry-option",
        dest="registry_options",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="of the registry, such as basic.auth.user.info=${env:LOGIN} or api=apicurio",
    )
    lake.add_argument(
        "--reader-schema",
        metavar="SCHEMA",
        help="avro: read all values with the latest or the first version of their subject, or with an id of a schema",
    )
    lake.add_argument("--subject", metavar="NAME", help="the subject of the reader schema; default: TOPIC-value")


@contextmanager
def usage_errors() -> Iterator[None]:
    """Turns errors in settings into errors of the command."""
    from barnabas.common.errors import InvalidConfigurationError
    from barnabas.spark.pipelines.value_schemas import ValueFormatError

    try:
        yield
    except (ValueError, ValueFormatError, InvalidConfigurationError) as error:
        raise UsageError(str(error)) from None
    except ImportError as error:
        raise UsageError(f"{error.name} is missing: pip install 'barnabas[lake]'") from None


def lake_config(pipeline: PipelineConfig, values: ValueOptions) -> LakeConfig:
    """From the options; `UsageError` says what is wrong with them."""
    if not values.topics:
        raise UsageError("lake needs a --topic")
    with usage_errors():
        from barnabas.spark.pipelines.lake import LakeConfig

        return LakeConfig(pipeline, tuple(values.topics), values.table, values.value_format())


def pair(text: str, option: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(f"{option}: {text!r} is not KEY=VALUE")
    return key, value


def run_topic_table(
    spark: SparkSession, config: LakeConfig | ChangesConfig, display: ProgressDisplay, stop: threading.Event
) -> None:
    from barnabas.spark.pipelines import changes, lake
    from barnabas.spark.pipelines.runner import watch_and_stop

    name = config.query_name
    display.note(name, "starting")
    query = lake.build(spark, config) if isinstance(config, lake.LakeConfig) else changes.build(spark, config)
    watch_and_stop(query, name, display, stop)
    display.note(name, f"done: {config.location}")
