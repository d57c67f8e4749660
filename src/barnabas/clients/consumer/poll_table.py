"""Fetched records as one Arrow table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from barnabas.common.topic_partition import TopicPartition

try:
    import numpy as np
    import pyarrow as pa
except ImportError as error:
    raise ImportError(
        f"poll_table needs pyarrow and numpy, and {error.name} is missing: install barnabas[arrow]", name=error.name
    ) from error

from barnabas.records.columns import SCHEMA as BATCH_SCHEMA

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

_OF_BATCHES: Final = frozenset(BATCH_SCHEMA.names)


class RecordTables:
    """Which columns are wanted, and how tables of single partitions become one with them.

    What is decoded always has offsets, as positions follow from them, and never what is the same for a whole partition:
    topic and partition are put beside it here.
    """

    def __init__(self, columns: Sequence[str] | None, include_headers: bool) -> None:
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
        self.schema = pa.schema([SCHEMA.field(name) for name in names])
        decoded = [name for name in names if name in _OF_BATCHES]
        self.decoded: tuple[str, ...] = tuple(decoded if "offset" in decoded else ["offset", *decoded])
        self.include_headers = "headers" in names

    def assemble(self, parts: Mapping[TopicPartition, Sequence[Any]]) -> pa.Table:
        """One table of the tables of all partitions, of which none is copied.

        What is decoded keeps its chunks, one for each fetch. Topic and partition are one chunk for all rows: to make
        them for each partition would cost more than all the rest here.
        """
        placed = [(partition, table) for partition, some in parts.items() for table in some]
        if not placed:
            return self.schema.empty_table()
        counts = [table.num_rows for _, table in placed]
        columns: list[Any] = []
        for field in self.schema:
            if field.name == "topic":
                names = dict.fromkeys(partition.topic for partition, _ in placed)
                topics = {topic: index for index, topic in enumerate(names)}
                rows = _repeated([topics[partition.topic] for partition, _ in placed], counts)
                columns.append(pa.DictionaryArray.from_arrays(rows, pa.array(list(topics), pa.string())))
            elif field.name == "partition":
                columns.append(_repeated([partition.partition for partition, _ in placed], counts))
            else:
                chunks = [chunk for _, table in placed for chunk in table.column(field.name).chunks]
                columns.append(pa.chunked_array(chunks, field.type))
        return pa.Table.from_arrays(columns, schema=self.schema)


def _repeated(numbers: list[int], counts: list[int]) -> pa.Array:
    return pa.array(np.repeat(np.array(numbers, np.int32), counts))
