"""Builds one Arrow table from fetched records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from barnabas.common.topic_partition import TopicPartition
from barnabas.records.columns.arrow import BINARY, BINARY_TYPES, FetchedSections, assemble_batches
from barnabas.records.columns.arrow import SCHEMA as BATCH_SCHEMA

if TYPE_CHECKING:
    from barnabas.clients.consumer.internals.consumer_core import ConsumerCore
    from barnabas.clients.consumer.internals.fetch_collector import Collected

_TOPIC: Final = pa.field("topic", pa.dictionary(pa.int32(), pa.string()), nullable=False)
_PARTITION: Final = pa.field("partition", pa.int32(), nullable=False)
SCHEMA: Final = pa.schema(
    [
        _TOPIC,
        _PARTITION,
        *(BATCH_SCHEMA.field(name) for name in ("offset", "timestamp", "timestamp_type", "key", "value", "headers")),
    ]
)
"""All columns that a table of records can have."""

_INT32: Final = pa.int32()
_OF_BATCHES: Final = frozenset(BATCH_SCHEMA.names)


def record_tables(columns: Sequence[str] | None, include_headers: bool, binary_type: str) -> RecordTables:
    """Returns the `RecordTables` for these arguments, cached because they repeat."""
    return _record_tables(None if columns is None else tuple(columns), include_headers, binary_type)


@lru_cache(maxsize=64)
def _record_tables(columns: tuple[str, ...] | None, include_headers: bool, binary_type: str) -> RecordTables:
    return RecordTables(columns, include_headers, binary_type)


class RecordTables:
    """Selects columns, and merges the tables of single partitions.

    Decoded tables always have offsets, because positions depend on them, and never constants of a whole partition:
    topic and partition are added here.
    """

    def __init__(self, columns: Sequence[str] | None, include_headers: bool, binary_type: str = BINARY) -> None:
        if columns is None:
            names = [name for name in SCHEMA.names if include_headers or name != "headers"]
        else:
            names = list(columns)
            if unknown := [name for name in names if name not in SCHEMA.names]:
                raise ValueError(f"there is no column {', '.join(unknown)}: there are {', '.join(SCHEMA.names)}")
            if len(set(names)) != len(names):
                raise ValueError("a column is named twice")
            if include_headers and "headers" not in names:
                names.append("headers")
        if binary_type not in BINARY_TYPES:
            raise ValueError(f"there is no binary type {binary_type}: there are {', '.join(BINARY_TYPES)}")
        kind = BINARY_TYPES[binary_type]
        fields = [SCHEMA.field(name) for name in names]
        self.schema = pa.schema(
            [field.with_type(kind) if pa.types.is_binary(field.type) else field for field in fields]
        )
        self._kinds = {field.name: field.type for field in self.schema}
        decoded = [name for name in names if name in _OF_BATCHES]
        self.decoded: tuple[str, ...] = tuple(decoded if "offset" in decoded else ["offset", *decoded])
        self._places = {name: place for place, name in enumerate(self.decoded)}
        self.include_headers = "headers" in names
        self.binary_type = binary_type

    def collect(self, core: ConsumerCore, max_records: int | None) -> Collected:
        """Returns the available input of `assemble`."""
        return core.collect_tables(max_records, self.decoded, self.include_headers, self.binary_type)

    def assemble(self, parts: Mapping[TopicPartition, Sequence[Any]]) -> pa.Table:
        """Merges the tables of all partitions without a copy, and sections, which are decoded here.

        Making an array costs as much as filling it with some hundred rows. So consecutive sections become one chunk for
        all their partitions, and topic and partition are made once for all rows.
        """
        placed = [(partition, part) for partition, some in parts.items() for part in some]
        if not placed:
            return self.schema.empty_table()
        counts: list[int] = []
        batches: list[pa.RecordBatch] = []
        for kind, some in groupby([part for _, part in placed], type):
            found = list(some)
            if kind is FetchedSections:
                counts += [part.records for part in found]
                batches += assemble_batches(found)
            else:
                counts += [part.num_rows for part in found]
                batches += [batch for table in found for batch in table.to_batches()]
        decoded = batches[0].columns if len(batches) == 1 else None
        columns: list[Any] = []
        for name, kind in self._kinds.items():
            if name == "topic":
                names = dict.fromkeys([partition.topic for partition, _ in placed])
                topics = {topic: index for index, topic in enumerate(names)}
                rows = _repeated([topics[partition.topic] for partition, _ in placed], counts)
                # Safe: Arrow need not check that each index has a topic.
                columns.append(pa.DictionaryArray.from_arrays(rows, _strings(tuple(topics)), safe=False))
            elif name == "partition":
                columns.append(_repeated([partition.partition for partition, _ in placed], counts))
            else:
                place = self._places[name]
                columns.append(
                    pa.chunked_array([batch.column(place) for batch in batches], kind)
                    if decoded is None
                    else decoded[place]
                )
        return pa.Table.from_arrays(columns, schema=self.schema)


# Both avoid pa.array(), which imports pandas if it is installed, and that takes half a second.


@lru_cache(maxsize=64)
def _strings(names: tuple[str, ...]) -> pa.Array:
    encoded = [name.encode() for name in names]
    ends = np.cumsum([0, *(len(name) for name in encoded)], dtype=np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(names), buffers, 0)


def _repeated(numbers: list[int], counts: list[int]) -> pa.Array:
    rows = np.repeat(np.array(numbers, np.int32), counts)
    return pa.Array.from_buffers(_INT32, len(rows), [None, pa.py_buffer(rows)], 0)
