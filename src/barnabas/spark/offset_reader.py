"""Looks up, on the driver, the partitions of a query and their first and last offsets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from barnabas.clients.common.blocking_client import ClientError
from barnabas.clients.common.fetch_session_handler import PartitionToFetch
from barnabas.clients.common.topic_reader import ClusterState, UnknownPartitionsError
from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.config_def import ConfigError
from barnabas.common.topic_partition import TopicPartition
from barnabas.records.batch import iter_batches
from barnabas.spark.cluster_client import ClusterClient
from barnabas.spark.offsets import EARLIEST, LATEST, Offsets, named
from barnabas.spark.source_options import SourceOptions
from barnabas.spark.starting_points import Point

log = logging.getLogger(__name__)

T = TypeVar("T")


class OffsetReader:
    """Looks up offsets, with retries while brokers are unavailable.

    Each request is retried ``fetchOffset.numRetries`` times, ``fetchOffset.retryIntervalMs`` apart.
    """

    def __init__(self, options: SourceOptions, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._options = options
        self._clock = clock
        self._client: ClusterClient | None = None

    @property
    def client(self) -> ClusterClient:
        """The client, made on first use, because the owner of this object is pickled before."""
        if self._client is None:
            self._client = ClusterClient(self._options.client, clock=self._clock)
        return self._client

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    # -- partitions

    def assigned(self) -> frozenset[TopicPartition]:
        """Returns the partitions that the query reads; all of them must exist."""

        def ask() -> frozenset[TopicPartition]:
            found = frozenset(self._subscribed(self._describe()))
            if missing := self._missing(found):
                raise UnknownPartitionsError(missing)
            return found

        return self._persistently(ask)

    def _describe(self) -> ClusterState:
        return self.client.reader.describe(self._options.subscription.topic_names)

    def _subscribed(self, state: ClusterState) -> Iterable[TopicPartition]:
        subscription = self._options.subscription
        if subscription.partitions is not None:
            return [one for one in subscription.partitions if one in state.leaders]
        return [
            one for one in state.leaders if subscription.matches(one.topic, is_internal=one.topic in state.internal)
        ]

    def _missing(self, found: frozenset[TopicPartition]) -> str | None:
        subscription = self._options.subscription
        if subscription.partitions is not None:
            absent = [one for one in subscription.partitions if one not in found]
            return f"assign names partitions that are not there: {named(absent)}" if absent else None
        topics = {one.topic for one in found}
        names = [name for name in subscription.topics or () if name not in topics]
        return f"subscribe names topics that are not there: {', '.join(names)}" if names else None

    # -- offsets

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return self._known(self.list_offsets(dict.fromkeys(partitions, EARLIEST)))

    def latest(self, known: Mapping[TopicPartition, int]) -> Offsets:
        """Returns the end offsets of the subscribed partitions, without deleted ones.

        An offset in `known` beyond the end means that an elected leader lacks records, or that a topic was deleted and
        created again. A broker that lags may also cause it for a moment, so the request is retried, and the last
        response is returned.
        """
        attempts = self._options.fetch_offset_attempts
        while True:
            attempts -= 1
            ends = self._persistently(self._latest_once)
            wrong = {one for one, offset in known.items() if ends.get(one, -1) < offset}
            if not wrong or attempts <= 0:
                return ends
            log.warning("The end of %s is missing, or before what has been read already; asking again", named(wrong))
            self._clock.sleep(self._options.fetch_offset_retry_interval_ms)

    def _latest_once(self) -> Offsets:
        state = self._describe()
        return self._known(self.client.reader.list_offsets(dict.fromkeys(self._subscribed(state), LATEST), state))

    @staticmethod
    def _known(offsets: Mapping[TopicPartition, int | None]) -> Offsets:
        return {one: offset or 0 for one, offset in offsets.items()}

    def list_offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Looks up offsets by timestamp in milliseconds, or -2 or -1. None where all records are older."""
        if not wanted:
            return {}
        topics = {one.topic for one in wanted}
        return self._persistently(lambda: self.client.reader.list_offsets(wanted, self.client.reader.describe(topics)))

    def resolve(self, point: Point, partitions: frozenset[TopicPartition], *, is_start: bool) -> Offsets:
        """Returns the offsets that an option means in each of these partitions."""
        chosen = point.offsets if point.offsets is not None else point.timestamps
        if chosen is not None and chosen.keys() != partitions:
            raise ConfigError(
                f"If {point.option} is given for each partition, it must name all of them, and no others. "
                f"Specified: {named(chosen)}. Assigned: {named(partitions)}.",
                name=point.option,
            )
        if point.offset is not None:
            return self._known(self.list_offsets(dict.fromkeys(partitions, point.offset)))
        if point.offsets is not None:
            words = {one: offset for one, offset in point.offsets.items() if offset < 0}
            return point.offsets | self._known(self.list_offsets(words))
        times = dict.fromkeys(partitions, point.timestamp) if point.timestamps is None else point.timestamps
        return self._by_time(point, {one: time for one, time in times.items() if time is not None}, is_start=is_start)

    def _by_time(self, point: Point, times: Mapping[TopicPartition, int], *, is_start: bool) -> Offsets:
        found = self.list_offsets(times)
        unmatched = [one for one, offset in found.items() if offset is None]
        if unmatched and is_start and not self._options.unmatched_is_latest:
            raise ConfigError(
                f"{point.option}: there is no record as new as that in {named(unmatched)}. To start at the end there, "
                "set startingOffsetsByTimestampStrategy to latest.",
                name=point.option,
            )
        ends = self._known(self.list_offsets(dict.fromkeys(unmatched, LATEST)))
        return {one: ends[one] if offset is None else offset for one, offset in found.items()}

    # -- sizes

    def bytes_per_offset(self, starts: Mapping[TopicPartition, int], sample_bytes: int) -> dict[TopicPartition, float]:
        """Estimates the log bytes per offset from the first batches at each start.

        Partitions where nothing could be read are omitted.
        """
        return self._persistently(lambda: self._sample(starts, sample_bytes))

    def _sample(self, starts: Mapping[TopicPartition, int], sample_bytes: int) -> dict[TopicPartition, float]:
        reader = self.client.reader
        leaders = reader.describe({one.topic for one in starts}).leaders
        requests = []
        for partition, offset in starts.items():
            leader = leaders.get(partition)
            if leader is not None and leader.node is not None:
                wanted = {partition: PartitionToFetch(leader.topic_id, offset, sample_bytes, leader.epoch)}
                requests.append((leader.node, wanted))
        sizes: dict[TopicPartition, float] = {}
        # In small groups, as a connection has a limited number of requests in flight.
        for first in range(0, len(requests), 4):
            posted = [reader.post_fetch(node, wanted, max_wait_ms=0) for node, wanted in requests[first : first + 4]]
            for partition, data in (row for one in posted for row in reader.wait(one).items()):
                size = span = 0
                for batch in iter_batches(data.records or b"", allow_partial=True):  # type: ignore[arg-type]
                    size += batch.size_in_bytes
                    span += batch.next_offset - batch.base_offset
                if span:
                    sizes[partition] = size / span
        return sizes

    def _persistently(self, ask: Callable[[], T]) -> T:
        """Retries while something is missing or no broker responds."""
        attempts = self._options.fetch_offset_attempts
        while True:
            attempts -= 1
            try:
                return ask()
            except ClientError as error:
                if attempts <= 0:
                    raise
                log.warning("%s; asking again", error)
                self._clock.sleep(self._options.fetch_offset_retry_interval_ms)
