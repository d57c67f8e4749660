"""What came back for one partition, and how far it has been read."""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas._kernels import record_batch, sockets
from barnabas.clients.consumer.consumer_config import IsolationLevel
from barnabas.clients.consumer.consumer_record import ConsumerRecord, ConsumerRecordReader
from barnabas.clients.consumer.internals.consumer_metrics import FetchedAnswer
from barnabas.common.errors import BarnabasError, CorruptRecordError
from barnabas.common.topic_partition import TopicPartition
from barnabas.network.channel_state import with_room_to_grow
from barnabas.protocol.messages.fetch import PartitionData
from barnabas.records.aborted_transactions import AbortedTransactions
from barnabas.records.batch import RecordBatch, TimestampType, iter_batches
from barnabas.records.compression import DEFAULT_MAX_DECOMPRESSED_BYTES
from barnabas.records.reader import uncompressed_records

if TYPE_CHECKING:
    from concurrent.futures import Future

    from barnabas.records.column_memory import TableMemory
    from barnabas.records.columns import EarlyColumns
    from barnabas.records.unread_records import UnreadRecords

leader_epoch_before = record_batch.leader_epoch_before
offset_after = record_batch.offset_after

log = logging.getLogger(__name__)

_READ_UNCOMMITTED: Final = IsolationLevel.READ_UNCOMMITTED
_LENGTH: Final = struct.Struct(">i")
_MAX_BASE_OFFSET: Final = 2**63 - 2**31


@cache
def _arrow() -> Any:
    """What makes columns of batches. It needs pyarrow, which is an extra, for those who use it."""
    from barnabas.records import columns

    return columns


def new_table_memory() -> TableMemory:
    """For the tables of one consumer."""
    from barnabas.records.column_memory import TableMemory

    return TableMemory(sockets.large_buffer, with_room_to_grow)


class FetchReading(NamedTuple):
    """How the bytes of fetches become records."""

    isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    check_crcs: bool = True
    key_deserializer: Any = None
    """``deserialize(topic, headers, data)``; None leaves bytes as they are."""
    value_deserializer: Any = None


class CompletedFetch:
    """The answer to a fetch, for one partition: a stretch of its log, decoded as the application takes it.

    A broker sends whole batches. So the stretch may begin before the offset that was asked for and end in the middle of
    a batch; in between are markers of transactions, and, for a consumer that reads committed records, the records of
    transactions that were aborted. All of those are passed over here. ``next_fetch_offset`` follows: after a compacted
    log's gap, or a batch with nothing to see, it is where the *batch* ends, not where the last record was.

    Reading happens batch by batch: decompressed when its first record is wanted, let go of after its last. Of a broker
    on the same machine it may be that just the headers of batches are in memory (``unread``); a table's records are
    read to where they stay.

    Belongs to the application thread once it has been taken out of the buffer.
    """

    __slots__ = (
        "_aborted",
        "_batch",
        "_batches",
        "_decoded",
        "_error",
        "_reader",
        "_reading",
        "_table",
        "ahead",
        "answer",
        "bytes_read",
        "data",
        "fetch_offset",
        "is_consumed",
        "is_initialized",
        "known_end_offset",
        "last_epoch",
        "next_fetch_offset",
        "partition",
        "records",
        "records_read",
        "unread",
    )

    def __init__(
        self,
        partition: TopicPartition,
        data: PartitionData,
        fetch_offset: int,
        reading: FetchReading,
        unread: UnreadRecords | None = None,
    ) -> None:
        self.partition = partition
        self.data = data
        records = data.records
        self.records = (
            records
            if isinstance(records, memoryview)
            else memoryview(records if isinstance(records, bytes | bytearray) else b"")
        )
        self.fetch_offset = fetch_offset
        self.next_fetch_offset = fetch_offset
        self.last_epoch: int | None = None
        self.is_initialized = False
        """Whether it has been looked at: errors handled, watermarks taken over."""
        self.is_consumed = False
        self.bytes_read = 0
        self.records_read = 0
        self.answer: FetchedAnswer | None = None
        """The answer that it is a part of, if there are records in it: for metrics."""
        self._reading = reading
        self._batches: Iterator[RecordBatch] | None = None
        self._batch: RecordBatch | None = None
        self._reader: ConsumerRecordReader | None = None
        self._aborted: AbortedTransactions | None = None
        self._error: BarnabasError | None = None
        self._table: tuple[Any, Any, int] | None = None
        self._decoded: tuple[Any, Any] | None = None
        self.ahead: Future[None] | None = None
        """A thread that may be reading it, for `decode_ahead`."""
        self.unread = unread
        """What knows where the records are, if there are no more of them here than their batches' headers."""
        self.known_end_offset: int | None = None
        """What `end_offset` has found, if it has been asked."""

    @property
    def aborted(self) -> list[tuple[int, int]] | None:
        """Producers and first offsets of aborted transactions; None if all records are to be seen."""
        if self._reading.isolation_level is _READ_UNCOMMITTED:
            return None
        return [(row.producer_id, row.first_offset) for row in self.data.aborted_transactions or ()]

    def has_whole_batch(self) -> bool:
        """Whether there is anything to read at all."""
        size = len(self.records)
        return size >= 16 and size >= 12 + _LENGTH.unpack_from(self.records, 8)[0]

    def end_offset(self) -> int | None:
        """Where it ends, and reading will go on, if it is read to its end; None if it is an error or has no batch.

        Looks at the headers of batches only, and always finds the same: any thread may ask.
        """
        if self.known_end_offset is None and not self.data.error_code:
            self.known_end_offset = offset_after(self.records)
        return self.known_end_offset

    def read_all(self) -> bool:
        """Whether the records are in memory, where they are read to if they were not. If that cannot be done, there is
        nothing of this, and it has to be fetched again."""
        if self.unread is not None:
            self._catch_up()
            try:
                self.unread.read_all()
            except (OSError, EOFError) as error:
                self._give_up(error)
                return False
            self.unread = None
        return True

    def _catch_up(self) -> None:
        """Waits for the thread that is `ahead`, if there is one."""
        ahead, self.ahead = self.ahead, None
        if ahead is not None:
            ahead.result()

    def _give_up(self, error: Exception) -> None:
        log.warning("The records of %s cannot be read from the broker's file: %s. Fetching again.", self, error)
        self.unread = None
        self.drain()

    # -- as records

    def fetch_records(self, limit: int) -> list[ConsumerRecord]:
        """The next records. An error is raised when there is no record before it; the next call meets it again."""
        found: list[ConsumerRecord] = []
        if self._error is not None:
            raise self._error
        if not self.read_all():
            return found
        try:
            while len(found) < limit:
                reader = self._reader
                if reader is None:
                    if not self._next_batch():
                        self.drain()
                        break
                    continue
                self.bytes_read += reader.read(found, limit - len(found))
                if reader.exhausted:
                    assert self._batch is not None
                    self.next_fetch_offset = self._batch.next_offset
                    self._reader = None
                else:
                    self.next_fetch_offset = reader.next_offset
        except BarnabasError as error:
            if not found:
                # Damage stays damage. A deserializer may work the next time, and is asked again.
                if isinstance(error, CorruptRecordError):
                    self._error = error
                raise
            if self._reader is not None:
                self.next_fetch_offset = self._reader.next_offset
        self.records_read += len(found)
        if self._reader is None and not self.is_consumed and len(found) == limit:
            self._skip_to_next_batch()
        return found

    def _skip_to_next_batch(self) -> None:
        """Finds out at once that nothing is left, so that the next fetch need not wait for the next poll."""
        try:
            if not self._next_batch():
                self.drain()
        except BarnabasError:
            return  # raised again, when it is its turn

    def _next_batch(self) -> bool:
        """Goes on to the next batch with records to hand out; False if there is none."""
        if self._batches is None:
            self._batches = iter_batches(self.records, allow_partial=True)
            aborted = self.aborted
            self._aborted = None if aborted is None else AbortedTransactions(aborted)
        for batch in self._batches:
            self._batch = batch
            try:
                if self._reading.check_crcs:
                    batch.ensure_valid()
                hidden = self._aborted is not None and self._aborted.hides(batch)
                # The epoch of a batch that nobody sees counts too: the position is behind it.
                epoch = batch.partition_leader_epoch
                self.last_epoch = epoch if epoch >= 0 else None
                if not hidden and not batch.is_control_batch and batch.last_offset >= self.next_fetch_offset:
                    self._reader = self._open(batch)
                    return True
            except BarnabasError as error:
                self._error = error
                raise
            self.next_fetch_offset = max(self.next_fetch_offset, batch.next_offset)
        return False

    def _open(self, batch: RecordBatch) -> ConsumerRecordReader:
        data = uncompressed_records(batch, DEFAULT_MAX_DECOMPRESSED_BYTES)
        if not 0 <= batch.base_offset <= _MAX_BASE_OFFSET:
            raise CorruptRecordError(f"base offset {batch.base_offset} does not leave room for the offsets of records")
        return ConsumerRecordReader(
            data,
            batch.record_count,
            batch.base_offset,
            batch.base_timestamp,
            batch.max_timestamp if batch.timestamp_type is TimestampType.LOG_APPEND_TIME else None,
            self.next_fetch_offset,
            self.partition.topic,
            self.partition.partition,
            batch.partition_leader_epoch,
            self._reading.key_deserializer,
            self._reading.value_deserializer,
        )

    # -- as columns

    def fetch_table(
        self, limit: int | None, columns: tuple[str, ...] | None, include_headers: bool, binary_type: str = "binary"
    ) -> Any:
        """The next records as an Arrow table, with an ``offset`` column whatever else is asked for.

        All of the fetch is decoded at once. What `limit` leaves is kept for the next call, if that asks for the same.
        `read_all` has to come first.
        """
        wanted = (columns, include_headers, binary_type)
        if self._table is not None and self._table[0] == wanted and self._reader is None:
            table, end_offset = self._table[1], self._table[2]
        else:
            fetched = _arrow().fetch_columns(
                self.records,
                columns=columns,
                include_headers=include_headers,
                binary_type=binary_type,
                start_offset=self.next_fetch_offset,
                aborted=self.aborted,
                check_crc=self._reading.check_crcs,
            )
            table = fetched.table
            end_offset = self.next_fetch_offset if fetched.next_offset is None else fetched.next_offset
            self.bytes_read += fetched.size_in_bytes
        self._table = None
        if limit is not None and table.num_rows > limit:
            self._table = (wanted, table.slice(limit), end_offset)
            table = table.slice(0, limit)
            self.next_fetch_offset = table.column("offset")[-1].as_py() + 1
            # Whoever asks for records next begins at the right one, in whatever batch it is.
            self._reader = self._batches = self._batch = None
        else:
            self.next_fetch_offset = max(end_offset, self.next_fetch_offset)
            self.drain()
        self.records_read += table.num_rows
        self.last_epoch = leader_epoch_before(self.records, self.next_fetch_offset)
        return table

    def fetch_sections(
        self,
        columns: tuple[str, ...] | None,
        binary_type: str = "binary",
        shared: EarlyColumns | None = None,
        memory: TableMemory | None = None,
    ) -> Any:
        """All that is left, checked and counted, for a table that is made of several of these; None if a table has been
        made of it before. Without headers: what is wrong with those would be found too late, when a position is behind
        them."""
        if self._table is not None:
            return None
        fetched = self._take_decoded(columns, binary_type)
        try:
            if fetched is None:
                fetched = self._decode(columns, binary_type, shared, memory)
            if isinstance(fetched, Exception):
                raise fetched
        except (OSError, EOFError) as error:
            self._give_up(error)
            return None
        self.bytes_read += fetched.size_in_bytes
        self.records_read += fetched.records
        self.next_fetch_offset = max(fetched.next_offset or 0, self.next_fetch_offset)
        self.last_epoch = leader_epoch_before(self.records, self.next_fetch_offset)
        self.drain()
        return fetched

    def _decode(
        self,
        columns: tuple[str, ...] | None,
        binary_type: str,
        shared: EarlyColumns | None,
        memory: TableMemory | None,
    ) -> Any:
        return _arrow().fetch_sections(
            self.records,
            columns=columns,
            binary_type=binary_type,
            start_offset=self.next_fetch_offset,
            aborted=self.aborted,
            check_crc=self._reading.check_crcs,
            shared=shared,
            memory=memory,
            unread=self.unread,
        )

    def decode_ahead(
        self,
        columns: tuple[str, ...] | None,
        binary_type: str,
        shared: EarlyColumns | None,
        memory: TableMemory | None,
    ) -> None:
        """Does what takes time of `fetch_sections`, for a call that asks for the same. For the thread that is `ahead`;
        everything else here waits until that has done it."""
        wanted = (columns, binary_type, self.next_fetch_offset)
        try:
            self._decoded = wanted, self._decode(columns, binary_type, shared, memory)
        except Exception as error:  # noqa: BLE001 - raised where it would have been raised
            self._decoded = wanted, error

    def _take_decoded(self, columns: tuple[str, ...] | None, binary_type: str) -> Any:
        """What `decode_ahead` has left, if it is what is asked for now; a failure, too."""
        self._catch_up()
        decoded, self._decoded = self._decoded, None
        if decoded is None or decoded[0] != (columns, binary_type, self.next_fetch_offset):
            return None
        return decoded[1]

    @staticmethod
    def shared_columns(
        fetches: Sequence[CompletedFetch],
        columns: tuple[str, ...] | None,
        binary_type: str,
        memory: TableMemory | None = None,
    ) -> EarlyColumns | None:
        """Columns that these can fill together, if `fetch_sections` is called on one after the other."""
        found: EarlyColumns | None = _arrow().shared_columns(
            [(fetch.records, fetch.next_fetch_offset) for fetch in fetches],
            columns=columns,
            binary_type=binary_type,
            aborted=fetches[0].aborted is not None,
            memory=memory,
            from_files=any(fetch.unread is not None for fetch in fetches),
        )
        return found

    @property
    def has_table(self) -> bool:
        """Whether a table has been made of it, of which a part is left."""
        return self._table is not None

    def drain(self) -> None:
        """Nothing more will be read from this."""
        self.is_consumed = True
        self._reader = self._batches = self._batch = None
        self._table = None

    def __repr__(self) -> str:
        state = "consumed" if self.is_consumed else f"next {self.next_fetch_offset}"
        return f"CompletedFetch({self.partition}@{self.fetch_offset}, {len(self.records)} bytes, {state})"
