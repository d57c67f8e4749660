"""Fetched records as one Arrow table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from barnabas._kernels import columns
from barnabas.common.topic_partition import TopicPartition
from barnabas.records.columns import BINARY, BINARY_TYPES, FetchedSections, assemble_batches
from barnabas.records.columns import SCHEMA as BATCH_SCHEMA

if TYPE_CHECKING:
    from barnabas.clients.consumer.internals.consumer_core import ConsumerCore
    from barnabas.clients.consumer.internals.fetch_collector import Collected

repeat_numbers = columns.repeat_numbers

_TOPIC: Final = pa.field("topic", pa.dictionary(pa.int32(), pa.string()), nullable=False)
_PARTITION: Final = pa.field("partition", pa.int32(), nullable=False)
SCHEMA: Final = pa.schema(
    [
        _TOPIC,
        _PARTITION,
        *(BATCH_SCHEMA.field(name) for name in ("offset", "timestamp", "timestamp_type", "key", "value", "headers")),
    ]
)
"""Everything that a table of records can have."""

_INT32: Final = pa.int32()
_OF_BATCHES: Final = frozenset(BATCH_SCHEMA.names)


def record_tables(columns: Sequence[str] | None, include_headers: bool, binary_type: str) -> RecordTables:
    """The `RecordTables` for this; the same ones are asked for over and over."""
    return _record_tables(None if columns is None else tuple(columns), include_headers, binary_type)


@lru_cache(maxsize=64)
def _record_tables(columns: tuple[str, ...] | None, include_headers: bool, binary_type: str) -> RecordTables:
    return RecordTables(columns, include_headers, binary_type)


class RecordTables:
    """Which columns are wanted, and how tables of single partitions become one with them.

    What is decoded always has offsets, as positions follow from them, and never what is the same for a whole partition:
    topic and partition are put beside it here.
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
        """What there is for `assemble` now."""
        return core.collect_tables(max_records, self.decoded, self.include_headers, self.binary_type)

    def assemble(self, parts: Mapping[TopicPartition, Sequence[Any]]) -> pa.Table:
        """One table of the tables of all partitions, of which none is copied, and of sections, which are decoded here.

        To make an array costs as much as to fill it with some hundred rows. So sections that follow each other become
        one chunk for all their partitions, as topic and partition are for all rows.
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
                # Safe: arrow need not look whether there is a topic for each of them.
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


# Both without pa.array(), which looks for pandas, and where there is one takes half a second to import it.


@lru_cache(maxsize=64)
def _strings(names: tuple[str, ...]) -> pa.Array:
    encoded = [name.encode() for name in names]
    ends = np.cumsum([0, *(len(name) for name in encoded)], dtype=np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(names), buffers, 0)


def _repeated(numbers: list[int], counts: list[int]) -> pa.Array:
    rows = sum(counts)
    buffer = pa.allocate_buffer(4 * rows)
    repeat_numbers(numbers, counts, buffer)
    return pa.Array.from_buffers(_INT32, rows, [None, buffer], 0)
