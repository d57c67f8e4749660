"""The options of ``barnabas pipeline run changes``: topics of changes as a table that is up to date."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.cli.console import UsageError
from barnabas.cli.pipeline_lake import ValueOptions, usage_errors

if TYPE_CHECKING:
    from barnabas.cli.arguments import ArgumentParser
    from barnabas.spark.pipelines.change_keys import KeyFormat
    from barnabas.spark.pipelines.changes import ChangesConfig
    from barnabas.spark.pipelines.config import PipelineConfig

CHANGES_OPTIONS: Final = ("envelope", "key", "keys")
KEYS: Final = ("text", "json", "connect", "avro", "protobuf")


def add_changes_options(parser: ArgumentParser) -> None:
    changes = parser.add_argument_group("changes")
    changes.add_argument(
        "--envelope",
        choices=("debezium", "none"),
        default="debezium",
        help="what values are: Debezium's envelopes, or rows (a null value deletes); debezium if left out",
    )
    changes.add_argument(
        "--key", metavar="COLUMNS", help="key columns, separated by commas; the key of the record if left out"
    )
    changes.add_argument(
        "--keys", choices=KEYS, help="what the keys of records are, for tombstones; as --values if left out"
    )


def changes_config(
    pipeline: PipelineConfig, *, envelope: str, key: str | None, keys: str | None, values: ValueOptions
) -> ChangesConfig:
    """From the options; `UsageError` says what is wrong with them."""
    if not values.topics:
        raise UsageError("changes needs a --topic")
    if values.values == "raw":
        raise UsageError("changes needs --values: json, connect, avro or protobuf")
    columns = tuple(one.strip() for one in key.split(",")) if key else ()
    with usage_errors():
        from barnabas.spark.pipelines.change_envelopes import ENVELOPES
        from barnabas.spark.pipelines.change_keys import KeyFormat
        from barnabas.spark.pipelines.changes import ChangesConfig, json_rows
        from barnabas.spark.pipelines.lake_values import ddl_of

        chosen = ENVELOPES[envelope]()
        is_plain = values.values == "json" and values.registry is None and values.schema is not None
        return ChangesConfig(
            pipeline,
            tuple(values.topics),
            values.table,
            schemas=json_rows(ddl_of(values.schema or ""), chosen) if is_plain else values.schemas(),
            key=columns,
            keys=_key_format(keys, values) if columns else KeyFormat(),
            envelope=chosen,
        )


def _key_format(keys: str | None, values: ValueOptions) -> KeyFormat:
    from barnabas.spark.pipelines.change_keys import KeyFormat
    from barnabas.spark.pipelines.connect_schemas import ConnectSchemas
    from barnabas.spark.pipelines.registry_schemas import RegistrySchemas

    kind = keys or values.values
    registry = values.registry_config()
    if kind == "connect":
        return KeyFormat(kind, ConnectSchemas())
    if kind in {"text", "json"} and (registry is None or keys is not None):
        return KeyFormat(kind)
    if registry is None:
        raise UsageError(f"--keys: schemas of {kind} keys come from a --registry; are the keys text or json?")
    return KeyFormat(kind, RegistrySchemas(kind, registry))
