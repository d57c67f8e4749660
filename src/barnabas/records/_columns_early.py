"""Columns that are filled while their records are being read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from barnabas._kernels import columns as kernel
from barnabas._kernels.pure.columns_format import READING_ROOM
from barnabas.records._columns_buffers import BinaryBuffers, allocated
from barnabas.records._columns_plan import MAX_COLUMN_BYTES, ColumnPlan, Totals, column_plan
from barnabas.records.column_memory import ColumnPieces, TableMemory
from barnabas.records.unread_records import UnreadRecords

# From which size on records are copied as soon as they are checked. With fewer bytes the cache still has them later;
# and of short records it would not be known well enough how much of a batch is values. What comes from a file is read
# to where it stays, however short it is: that spares it a copy.
EARLY_BYTES: Final = 1 << 20
EARLY_RECORD_BYTES: Final = 512

_WIDTHS: Final = {"offset": 8, "timestamp": 8, "timestamp_type": 4}


class EarlyColumns:
    """Columns whose rows are copied as soon as their checksum has been computed, when they are in the processor's
    cache. Later, of megabytes, they would not be there any more, and to read them again takes longer than all the rest.

    How many bytes keys and values have is not known at that time, just how many there can be. Values of some size take
    nearly all of that; if more than an eighth of their buffer is left over, it is given back, unless the buffer is one
    that will be used again (`TableMemory`). Keys get an eighth, and
    what they do not need is given back; if they need more, they are left to `ColumnPlan.assemble`, as headers are.

    **Several buffers** can have theirs in common, one after the other: as many as there was room made for, if each of
    them has nothing but batches that `plain_sections` reads. Rows have to follow each other: with one that has
    something else, or something wrong, the columns end. `sections` are those whose rows are here. While one of the
    buffers is being read, the columns are closed, and they stay closed if that fails: there may be rows of it in them
    that do not count.

    **From files.** Of `UnreadRecords` the kernel reads the values to where they stay. What is left to the sections then
    has to be `unread` no more.
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
        # Whether a null is coming is not known either, so there is a bitmap in any case.
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
        """Where the rows of the next buffer go, which `end` has to follow."""
        assert self.is_open
        self.is_open = False
        return self._sink

    def end(
        self, sections: list[kernel.Section], rows: int, *, is_all: bool, unread: UnreadRecords | None = None
    ) -> None:
        """These sections have been copied, of so many rows, which are or are not all there is of their buffer."""
        assert self._sink is not None
        if unread is not None:
            self.unread.append(unread)
        self.sections += sections
        self._rows += rows
        if self._rows != self._sink.rows:
            self.sections = []  # more than there was said to be; nothing is lost, as it can be had of the sections
            return
        self._buffers -= 1
        self.is_open = is_all and self._sink.open and self._buffers > 0

    def batch(self) -> pa.RecordBatch:
        """All rows. No more can be added."""
        if self._batch is None:
            self.is_open = False
            self._sink = None  # it holds the address of memory that is about to move
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
    """Columns for the first of these buffers, of which each has a start offset, and for others behind it, if they can
    be common to them; None if it is better to copy later. Into some of them records may be read from files."""
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
    return EarlyColumns(plan, rows, size, number, memory, room=READING_ROOM if from_files else 0)
