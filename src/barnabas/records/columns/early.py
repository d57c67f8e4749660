"""Columns that are filled while their records are being checked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from barnabas._kernels import columns as kernel
from barnabas.records.columns.buffers import BinaryBuffers, allocated
from barnabas.records.columns.memory import ColumnPieces, TableMemory
from barnabas.records.columns.plan import MAX_COLUMN_BYTES, ColumnPlan, Totals, column_plan
from barnabas.records.unread_records import UnreadRecords

# The sizes from which records are copied as soon as they are checked. Fewer bytes are still in the cache later. With
# short records, the share of values in a batch is too uncertain. Records from a file are read directly to their final
# place, however short they are: that saves a copy.
EARLY_BYTES: Final = 1 << 20
EARLY_RECORD_BYTES: Final = 512

_WIDTHS: Final = {"offset": 8, "timestamp": 8, "timestamp_type": 4}


class EarlyColumns:
    """Columns whose rows are copied right after their checksum is computed, while they are in the processor's cache.

    Megabytes of records would leave the cache before a later copy, and reading them again takes longer than all the
    rest.

    At that time only an upper bound for the bytes of keys and values is known. Long values use nearly all of it; if
    more than an eighth of their buffer is unused, it is freed, unless the buffer will be reused (`TableMemory`). Keys
    get an eighth, and the unused part is freed; if they need more, `ColumnPlan.assemble` makes their column, as it does
    for headers.

    **Several buffers** can fill the same columns in turn, up to the number that was planned, if each has only batches
    that `plain_sections` reads. Rows have to be contiguous: the columns end with a buffer that has anything else or an
    error. `sections` are those whose rows are here. The columns are closed while a buffer is being read and stay closed
    if that fails, because they may contain rows of it that do not count.

    **From files.** The kernel reads the values of `UnreadRecords` directly to their final place. `batch` reads the
    rest (`unread`) if the sections have to fill further columns.
    """

    __slots__ = (
        "_batch",
        "_buffers",
        "_capacity",
        "_keys",
        "_numbers",
        "_rows",
        "_sink",
        "_values",
        "is_open",
        "plan",
        "sections",
        "unread",
    )

    def __init__(
        self, plan: ColumnPlan, rows: int, size: int, buffers: int, memory: TableMemory | None, *, room: int = 0
    ) -> None:
        kinds = plan.kinds
        key_room, widths = size >> 3, {name: _WIDTHS[name] for name in kinds if name in _WIDTHS}
        of_values = pieces = None
        if memory is not None:
            of_values = memory.values
            sizes = [key_room, *[4 * rows + 4, (rows >> 3) + 1] * 2, *(width * rows for width in widths.values())]
            pieces = ColumnPieces(memory.beside.take(ColumnPieces.room_for(sizes)))
        # Whether there are nulls is not known yet either, so there is always a bitmap.
        keys = BinaryBuffers(rows, 1, key_room, resizable=True, pieces=pieces) if "key" in kinds else None
        values = None
        if "value" in kinds:
            values = BinaryBuffers(rows, 1, size + room, resizable=True, memory=of_values, pieces=pieces)
        cut = allocated if pieces is None else pieces.cut
        buffers_of = {name: cut(width * rows) for name, width in widths.items()}
        numbers = {name: filled for name, (_, filled) in buffers_of.items()}
        self._sink: kernel.ColumnSink | None = kernel.ColumnSink(
            rows,
            None if keys is None else keys.sink,
            None if values is None else values.sink,
            numbers.get("offset"),
            numbers.get("timestamp"),
            numbers.get("timestamp_type"),
            None,
            None,
            None,
        )
        self._keys = keys
        self._values = values
        self._numbers = {name: buffer for name, (buffer, _) in buffers_of.items()}
        self._capacity = size
        self._buffers = buffers
        self._rows = 0
        self._batch: pa.RecordBatch | None = None
        self.plan = plan
        self.is_open = True
        self.sections: list[kernel.Section] = []
        self.unread: list[UnreadRecords] = []

    def begin(self) -> kernel.ColumnSink | None:
        """Returns the sink for the rows of the next buffer; `end` has to follow."""
        assert self.is_open
        self.is_open = False
        return self._sink

    def end(
        self, sections: list[kernel.Section], rows: int, *, is_all: bool, unread: UnreadRecords | None = None
    ) -> None:
        """Records the copied sections and their rows; `is_all` says whether they are the whole buffer."""
        assert self._sink is not None
        if unread is not None:
            self.unread.append(unread)
        self.sections += sections
        self._rows += rows
        if self._rows != self._sink.rows:
            self.sections = []  # more rows than announced; the columns are then made from the sections instead
            return
        self._buffers -= 1
        self.is_open = is_all and self._sink.open and self._buffers > 0

    def batch(self) -> pa.RecordBatch:
        """Returns all rows. No more can be added."""
        if self._batch is None:
            self.is_open = False
            self._sink = None  # the sink holds the address of memory that is about to move
            arrays = self._arrays(Totals(*kernel.totals(self.sections)))
            kinds = self.plan.kinds
            left = tuple(name for name in kinds if name not in arrays)
            if left:
                for unread in self.unread:
                    unread.read_all()
                rest = column_plan(left, False, False).assemble(self.sections)
                arrays |= dict(zip(left, rest.columns, strict=True))
            self._batch = pa.RecordBatch.from_arrays([arrays[name] for name in kinds], names=list(kinds))
            self.unread = []
        return self._batch

    def _arrays(self, totals: Totals) -> dict[str, pa.Array]:
        kinds, keys, values, rows = self.plan.kinds, self._keys, self._values, totals.records
        arrays = {
            name: pa.Array.from_buffers(kinds[name], rows, [None, buffer], 0) for name, buffer in self._numbers.items()
        }
        if keys is not None and keys.sink.open:
            keys.end(rows, totals.null_keys, totals.key_bytes, shrink=True)
            arrays["key"] = keys.array(kinds["key"])
        if values is not None and values.sink.open:
            shrink = totals.value_bytes < self._capacity - (self._capacity >> 3)
            values.end(rows, totals.null_values, totals.value_bytes, shrink=shrink)
            arrays["value"] = values.array(kinds["value"])
        self._keys = self._values = None
        self._numbers = {}
        return arrays


def early_columns(
    plan: ColumnPlan,
    buffers: Iterable[tuple[memoryview, int]],
    *,
    may_be_transactional: bool,
    memory: TableMemory | None = None,
    from_files: bool = False,
) -> EarlyColumns | None:
    """Creates columns for the first of these buffers and the following ones that can share them.

    Each buffer comes with its start offset. Returns None if it is better to copy later. `from_files` says that some
    records may be read from files.
    """
    if plan.has_views:
        return None
    rows = size = number = 0
    for octets, start_offset in buffers:
        some_rows, some, is_all = kernel.plain_extent(octets, start_offset, may_be_transactional)
        if size + some > MAX_COLUMN_BYTES:
            break
        rows += some_rows
        size += some
        number += 1
        if not is_all:
            break
    if size < (EARLY_BYTES if from_files else max(EARLY_BYTES, rows * EARLY_RECORD_BYTES)):
        return None
    return EarlyColumns(plan, rows, size, number, memory, room=kernel.READING_ROOM if from_files else 0)
