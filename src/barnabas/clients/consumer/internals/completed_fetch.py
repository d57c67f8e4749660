"""One partition's part of a fetch response, and the read position in it."""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas._kernels import record_batch, sockets
from barnabas._kernels.channel_state import with_room_to_grow
from barnabas.clients.consumer.consumer_config import IsolationLevel
from barnabas.clients.consumer.consumer_record import ConsumerRecord, ConsumerRecordReader
from barnabas.clients.consumer.internals.consumer_metrics import FetchedResponse
from barnabas.common.errors import BarnabasError, CorruptRecordError
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.messages.fetch import PartitionData
from barnabas.records.aborted_transactions import AbortedTransactions
from barnabas.records.batch import RecordBatch, TimestampType, iter_batches
from barnabas.records.compression import DEFAULT_MAX_DECOMPRESSED_BYTES
from barnabas.records.reader import uncompressed_records

if TYPE_CHECKING:
    from concurrent.futures import Future

    from barnabas.records.columns.arrow import EarlyColumns
    from barnabas.records.columns.memory import TableMemory
    from barnabas.records.unread_records import UnreadRecords

leader_epoch_before = record_batch.leader_epoch_before
offset_after = record_batch.offset_after

log = logging.getLogger(__name__)

_READ_UNCOMMITTED: Final = IsolationLevel.READ_UNCOMMITTED
_LENGTH: Final = struct.Struct(">i")
_MAX_BASE_OFFSET: Final = 2**63 - 2**31


@cache
def _arrow() -> Any:
    """Imports the Arrow decoder on demand: pyarrow is an extra."""
    from barnabas.records.columns import arrow as columns

    return columns


def new_table_memory() -> TableMemory:
    """Creates the memory for the tables of one consumer."""
    from barnabas.records.columns.memory import TableMemory

    return TableMemory(sockets.large_buffer, with_room_to_grow)


class FetchReading(NamedTuple):
    """How the bytes of a fetch become records."""

    isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    check_crcs: bool = True
    key_deserializer: Any = None
    """``deserialize(topic, headers, data)``; None leaves bytes as they are."""
    value_deserializer: Any = None


class CompletedFetch:
    """One partition's part of a fetch response: a range of its log, decoded as the application takes it.

    A broker sends whole batches. So the range may begin before the fetch offset and end in the middle of a batch; in
    between are control batches, and, with read_committed, records of aborted transactions. All of those are skipped
    here. ``next_fetch_offset`` follows: after a gap in a compacted log, or a batch without visible records, it is the
    end of the *batch*, not of the last record.

    Batches are read one by one: each is decompressed when its first record is needed, and released after its last. If
    the broker is on the same machine, memory may hold only the batch headers (``unread``); a table's records are then
    read directly to their destination.

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
        "response",
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
        """Whether errors have been handled and watermarks updated."""
        self.is_consumed = False
        self.bytes_read = 0
        self.records_read = 0
        self.response: FetchedResponse | None = None
        """The response that it is a part of, if it has records: for metrics."""
        self._reading = reading
        self._batches: Iterator[RecordBatch] | None = None
        self._batch: RecordBatch | None = None
        self._reader: ConsumerRecordReader | None = None
        self._aborted: AbortedTransactions | None = None
        self._error: BarnabasError | None = None
        self._table: tuple[Any, Any, int] | None = None
        self._decoded: tuple[Any, Any] | None = None
        self.ahead: Future[None] | None = None
        """The thread that may be decoding it (`decode_ahead`)."""
        self.unread = unread
        """The location of the records, if only the batch headers are in memory."""
        self.known_end_offset: int | None = None
        """The result of `end_offset`, once computed."""

    @property
    def aborted(self) -> list[tuple[int, int]] | None:
        """Returns producer ids and first offsets of aborted transactions; None if all records are visible."""
        if self._reading.isolation_level is _READ_UNCOMMITTED:
            return None
        return [(row.producer_id, row.first_offset) for row in self.data.aborted_transactions or ()]

    def has_whole_batch(self) -> bool:
        """Whether there is anything to read."""
        size = len(self.records)
        return size >= 16 and size >= 12 + _LENGTH.unpack_from(self.records, 8)[0]

    def end_offset(self) -> int | None:
        """Returns the offset after the last batch; None if it is an error or has no batch.

        Reads only batch headers and always returns the same, so any thread may call it.
        """
        if self.known_end_offset is None and not self.data.error_code:
            self.known_end_offset = offset_after(self.records)
        return self.known_end_offset

    def read_all(self) -> bool:
        """Reads the records into memory; returns whether they are there. If not, they must be fetched again."""
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
        """Waits for the `ahead` thread, if there is one."""
        ahead, self.ahead = self.ahead, None
        if ahead is not None:
            ahead.result()

    def _give_up(self, error: Exception) -> None:
        log.warning("The records of %s cannot be read from the broker's file: %s. Fetching again.", self, error)
        self.unread = None
        self.drain()

    # -- as records

    def fetch_records(self, limit: int) -> list[ConsumerRecord]:
        """Returns the next records. An error is raised when no record comes before it, and again by the next call."""
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
                # Corruption is permanent. A deserializer may succeed the next time, and is called again.
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
        """Detects at once that nothing is left, so that the next fetch need not wait for the next poll."""
        try:
            if not self._next_batch():
                self.drain()
        except BarnabasError:
            return  # raised again in its turn

    def _next_batch(self) -> bool:
        """Advances to the next batch with visible records; false if there is none."""
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
                # The epoch of an invisible batch counts too: the position is behind it.
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
            (self._reading.key_deserializer, self._reading.value_deserializer),
        )

    # -- as columns

    def fetch_table(
        self, limit: int | None, columns: tuple[str, ...] | None, include_headers: bool, binary_type: str = "binary"
    ) -> Any:
        """Returns the next records as an Arrow table, always with an ``offset`` column.

        The whole fetch is decoded at once. Rows beyond `limit` are kept for the next call with the same arguments. Call
        `read_all` first.
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
            # A later `fetch_records` starts at the right record, in any batch.
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
        """Checks and counts all remaining records, for a table made of several fetches.

        Returns None if a table has already been made of it. Does not support headers: errors in them would be found too
        late, when the position is behind them."""
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
        """Does the slow part of `fetch_sections` for a later call with the same arguments.

        Runs on the `ahead` thread; all other methods wait for it."""
        wanted = (columns, binary_type, self.next_fetch_offset)
        try:
            self._decoded = wanted, self._decode(columns, binary_type, shared, memory)
        except Exception as error:  # noqa: BLE001 - raised where it would have been raised
            self._decoded = wanted, error

    def _take_decoded(self, columns: tuple[str, ...] | None, binary_type: str) -> Any:
        """Returns or raises the result of `decode_ahead`, if its arguments match."""
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
        """Returns columns that these fetches can fill together, if `fetch_sections` is called on them in order."""
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
        """Whether a part of a decoded table is left."""
        return self._table is not None

    def drain(self) -> None:
        """Discards the rest."""
        self.is_consumed = True
        self._reader = self._batches = self._batch = None
        self._table = None

    def __repr__(self) -> str:
        state = "consumed" if self.is_consumed else f"next {self.next_fetch_offset}"
        return f"CompletedFetch({self.partition}@{self.fetch_offset}, {len(self.records)} bytes, {state})"
