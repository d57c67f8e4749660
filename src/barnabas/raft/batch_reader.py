"""Readers of committed batches, for listeners."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from barnabas.network.reactor.send import FileRegion
from barnabas.protocol.internal.framing import MetadataRecordTypes
from barnabas.raft.client import ApiMessageAndVersion, Batch
from barnabas.raft.records_iterator import decode_batch, raw_batches


class CommittedBatchReader:
    """Base of both kinds of reader: iterated once, closed once, and reports its last offset.

    ``on_close`` is called with the reader when the listener closes it, on the listener's thread. Raft gives a listener
    no further reader before that, which limits the backlog of a slow listener.
    """

    __slots__ = ("_on_close", "base_offset", "last_offset")

    def __init__(
        self, base_offset: int, last_offset: int | None, on_close: Callable[[CommittedBatchReader], None]
    ) -> None:
        self.base_offset = base_offset
        self.last_offset = last_offset
        """The last offset of the reader if it is known in advance, otherwise the last one returned so far."""
        self._on_close: Callable[[CommittedBatchReader], None] | None = on_close

    @property
    def is_closed(self) -> bool:
        return self._on_close is None

    def close(self) -> None:
        on_close, self._on_close = self._on_close, None
        if on_close is not None:
            on_close(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_offset}-{'?' if self.last_offset is None else self.last_offset})"


class MemoryBatchReader(CommittedBatchReader):
    """Batches that this node has just written: the appended objects themselves, not decoded again."""

    __slots__ = ("_batches",)

    def __init__(
        self, batches: Sequence[Batch[ApiMessageAndVersion]], on_close: Callable[[CommittedBatchReader], None]
    ) -> None:
        super().__init__(batches[0].base_offset, batches[-1].last_offset, on_close)
        self._batches = batches

    def __iter__(self) -> Iterator[Batch[ApiMessageAndVersion]]:
        return iter(self._batches)

    def close(self) -> None:
        self._batches = ()
        super().close()


class RecordsBatchReader(CommittedBatchReader):
    """Batches in a region of the log's file, read and decoded on demand."""

    __slots__ = ("_records", "_types")

    def __init__(
        self,
        base_offset: int,
        records: FileRegion | bytes,
        types: MetadataRecordTypes,
        on_close: Callable[[CommittedBatchReader], None],
    ) -> None:
        super().__init__(base_offset, None, on_close)
        self._records = records
        self._types = types

    def __iter__(self) -> Iterator[Batch[ApiMessageAndVersion]]:
        for raw in raw_batches(self._records):
            if self.is_closed:
                return
            batch = decode_batch(raw, self._types)
            self.last_offset = batch.last_offset
            yield batch

    def close(self) -> None:
        self._records = b""  # releases the file
        super().close()
