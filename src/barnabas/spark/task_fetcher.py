"""Fetches the offset ranges of a task on an executor, as Arrow record batches.

A request to a broker names as many of its partitions as probably fit into one response. While a response is decoded,
and Spark takes the rows, the next request is in flight. The batch headers of a response give the next fetch offsets, so
the next request is sent before any record is decoded::

    request 1: a b c --> response 1: a, b, and half of c
    request 2: c d e -->             decode 1, pass it to Spark
                         response 2: the rest of c, d, e
    request 3: f g   -->             decode 2, ...

If the partitions have several leaders, one request to each of them is in flight.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from random import Random
from typing import Any, Final, NamedTuple

import pyarrow as pa

from barnabas.clients.common.blocking_client import ClientError, raise_for
from barnabas.clients.common.client_config import RETRY_BACKOFF_EXP_BASE, RETRY_BACKOFF_JITTER
from barnabas.clients.common.fetch_session_handler import PartitionToFetch
from barnabas.clients.common.partition_errors import Recovery, recovery_of
from barnabas.clients.common.topic_reader import PostedFetch, UnknownPartitionsError
from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.errors import Errors
from barnabas.common.topic_partition import TopicPartition
from barnabas.network.client.exponential_backoff import ExponentialBackoff
from barnabas.network.client.node import Node
from barnabas.protocol.messages.fetch import PartitionData
from barnabas.records.batch import iter_batches
from barnabas.spark.cluster_client import ClusterClient
from barnabas.spark.data_loss import DataLoss
from barnabas.spark.fetched_rows import FetchedRecords, FetchedRows
from barnabas.spark.offset_ranges import ReadTask
from barnabas.spark.offsets import EARLIEST, LATEST
from barnabas.spark.range_progress import RangeProgress
from barnabas.spark.row_columns import RowColumns

log = logging.getLogger(__name__)

_MAX_REQUEST_BYTES: Final = 2**31 - 1
_FIRST_WIDTH: Final = 32
_MAX_WIDTH: Final = 1000
"""The number of partitions in a request: of the first one, and of the largest."""


class _Request(NamedTuple):
    """A fetch request in flight."""

    posted: PostedFetch
    ranges: list[RangeProgress]


class TaskFetcher:
    """Yields the records of the ranges of a task as record batches, the records of each range in order.

    Missing offsets within a range are not data loss: compaction removes records, and transaction markers are not
    returned. For records that retention has removed, the broker returns OFFSET_OUT_OF_RANGE.

    A range waits in the queue of its node, is part of a request, or waits for the time to look up its leader again
    (`_without_leader`). Failures of one range do not delay the others.
    """

    def __init__(
        self,
        client: ClusterClient,
        task: ReadTask,
        columns: tuple[str, ...],
        data_loss: DataLoss,
        *,
        poll_timeout_ms: int,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._settings = client.settings
        self._reader = client.reader
        self._rows = FetchedRows(RowColumns(columns), check_crc=self._settings.check_crcs)
        self._data_loss = data_loss
        self._poll_timeout_ms = poll_timeout_ms
        self._clock = clock
        self._nodes: dict[int, Node] = {}
        self._queues: dict[Node, deque[RangeProgress]] = {}
        self._in_flight: dict[Node, _Request] = {}
        self._without_leader: list[RangeProgress] = []
        self._width = _FIRST_WIDTH
        """How many partitions the next request may name."""
        self._backoff = ExponentialBackoff(
            self._settings.retry_backoff_ms,
            RETRY_BACKOFF_EXP_BASE,
            self._settings.retry_backoff_max_ms,
            RETRY_BACKOFF_JITTER,
            Random(),  # noqa: S311 - spreads load, keeps no secret
        )
        for wanted in task.ranges:
            progress = RangeProgress(wanted, self._settings.max_partition_fetch_bytes)
            leader = task.leaders.get(progress.partition)
            if leader is not None and leader.node is not None:
                progress.lead_by(leader)
                self._enqueue(progress)
            else:
                self._without_leader.append(progress)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while True:
            self._post_requests()
            if not self._in_flight:
                if not self._without_leader:
                    return
                due_ms = min(one.retry_at_ms for one in self._without_leader)
                self._clock.sleep(max(0.0, due_ms - self._clock.hi_res_milliseconds()))
                continue
            fetched = self._receive(next(iter(self._in_flight)))
            self._post_requests()
            yield from self._rows.decode(fetched)

    def _enqueue(self, progress: RangeProgress) -> None:
        assert progress.node is not None
        self._queues.setdefault(progress.node, deque()).append(progress)

    # -- requests

    def _post_requests(self) -> None:
        """Sends a request to each node that has none in flight, if it has ranges to read."""
        self._find_leaders()
        for node in [one for one, queue in self._queues.items() if queue and one not in self._in_flight]:
            queue = self._queues[node]
            ranges = list(islice(queue, self._width))
            for _ in ranges:
                queue.popleft()
            try:
                posted = self._reader.post_fetch(
                    node, {one.partition: _row(one) for one in ranges}, max_bytes=self._max_bytes(ranges)
                )
            except ClientError as error:
                self._retry_all(ranges, f"{node} cannot be reached: {error}")
            else:
                self._in_flight[node] = _Request(posted, ranges)

    def _max_bytes(self, ranges: Sequence[RangeProgress]) -> int:
        """Returns the limit of a response: that of one partition, unless a batch needs more."""
        settings = self._settings
        needed = max(one.max_bytes for one in ranges)
        if needed > settings.max_partition_fetch_bytes:
            return needed
        return min(settings.fetch_max_bytes, settings.max_partition_fetch_bytes)

    def _find_leaders(self) -> None:
        """Looks up the leaders of all ranges that are due, with one request."""
        now = self._clock.hi_res_milliseconds()
        due = [one for one in self._without_leader if one.retry_at_ms <= now]
        if not due:
            return
        self._without_leader = [one for one in self._without_leader if one.retry_at_ms > now]
        try:
            state = self._reader.describe({one.partition.topic for one in due})
        except ClientError as error:
            self._retry_all(due, str(error))
            return
        self._nodes = dict(state.nodes)
        for one in due:
            leader = state.leaders.get(one.partition)
            if leader is None:
                self._retry(one, f"there is no partition {one.partition}", is_missing=True)
            elif leader.node is None:
                self._retry(one, f"{one.partition} has no leader")
            else:
                one.lead_by(leader)
                self._enqueue(one)

    def _retry_all(self, ranges: Sequence[RangeProgress], reason: str) -> None:
        for one in ranges:
            self._retry(one, reason)

    def _retry(self, failed: RangeProgress, reason: str, *, is_missing: bool = False) -> None:
        """Handles a transient failure. After too long without progress, reports data loss or fails."""
        now = self._clock.hi_res_milliseconds()
        if failed.failing_since_ms is None:
            failed.failing_since_ms = now
        waited_ms = now - failed.failing_since_ms
        if is_missing and waited_ms >= min(self._settings.default_api_timeout_ms, self._poll_timeout_ms):
            self._data_loss.report(f"{failed.wanted} cannot be read from {failed.position} on: {reason}")
            failed.finish()
        elif waited_ms >= self._poll_timeout_ms:
            raise ClientError(
                f"{failed.wanted}: nothing could be read from {failed.position} on for {waited_ms:.0f} ms: {reason}"
            )
        else:
            log.info("%s: %s; trying again", failed.wanted, reason)
            failed.retry_at_ms = now + self._backoff.backoff(failed.failures)
            failed.failures += 1
            self._without_leader.append(failed)

    # -- responses

    def _receive(self, node: Node) -> list[FetchedRecords]:
        """Waits for the response of a node, and puts ranges that are not done back into their queue.

        They come first, so that as few partitions as possible are half read at any time.
        """
        posted, ranges = self._in_flight.pop(node)
        try:
            response = self._reader.wait(posted)
        except ClientError as error:
            self._retry_all(ranges, f"{node} did not respond: {error}")
            return []
        fetched: list[FetchedRecords] = []
        unfinished: list[RangeProgress] = []
        truncated: list[RangeProgress] = []
        out_of_range: list[RangeProgress] = []
        for one in ranges:
            data = response[one.partition]
            match recovery_of(data.error_code):
                case Recovery.RESET_OFFSET:
                    out_of_range.append(one)
                case Recovery.REFRESH_METADATA | Recovery.RETRY:
                    self._retry(one, f"{node} returned {Errors.for_code(data.error_code).name}")
                case Recovery.FAIL:
                    raise_for(data.error_code, f"{one.partition} cannot be read at offset {one.position}")
                case Recovery.NONE if data.preferred_read_replica not in {-1, node.id}:
                    self._turn_to(one, data.preferred_read_replica)
                case Recovery.NONE:
                    records: Any = data.records
                    if records is not None and len(records):
                        found = self._take(one, records, data)
                        if found is None:
                            truncated.append(one)
                        else:
                            fetched.append(found)
                    if not one.is_done:
                        unfinished.append(one)
        if unfinished and not fetched:
            self._nothing_came(unfinished, truncated, response)
        self._queues[node].extendleft(reversed(unfinished))
        self._adapt_width(asked=len(ranges), served=len(fetched))
        if out_of_range:
            self._reset(out_of_range)
        return fetched

    def _take(self, progress: RangeProgress, records: Any, data: PartitionData) -> FetchedRecords | None:
        """Moves a range forward by the batches of a response; returns None if not even one is complete."""
        start = progress.position
        following = _next_offset(records)
        if following is None:
            return None
        progress.advance(max(following, start))
        end = progress.wanted.end if progress.position > progress.wanted.end else None
        aborted = None
        if self._settings.read_committed:
            aborted = [(one.producer_id, one.first_offset) for one in data.aborted_transactions or ()]
        return FetchedRecords(progress.partition, records, start, end, aborted)

    def _adapt_width(self, *, asked: int, served: int) -> None:
        """Lets the next request name as many partitions as fit into a response, judging by the last one."""
        if served < asked:
            self._width = max(1, served) + 1
        elif asked >= self._width:
            self._width = min(2 * self._width, _MAX_WIDTH)

    def _nothing_came(
        self,
        ranges: Sequence[RangeProgress],
        truncated: Sequence[RangeProgress],
        response: dict[TopicPartition, PartitionData],
    ) -> None:
        """Handles a response without a complete batch: a batch was too large, or the log ends before the range does.

        A broker returns at least one complete batch, however large; if one does not, the next request asks for more.
        A log ends early if it was truncated, or is about to grow.
        """
        now = self._clock.hi_res_milliseconds()
        for one in truncated:
            if one.max_bytes >= _MAX_REQUEST_BYTES:
                raise ClientError(f"{one.partition}: the broker does not return the whole batch at {one.position}")
            one.max_bytes = min(2 * one.max_bytes, _MAX_REQUEST_BYTES)
        if truncated:
            return
        for one in ranges:
            if one.empty_since_ms is None:
                one.empty_since_ms = now
            if now - one.empty_since_ms >= self._poll_timeout_ms:
                raise ClientError(
                    f"{one.wanted}: cannot read offset {one.position} within {self._poll_timeout_ms} ms "
                    f"(kafkaConsumer.pollTimeoutMs): the partition ends at {response[one.partition].high_watermark}"
                )

    def _turn_to(self, progress: RangeProgress, replica: int) -> None:
        """Switches to the preferred read replica, a follower in the reader's rack (KIP-392)."""
        if replica not in self._nodes:
            try:
                self._nodes = dict(self._reader.describe([]).nodes)
            except ClientError as error:
                self._retry(progress, str(error))
                return
        node = self._nodes.get(replica)
        if node is None:
            self._retry(progress, f"the replica on node {replica} is not available")
        else:
            progress.node = node
            self._enqueue(progress)

    def _reset(self, ranges: Sequence[RangeProgress]) -> None:
        """Handles OFFSET_OUT_OF_RANGE: looks up the log start offsets and continues there."""
        try:
            state = self._reader.describe({one.partition.topic for one in ranges})
            partitions = [one.partition for one in ranges]
            earliest = self._reader.list_offsets(dict.fromkeys(partitions, EARLIEST), state)
            latest = self._reader.list_offsets(dict.fromkeys(partitions, LATEST), state)
        except UnknownPartitionsError as error:
            for one in ranges:
                self._retry(one, str(error), is_missing=one.partition in error.partitions)
            return
        except ClientError as error:
            self._retry_all(ranges, str(error))
            return
        for one in ranges:
            self._continue(one, earliest[one.partition] or 0, latest[one.partition] or 0)

    def _continue(self, progress: RangeProgress, earliest: int, latest: int) -> None:
        """Continues a range whose offset was out of range, where the log begins now."""
        wanted, position = progress.wanted, progress.position
        if earliest <= position <= latest:
            self._retry(progress, f"{progress.node} did not know offset {position}")
        elif position > latest:
            self._data_loss.report(
                f"{wanted}: offset {position} is beyond the end of the partition, {latest}; it may have been deleted "
                "and created again"
            )
            progress.finish()
        else:
            self._data_loss.report(
                f"{wanted}: the records before offset {earliest} are gone, and {position} is the next to read"
            )
            progress.advance(min(earliest, wanted.end))
            if not progress.is_done:
                self._enqueue(progress)


def _row(progress: RangeProgress) -> PartitionToFetch:
    leader = progress.leader
    assert leader is not None
    return PartitionToFetch(leader.topic_id, progress.position, progress.max_bytes, leader.epoch)


def _next_offset(records: Any) -> int | None:
    """Returns the offset after the last complete batch of a response."""
    following = None
    for batch in iter_batches(records, allow_partial=True):
        following = batch.next_offset
    return following
