"""Parses pushes of client telemetry (OTLP) to rows. Runs in Spark's workers, on Arrow arrays."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from barnabas.common.errors import InvalidRecordError
from barnabas.spark.pipelines.dead_letter import ORIGIN, PROBLEM
from barnabas.spark.pipelines.telemetry import POINT_COLUMNS
from barnabas.telemetry.otlp import MetricPoint, iterate_metrics

SCHEMA_VERSION: Final = "1"
HEADERS: Final = (
    "client_instance_id",
    "client_id",
    "principal",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "node_id",
    "push_interval_ms",
    "terminating",
)
"""The broker's fields about a push that the tables contain."""
PARSED: Final = (
    "topic string, partition int, offset bigint, timestamp timestamp, problem string, key binary, value_bytes binary, "
    + POINT_COLUMNS
)
_TYPES: Final = {
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "timestamp": pa.timestamp("us", "UTC"),
}


def rows_type(columns: str) -> pa.DataType:
    """Returns the Arrow type of a list of rows with columns such as ``topic string, offset bigint``.

    Spark's own function for this needs the JVM, which a worker does not have.
    """
    parts = [column.strip().split(" ") for column in columns.split(",")]
    return pa.list_(pa.struct([pa.field(name, _TYPES[kind]) for name, kind in parts]))


ROWS: Final = rows_type(PARSED)
_PUSHES_PER_PART: Final = 256


def parse_pushes(pushes: pa.Array) -> pa.Array:
    """Returns a list of rows for each push: a row for each value, or one row with the reason why it is unreadable."""
    # A push has dozens of values, so only a part of the rows exists as Python objects at a time.
    parts = [
        _parse_part(pushes.slice(start, _PUSHES_PER_PART).to_pylist())
        for start in range(0, len(pushes), _PUSHES_PER_PART)
    ]
    return pa.concat_arrays(parts) if parts else pa.array([], ROWS)


def _parse_part(pushes: list[dict[str, Any]]) -> pa.Array:
    """Parses some pushes. If a value does not fit its column, such as a count of over 63 bits, only its push is
    unreadable: an error here would stop the pipeline at this push for good."""
    try:
        return pa.array([list(_rows_of(push)) for push in pushes], ROWS)
    except (ValueError, OverflowError) as error:
        if len(pushes) == 1:
            return pa.array([[_unreadable(pushes[0], f"a value does not fit its column: {error}")]], ROWS)
        return pa.concat_arrays([_parse_part([push]) for push in pushes])


def _rows_of(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    origin = {name: record[name] for name in ORIGIN}
    headers = {header["key"]: header["value"] for header in record["headers"] or ()}
    try:
        if record[PROBLEM] is not None:
            raise ValueError(record[PROBLEM])
        pushed_by = _read_headers(headers)
        found = list(iterate_metrics(bytes(record["value"] or b"")))
    except (ValueError, InvalidRecordError) as error:
        yield _unreadable(record, str(error))
        return
    # At least one row, so that the push counts as read.
    if not found:
        yield {**origin, **pushed_by}
    for point in found:
        yield {**origin, **pushed_by, **_columns(point)}


def _unreadable(record: dict[str, Any], reason: str) -> dict[str, Any]:
    origin = {name: record[name] for name in ORIGIN}
    return {**origin, "problem": reason, "key": record["key"], "value_bytes": record["value"]}


def _read_headers(headers: Mapping[str, bytes | None]) -> dict[str, Any]:
    def text(name: str) -> str | None:
        value = headers.get(name)
        return None if value is None else bytes(value).decode("utf-8", "replace")

    version = text("schema_version")
    if version != SCHEMA_VERSION:
        raise ValueError(f"schema_version is {version!r}, expected {SCHEMA_VERSION}")
    content = text("content_type")
    if content != "OTLP":
        raise ValueError(f"content_type is {content!r}, expected 'OTLP'")
    values: dict[str, Any] = {name: text(name) for name in HEADERS}
    for name in ("node_id", "push_interval_ms"):
        try:
            values[name] = None if values[name] is None else int(values[name])
        except ValueError:
            raise ValueError(f"{name} is {values[name]!r}, which is not a number") from None
    values["terminating"] = values["terminating"] == "true"
    return values


def _columns(point: MetricPoint) -> dict[str, Any]:
    labels = {**point.resource, **point.attributes}
    return {
        "metric": point.name,
        "kind": point.kind,
        "attributes": json.dumps(labels, sort_keys=True, default=_bytes_as_text),
        "value": None if point.value is None else float(point.value),
        "count": point.count,
        "temporality": point.temporality,
        "is_monotonic": point.is_monotonic,
        "unit": point.unit,
        "start_time": point.start_time_unix_nano // 1_000 or None,
        "time": point.time_unix_nano // 1_000 or None,
    }


def _bytes_as_text(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
