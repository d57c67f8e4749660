"""Reads an offset range of a partition on an executor, as Arrow record batches.

While one response is decoded, and Spark takes the rows, the next request is in flight. The batch headers of a response
give the next fetch offset, so the next request is sent before any record is decoded::

    request 1 --> response 1
    request 2 -->             decode 1, pass it to Spark
                  response 2
    request 3 -->             decode 2, ...

Records are decoded into columns (see `barnabas.records.columns.arrow`), without a Python object per record.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from random import Random
from typing import Any, Final

import numpy as np
import pyarrow as pa

from barnabas.clients.common.blocking_client import ClientError, raise_for
from barnabas.clients.common.client_config import RETRY_BACKOFF_EXP_BASE, RETRY_BACKOFF_JITTER
from barnabas.clients.common.fetch_session_handler import PartitionToFetch
from barnabas.clients.common.partition_errors import Recovery, recovery_of
from barnabas.clients.common.topic_reader import Leader, PostedFetch, UnknownPartitionsError
from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.errors import Errors
from barnabas.network.client.exponential_backoff import ExponentialBackoff
from barnabas.network.client.node import Node
from barnabas.protocol.messages.fetch import PartitionData
from barnabas.records.batch import iter_batches
from barnabas.records.columns.arrow import fetch_columns
from barnabas.spark.cluster_client import ClusterClient
from barnabas.spark.data_loss import DataLoss
from barnabas.spark.offset_ranges import OffsetRange
from barnabas.spark.row_columns import RowColumns

log = logging.getLogger(__name__)

_MAX_REQUEST_BYTES: Final = 2**31 - 1
_MAX_ROWS: Final = 131_072
"""The maximum rows of a record batch. It bounds the JVM's memory, however well the records were compressed."""


class PartitionFetcher:
    """Yields the records of one range, in order, as record batches.

    Missing offsets within the range are not data loss: compaction removes records, and transaction markers are not
    returned. For records that retention has removed, the broker returns OFFSET_OUT_OF_RANGE.
    """

    def __init__(
        self,
        client: ClusterClient,
        wanted: OffsetRange,
        columns: RowColumns,
        data_loss: DataLoss,
        *,
        poll_timeout_ms: int,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._settings = client.settings
        self._reader = client.reader
        self._wanted = wanted
        self._partition = wanted.topic_partition
        self._columns = columns
        self._data_loss = data_loss
        self._poll_timeout_ms = poll_timeout_ms
        self._clock = clock
        self._position = wanted.start
        self._leader: Leader | None = None
        self._node: Node | None = None
        """The node to fetch from: the leader, or the preferred read replica."""
        self._max_bytes = self._settings.max_partition_fetch_bytes
        self._in_flight: PostedFetch | None = None
        self._progress_ms = clock.hi_res_milliseconds()
        """The time of the last progress."""
        self._stumbles = 0
        """The number of failures since then."""
        self._backoff = ExponentialBackoff(
            self._settings.retry_backoff_ms,
            RETRY_BACKOFF_EXP_BASE,
            self._settings.retry_backoff_max_ms,
            RETRY_BACKOFF_JITTER,
            Random(),  # noqa: S311 - spreads load, keeps no secret
        )

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while self._position < self._wanted.end:
            data = self._next_response()
            if data is None:
                continue
            records: Any = data.records
            if records is None or not len(records):
                self._nothing_there(data)
                continue
            start = self._position
            following = _next_offset(records)
            if following is None:
                # A broker returns at least one whole batch, however large; if one does not, fetch more bytes.
                if self._max_bytes >= _MAX_REQUEST_BYTES:
                    raise ClientError(f"{self._partition}: the batch at offset {start} does not come whole")
                self._max_bytes = min(2 * self._max_bytes, _MAX_REQUEST_BYTES)
                continue
            self._advance(max(following, start))
            if self._position < self._wanted.end:
                self._ask()
            yield from self._decode(records, start, data)

    # -- requests

    def _ask(self) -> None:
        if self._leader is None and not self._find_leader():
            return
        assert self._leader is not None
        assert self._node is not None
        row = PartitionToFetch(self._leader.topic_id, self._position, self._max_bytes, self._leader.epoch)
        try:
            self._in_flight = self._reader.post_fetch(self._node, {self._partition: row})
        except ClientError as error:
            self._stumble(f"{self._node} cannot be reached: {error}")

    def _next_response(self) -> PartitionData | None:
        """Waits for the request in flight, or sends one. Returns None if there is something to retry."""
        if self._in_flight is None:
            self._ask()
        if self._in_flight is None:
            return None
        request, self._in_flight = self._in_flight, None
        assert self._node is not None
        try:
            data = self._reader.wait(request)[self._partition]
        except ClientError as error:
            self._stumble(f"{self._node} did not answer: {error}")
            return None
        match recovery_of(data.error_code):
            case Recovery.RESET_OFFSET:
                self._out_of_range()
            case Recovery.REFRESH_METADATA | Recovery.RETRY:
                self._stumble(f"{self._node} says {Errors.for_code(data.error_code).name}")
            case Recovery.FAIL:
                raise_for(data.error_code, f"{self._partition} cannot be read at offset {self._position}")
            case Recovery.NONE if data.preferred_read_replica in {-1, self._node.id}:
                return data
            case Recovery.NONE:
                self._turn_to(data.preferred_read_replica)
        return None

    def _find_leader(self) -> bool:
        try:
            state = self._reader.describe([self._partition.topic])
        except ClientError as error:
            self._stumble(str(error))
            return False
        leader = state.leaders.get(self._partition)
        if leader is None:
            self._stumble(f"there is no partition {self._partition}", is_missing=True)
            return False
        if leader.node is None:
            self._stumble(f"{self._partition} has no leader")
            return False
        self._leader, self._node = leader, leader.node
        return True

    def _turn_to(self, replica: int) -> None:
        """Switches to the preferred read replica, a follower in the reader's rack (KIP-392)."""
        node = self._reader.describe([]).nodes.get(replica)
        if node is None:
            self._stumble(f"the replica on node {replica} is not there")
        else:
            self._node = node

    def _stumble(self, reason: str, *, is_missing: bool = False) -> None:
        """Handles a transient failure. After too long without progress, reports data loss or fails."""
        self._leader = self._node = None
        waited_ms = self._clock.hi_res_milliseconds() - self._progress_ms
        if is_missing and waited_ms >= min(self._settings.default_api_timeout_ms, self._poll_timeout_ms):
            self._data_loss.report(f"{self._wanted} cannot be read from {self._position} on: {reason}")
            self._position = self._wanted.end
        elif waited_ms >= self._poll_timeout_ms:
            raise ClientError(
                f"{self._wanted}: nothing could be read from {self._position} on for {waited_ms} ms: {reason}"
            )
        else:
            log.info("%s: %s; trying again", self._wanted, reason)
            self._clock.sleep(self._backoff.backoff(self._stumbles))
            self._stumbles += 1

    def _advance(self, position: int) -> None:
        self._position = position
        self._progress_ms = self._clock.hi_res_milliseconds()
        self._stumbles = 0

    # -- responses

    def _out_of_range(self) -> None:
        """Handles OFFSET_OUT_OF_RANGE: looks up the log start offset and continues there."""
        try:
            state = self._reader.describe([self._partition.topic])
            earliest = self._reader.list_offsets({self._partition: -2}, state)[self._partition] or 0
            latest = self._reader.list_offsets({self._partition: -1}, state)[self._partition] or 0
        except UnknownPartitionsError as error:
            self._stumble(str(error), is_missing=self._partition in error.partitions)
            return
        except ClientError as error:
            self._stumble(str(error))
            return
        if earliest <= self._position <= latest:
            self._stumble(f"{self._node} did not know offset {self._position}")
            return
        if self._position > latest:
            self._data_loss.report(
                f"{self._wanted}: offset {self._position} is beyond the end of the partition, {latest}; it may have "
                "been deleted and created again"
            )
            self._position = self._wanted.end
            return
        self._data_loss.report(
            f"{self._wanted}: the records before offset {earliest} are gone, and {self._position} is the next to read"
        )
        self._advance(min(earliest, self._wanted.end))

    def _nothing_there(self, data: PartitionData) -> None:
        """Handles an empty response within the range: the log was truncated, or is about to grow."""
        waited_ms = self._clock.hi_res_milliseconds() - self._progress_ms
        if waited_ms >= self._poll_timeout_ms:
            raise ClientError(
                f"{self._wanted}: cannot read offset {self._position} within {self._poll_timeout_ms} ms "
                f"(kafkaConsumer.pollTimeoutMs): the partition ends at {data.high_watermark}"
            )

    def _decode(self, records: Any, start: int, data: PartitionData) -> Iterator[pa.RecordBatch]:
        settings = self._settings
        aborted = None
        if settings.read_committed:
            aborted = [(one.producer_id, one.first_offset) for one in data.aborted_transactions or ()]
        overshoots = self._position > self._wanted.end
        names = self._columns.decoded(with_offset=overshoots)
        table = fetch_columns(
            records, columns=names, start_offset=start, aborted=aborted, check_crc=settings.check_crcs
        ).table
        for batch in table.to_batches():
            if overshoots:
                # The last batch extends beyond the range: the rest belongs to another task or micro-batch.
                offsets = batch.column(names.index("offset")).to_numpy(zero_copy_only=True)
                batch = batch.slice(0, int(np.searchsorted(offsets, self._wanted.end)))  # noqa: PLW2901
            for first in range(0, batch.num_rows, _MAX_ROWS):
                yield self._columns.rows(batch.slice(first, _MAX_ROWS))


def _next_offset(records: Any) -> int | None:
    """Returns the offset after the last complete batch of a response."""
    following = None
    for batch in iter_batches(records, allow_partial=True):
        following = batch.next_offset
    return following
