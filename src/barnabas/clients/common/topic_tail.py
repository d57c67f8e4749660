"""Reads new records of all partitions of a topic, without a group and without commits, for commands and tools."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final, NamedTuple

from barnabas.clients.common.blocking_client import BlockingClient, raise_for
from barnabas.clients.common.fetch_client import FetchSettings
from barnabas.clients.common.fetch_session_handler import PartitionToFetch
from barnabas.clients.common.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from barnabas.clients.common.partition_errors import Recovery, recovery_of
from barnabas.clients.common.topic_reader import ClusterState, TopicReader, UnknownPartitionsError
from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.errors import Errors
from barnabas.common.topic_partition import TopicPartition
from barnabas.network.client.node import Node
from barnabas.records.batch import iter_batches
from barnabas.records.reader import Record, read_records

log = logging.getLogger(__name__)

_MAX_BYTES: Final = 4 * 1024 * 1024
_RETRY_BACKOFF_MS: Final = 100
"""The default of a consumer's ``retry.backoff.ms``."""


class TailedRecord(NamedTuple):
    """A record and its origin."""

    partition: int
    record: Record


class TopicTail:
    """The positions of a reader in each partition of a topic.

    It waits for a topic that does not exist yet, and then reads it from its beginning. After an error that may pass, it
    retries like a consumer: after a backoff, for as long as `poll` is called. Other errors are raised.
    """

    def __init__(
        self, client: BlockingClient, topic: str, *, from_beginning: bool = False, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._reader = TopicReader(client, FetchSettings(max_bytes=_MAX_BYTES))
        self._topic = topic
        self._clock = clock
        self._start = EARLIEST_TIMESTAMP if from_beginning else LATEST_TIMESTAMP
        self._state: ClusterState | None = None
        """The leaders; None if they have to be looked up again."""
        self._positions: dict[TopicPartition, int] = {}

    def poll(self, max_wait_ms: int) -> list[TailedRecord]:
        """Returns new records, or none after that time. The first call only finds the end of the topic."""
        state = self._state or self._reader.describe([self._topic])
        by_node: dict[Node, list[TopicPartition]] = {}
        for partition, leader in state.leaders.items():
            if leader.node is not None:
                by_node.setdefault(leader.node, []).append(partition)
        if not by_node:
            self._start = EARLIEST_TIMESTAMP
            self._clock.sleep(max_wait_ms)
            return []
        if not self._find_positions(state, [one for partitions in by_node.values() for one in partitions]):
            self._state = None
            return []
        self._state = state
        found: list[TailedRecord] = []
        for node, partitions in by_node.items():
            found += self._fetch(state, node, partitions, max_wait_ms // len(by_node))
        if self._state is not state:  # an error that may pass
            self._clock.sleep(min(_RETRY_BACKOFF_MS, max_wait_ms))
        return found

    def _find_positions(self, state: ClusterState, partitions: list[TopicPartition]) -> bool:
        """Looks up where to start. Returns False if a leader has moved."""
        new = [one for one in partitions if one not in self._positions]
        try:
            found = self._reader.list_offsets(dict.fromkeys(new, self._start), state)
        except UnknownPartitionsError:
            return False
        self._positions |= {one: offset or 0 for one, offset in found.items()}
        return True

    def _fetch(
        self, state: ClusterState, node: Node, partitions: list[TopicPartition], max_wait_ms: int
    ) -> list[TailedRecord]:
        wanted = {
            one: PartitionToFetch(leader.topic_id, self._positions[one], _MAX_BYTES, leader.epoch)
            for one, leader in ((one, state.leaders[one]) for one in partitions)
        }
        found: list[TailedRecord] = []
        for partition, data in self._reader.fetch(node, wanted, max_wait_ms).items():
            match recovery_of(data.error_code):
                case Recovery.NONE:
                    assert data.records is None or isinstance(data.records, bytes | bytearray | memoryview)
                    found += self._read(partition, data.records or b"")
                case Recovery.REFRESH_METADATA | Recovery.RETRY:
                    error = Errors.for_code(data.error_code)
                    level = logging.WARNING if error is Errors.UNKNOWN_SERVER_ERROR else logging.INFO
                    log.log(level, "Retrying the fetch of %s after %s", partition, error.name)
                    self._state = None
                case Recovery.RESET_OFFSET:  # the records were deleted meanwhile
                    self._positions[partition] = max(data.log_start_offset, 0)
                case Recovery.FAIL:
                    raise_for(data.error_code, f"{self._topic} cannot be read")
        return found

    def _read(self, partition: TopicPartition, records: bytes | bytearray | memoryview) -> Iterator[TailedRecord]:
        """Yields the records from the position on. The first batch may begin before it."""
        for batch in iter_batches(records, allow_partial=True):
            position = self._positions[partition]
            if not batch.is_control_batch:
                for record in read_records(batch):
                    if record.offset >= position:
                        yield TailedRecord(partition.partition, record)
            self._positions[partition] = batch.last_offset + 1
