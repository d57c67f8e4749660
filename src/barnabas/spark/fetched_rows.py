"""Decodes the records of fetch responses to rows, without a Python object per record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from barnabas.common.topic_partition import TopicPartition
from barnabas.records.columns.arrow import assemble_batches, fetch_sections, shared_columns
from barnabas.spark.row_columns import RowColumns

_MAX_ROWS: Final = 131_072
"""The maximum rows of a record batch. It bounds the JVM's memory, however well the records were compressed."""


class FetchedRecords(NamedTuple):
    """The records of one partition in a fetch response."""

    partition: TopicPartition
    records: Any
    start: int
    """Records before this offset are left out."""
    end: int | None
    """Records from this offset on are left out. None: the response ends within the range."""
    aborted: list[tuple[int, int]] | None
    """Aborted transactions, as pairs of producer id and first offset; None also reads uncommitted records."""


class FetchedRows:
    """Makes Arrow record batches of fetched records.

    The partitions of a response are decoded together: a column is allocated once for all of them, and Spark gets few
    large record batches instead of many small ones.
    """

    def __init__(self, columns: RowColumns, *, check_crc: bool) -> None:
        self._columns = columns
        self._check_crc = check_crc

    def decode(self, fetched: Sequence[FetchedRecords]) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a response. Rows of a partition are in the order of their offsets."""
        whole = [one for one in fetched if one.end is None]
        if whole:
            yield from self._decode(whole, self._columns.decoded(with_offset=False))
        for one in fetched:
            if one.end is not None:
                # The last batch extends beyond the range: the rest belongs to another task or micro-batch.
                yield from self._decode([one], self._columns.decoded(with_offset=True), one.end)

    def _decode(
        self, fetched: Sequence[FetchedRecords], names: list[str], end: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        shared = None
        if len(fetched) > 1:
            is_committed = fetched[0].aborted is not None
            buffers = [(memoryview(one.records), one.start) for one in fetched]
            shared = shared_columns(buffers, columns=names, aborted=is_committed)
        sections = [
            fetch_sections(
                one.records,
                shared=shared,
                columns=names,
                start_offset=one.start,
                aborted=one.aborted,
                check_crc=self._check_crc,
            )
            for one in fetched
        ]
        places = self._columns.places([one.partition for one in fetched], [one.records for one in sections])
        position = 0
        for batch in assemble_batches(sections):
            kept = batch
            if end is not None:
                offsets = batch.column(names.index("offset")).to_numpy(zero_copy_only=True)
                kept = batch.slice(0, int(np.searchsorted(offsets, end)))
            for first in range(0, kept.num_rows, _MAX_ROWS):
                yield self._columns.rows(kept.slice(first, _MAX_ROWS), places, position + first)
            position += batch.num_rows
