"""Takes records out of the buffer and advances positions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Any

from barnabas.clients.common.partition_errors import TOPIC_MISSING, Recovery, recovery_of
from barnabas.clients.consumer.consumer_record import ConsumerRecord
from barnabas.clients.consumer.errors import FetchOffsetOutOfRangeError
from barnabas.clients.consumer.internals.completed_fetch import CompletedFetch
from barnabas.clients.consumer.internals.consumer_metadata import ConsumerMetadata
from barnabas.clients.consumer.internals.consumer_metrics import FetchMetrics
from barnabas.clients.consumer.internals.fetch_buffer import FetchBuffer
from barnabas.clients.consumer.internals.fetch_position import FetchPosition
from barnabas.clients.consumer.internals.subscription_state import SubscriptionState
from barnabas.clients.consumer.internals.table_reader import TableReader
from barnabas.common.clock import Clock
from barnabas.common.errors import (
    BarnabasError,
    CorruptRecordError,
    Errors,
    InvalidRecordError,
    TopicAuthorizationError,
    raise_for_code,
)
from barnabas.common.topic_partition import TopicPartition

if TYPE_CHECKING:
    from barnabas.records.columns.arrow import EarlyColumns

log = logging.getLogger(__name__)

_UNUSUAL = frozenset({*TOPIC_MISSING, Errors.INCONSISTENT_TOPIC_ID, Errors.UNKNOWN_SERVER_ERROR})
"""Errors that a change of leader does not explain."""


class Collected:
    """The records of one poll by partition, and the next position of each."""

    __slots__ = ("count", "has_drained", "next_positions", "parts", "position_advanced")

    def __init__(self) -> None:
        self.parts: dict[TopicPartition, Any] = {}
        self.next_positions: dict[TopicPartition, FetchPosition] = {}
        self.count = 0
        self.position_advanced = False
        """Whether a position has moved, possibly past invisible records."""
        self.has_drained = False
        """Whether a partition has been drained, which is fetched again only if the background thread is notified."""


class FetchCollector:
    """Reads the responses that the background thread has fetched, for `poll`. Used by the application thread.

    A response is valid only for the partition's current position; if the application has sought elsewhere, or the
    partition was revoked, the response is discarded. An error in it is handled in its turn, not on arrival, and is
    raised only if no records come before it.
    """

    def __init__(
        self,
        buffer: FetchBuffer,
        subscriptions: SubscriptionState,
        metadata: ConsumerMetadata,
        metrics: FetchMetrics,
        *,
        isolation_level: int,
        preferred_read_replica_ms: int,
        client_id: str,
        clock: Clock,
    ) -> None:
        self._buffer = buffer
        self._positions = subscriptions.positions
        self._assignment = subscriptions.assignment
        self._resets = subscriptions.resets
        self._lag = subscriptions.lag
        self._metadata = metadata
        self._metrics = metrics
        self._isolation_level = isolation_level
        self._preferred_read_replica_ms = preferred_read_replica_ms
        self._clock = clock
        self._client_id = client_id
        self._tables: TableReader | None = None
        """Created for applications that read tables."""

    def close(self) -> None:
        if self._tables is not None:
            self._tables.close()

    def collect_fetch(self, max_records: int) -> Collected:
        """Returns up to the given number of records."""
        self._buffer.reads_ahead = self._buffer.leaves_unread = False
        found = Collected()
        parts: dict[TopicPartition, list[ConsumerRecord]] = found.parts

        def take(fetch: CompletedFetch) -> None:
            records = fetch.fetch_records(max_records - found.count)
            if records:
                found.count += len(records)
                if fetch.partition in parts:
                    parts[fetch.partition] += records
                else:
                    parts[fetch.partition] = records

        self._collect(found, max_records, take)
        return found

    def collect_tables(
        self, max_records: int | None, columns: tuple[str, ...] | None, include_headers: bool, binary_type: str
    ) -> Collected:
        """Returns Arrow tables: all records if no number is given, but only one response of each partition.

        A second response is left for the next call, so that a third is fetched while the second is decoded. Whole
        responses are read as sections (see `columns.fetch_sections`), and one table is made for all partitions.
        """
        buffer = self._buffer
        buffer.reads_ahead = True
        # Only if values are copied and nothing else needs a second pass over them.
        buffer.leaves_unread = (
            binary_type == "binary"
            and max_records is None
            and not include_headers
            and (columns is None or "value" in columns)
        )
        found = Collected()
        parts: dict[TopicPartition, list[Any]] = found.parts
        if self._tables is None:
            self._tables = TableReader(self._client_id)
        tables = self._tables
        shared: EarlyColumns | None = None
        may_share = binary_type == "binary"  # views copy nothing

        def take(fetch: CompletedFetch) -> None:
            nonlocal shared, may_share
            if max_records is None and not include_headers:
                if may_share:
                    may_share = False
                    shared = tables.begin(self._read_along_with(fetch), columns, binary_type)
                sections = fetch.fetch_sections(columns, binary_type, shared, tables.memory)
                if sections is not None:
                    if sections.records:
                        found.count += sections.records
                        parts.setdefault(fetch.partition, []).append(sections)
                    return
            shared = None  # rows must be contiguous
            if fetch.is_consumed or not fetch.read_all():
                return
            limit = None if max_records is None else max_records - found.count
            table = fetch.fetch_table(limit, columns, include_headers, binary_type)
            if table.num_rows:
                found.count += table.num_rows
                parts.setdefault(fetch.partition, []).append(table)

        try:
            self._collect(found, max_records, take, parts)
        finally:
            tables.wait()
        return found

    def _read_along_with(self, first: CompletedFetch) -> list[CompletedFetch]:
        """Returns this response, and those that will probably be read in the same call."""
        fetches, partitions = [first], {first.partition}
        waiting = self._buffer.waiting()
        positions = self._positions.fetchable_positions() if waiting else {}
        for fetch in waiting:
            partition = fetch.partition
            if partition in partitions or fetch.has_table:
                break
            position = positions.get(partition)
            if position is not None and position.offset == fetch.next_fetch_offset:
                fetches.append(fetch)
                partitions.add(partition)
        return fetches

    def _collect(
        self,
        found: Collected,
        max_records: int | None,
        take: Callable[[CompletedFetch], None],
        unwanted: Container[TopicPartition] = (),
    ) -> None:
        """Reads the responses whose turn it is, up to one of an unwanted partition, and advances positions."""
        buffer = self._buffer
        paused: list[CompletedFetch] = []
        finished: list[CompletedFetch] = []
        fetch = buffer.next_in_line
        try:
            while max_records is None or found.count < max_records:
                if fetch is None or fetch.is_consumed:
                    fetch = buffer.peek()
                    if fetch is None or fetch.partition in unwanted:
                        buffer.next_in_line = None  # so that its memory can be reused for another response
                        break
                    if not self._initialize_next(fetch, found):
                        fetch = None
                        continue
                position = self._positions.fetchable_position(fetch.partition)
                if position is None and self._assignment.is_paused(fetch.partition):
                    # Kept until it is resumed, without blocking others.
                    paused.append(fetch)
                    fetch = buffer.next_in_line = None
                elif self._collect_from(fetch, position, found, take):
                    finished.append(fetch)
                    if buffer.holds_up:
                        found.has_drained = True
        except BarnabasError as error:
            if not found.count:
                raise self._explain(error) from error.__cause__
            log.debug("An error waits until what was read before it has been handed out", exc_info=True)
        finally:
            if paused:
                buffer.add_first(paused)
            if finished:
                self._metrics.record_finished(
                    finished,
                    self._lag.lags_and_leads([fetch.partition for fetch in finished], self._isolation_level),
                )

    def _collect_from(
        self,
        fetch: CompletedFetch,
        position: FetchPosition | None,
        found: Collected,
        take: Callable[[CompletedFetch], None],
    ) -> bool:
        """Returns whether it is drained. Then its partition moves to the end, if it returned records, so that others
        come first in the next request."""
        partition, before = fetch.partition, fetch.next_fetch_offset
        if position is None or position.offset != before:
            log.debug("Records of %s from %d are not wanted any more", partition, before)
            fetch.drain()
        else:
            try:
                take(fetch)
            finally:
                if fetch.next_fetch_offset > before:
                    moved = FetchPosition(fetch.next_fetch_offset, fetch.last_epoch, position.current_leader)
                    is_last = fetch.is_consumed and fetch.bytes_read > 0
                    if self._positions.advance(partition, moved, move_to_end=is_last):
                        found.position_advanced = True
                        found.next_positions[partition] = moved
            if fetch.next_fetch_offset > before:
                return fetch.is_consumed
        if fetch.is_consumed and fetch.bytes_read:
            self._assignment.move_to_end(partition)
        return fetch.is_consumed

    def _explain(self, error: BarnabasError) -> BarnabasError:
        fetch = self._buffer.next_in_line
        if fetch is None or not isinstance(error, CorruptRecordError | InvalidRecordError):
            return error
        return CorruptRecordError(
            f"Received exception when fetching the next record from {fetch.partition}: {error}. If needed, please seek "
            "past the record to continue consumption."
        )

    # -- next response

    def _initialize_next(self, fetch: CompletedFetch, found: Collected) -> bool:
        """Makes the oldest response the next in line if it has readable records; else handles it."""
        buffer = self._buffer
        try:
            usable = fetch.is_initialized or self._initialize(fetch)
        except BarnabasError:
            if not found.count and not len(fetch.records):
                buffer.poll()  # reported once; errors in the records themselves remain until a seek
            raise
        if usable:
            fetch.is_initialized = True
            buffer.advance()
            return True
        buffer.poll()
        self._metrics.record_dropped([fetch])
        found.has_drained = True
        self._assignment.move_to_end(fetch.partition)
        return False

    def _initialize(self, fetch: CompletedFetch) -> bool:
        partition, data = fetch.partition, fetch.data
        # A known end offset implies a whole batch.
        has_records = not data.error_code and (fetch.known_end_offset is not None or fetch.has_whole_batch())
        if not has_records and not self._initialize_without_records(fetch):
            return False
        if not self._lag.try_updating_watermarks(
            partition, data.high_watermark, data.log_start_offset, data.last_stable_offset, fetch.fetch_offset
        ):
            log.debug("Discarding a stale fetch of %s at %d, where it is no more", partition, fetch.fetch_offset)
            return False
        if data.preferred_read_replica >= 0:
            log.debug("Updating preferred read replica for partition %s to %d", partition, data.preferred_read_replica)
            self._positions.update_preferred_read_replica(
                partition,
                data.preferred_read_replica,
                lambda: self._clock.hi_res_milliseconds() + self._preferred_read_replica_ms,
            )
        return True

    def _initialize_without_records(self, fetch: CompletedFetch) -> bool:
        """Whether a response without readable records is valid."""
        partition = fetch.partition
        if not self._positions.has_valid_position(partition):
            log.debug("Ignoring fetched data of %s, which has no valid position now", partition)
            return False
        if fetch.data.error_code:
            self._handle_error(fetch, Errors.for_code(fetch.data.error_code))
            return False
        position = self._positions.position(partition)
        if position is None or position.offset != fetch.fetch_offset:
            log.debug("Discarding a stale fetch of %s at %d; it is at %s", partition, fetch.fetch_offset, position)
            return False
        if len(fetch.records):
            raise CorruptRecordError(
                f"Failed to make progress reading messages at {partition}={fetch.fetch_offset}. Received a non-empty "
                "fetch response from the server, but no complete records were found."
            )
        return True

    def _handle_error(self, fetch: CompletedFetch, error: Errors) -> None:
        partition = fetch.partition
        recovery = recovery_of(error)
        if recovery is Recovery.RESET_OFFSET:
            self._handle_out_of_range(fetch)
        elif recovery is not Recovery.FAIL:
            level = logging.WARNING if error in _UNUSUAL else logging.DEBUG
            log.log(level, "Error in fetch of %s at offset %d: %s", partition, fetch.fetch_offset, error.name)
            if recovery is Recovery.REFRESH_METADATA:
                self._metadata.request_update()
        elif error is Errors.TOPIC_AUTHORIZATION_FAILED:
            log.warning("Not authorized to read from partition %s", partition)
            raise TopicAuthorizationError(f"Not authorized to access topics: [{partition.topic}]")
        elif error is Errors.CORRUPT_MESSAGE:
            raise CorruptRecordError(
                f"Encountered corrupt message when fetching offset {fetch.fetch_offset} for topic-partition {partition}"
            )
        else:
            raise_for_code(
                error,
                f"Unexpected error code {error.value} while fetching at offset {fetch.fetch_offset} from "
                f"topic-partition {partition}",
            )

    def _handle_out_of_range(self, fetch: CompletedFetch) -> None:
        partition = fetch.partition
        if self._positions.clear_preferred_read_replica(partition) is not None:
            # A follower may lag behind, so ask the leader next.
            log.debug("The preferred read replica of %s does not have offset %d", partition, fetch.fetch_offset)
            return
        position = self._positions.position(partition)
        if position is None or position.offset != fetch.fetch_offset:
            log.debug(
                "Offset %d of %s is out of range, but it has moved on to %s", fetch.fetch_offset, partition, position
            )
        elif self._resets.has_default_policy:
            log.info("Fetch position %s is out of range for partition %s, resetting offset", position, partition)
            self._resets.request_offset_reset_if_assigned(partition)
        else:
            raise FetchOffsetOutOfRangeError({partition: fetch.fetch_offset})
