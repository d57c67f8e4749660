"""Looks up, on the driver, the partitions of a query and their first and last offsets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import nlargest
from typing import Final, TypeVar

from barnabas.clients.common.blocking_client import ClientError
from barnabas.clients.common.fetch_session_handler import PartitionToFetch
from barnabas.clients.common.topic_reader import ClusterState, Leader, UnknownPartitionsError
from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.config_def import ConfigError
from barnabas.common.topic_partition import TopicPartition
from barnabas.network.client.node import Node
from barnabas.records.batch import iter_batches
from barnabas.spark.client_settings import ClientSettings
from barnabas.spark.cluster_client import ClusterClient
from barnabas.spark.offset_ranges import OffsetRange
from barnabas.spark.offsets import EARLIEST, LATEST, Offsets, named
from barnabas.spark.source_options import SourceOptions
from barnabas.spark.starting_points import Point

log = logging.getLogger(__name__)

T = TypeVar("T")

_SAMPLED_PARTITIONS: Final = 64
_SAMPLE_BYTES: Final = 64 * 1024
"""How many partitions are read to estimate the size of records, and how much of each."""


class SubscriptionError(UnknownPartitionsError):
    """A query names topics or partitions that do not exist."""


class OffsetReader:
    """Looks up offsets, with retries while brokers are unavailable.

    Each lookup is retried ``fetchOffset.numRetries`` times, ``fetchOffset.retryIntervalMs`` apart. A query that has
    reached the cluster before goes on for ``kafka.default.api.timeout.ms``: a broker that is restarted, or whose
    partitions get other leaders, must not end a stream. One that has not, such as one with a wrong address, fails soon.

    The lookups of a batch take one metadata request and one round of ListOffsets requests, one to each leader, however
    many partitions there are.
    """

    def __init__(
        self,
        options: SourceOptions,
        *,
        clock: Clock = SYSTEM_CLOCK,
        new_client: Callable[[ClientSettings], ClusterClient] = ClusterClient,
    ) -> None:
        self._options = options
        self._clock = clock
        self._new_client = new_client
        self._client: ClusterClient | None = None
        self._state: ClusterState | None = None
        """The metadata of the last lookup."""

    @property
    def client(self) -> ClusterClient:
        """The client, created on first use, because the owner of this object is pickled before that."""
        if self._client is None:
            self._client = self._new_client(self._options.client)
        return self._client

    @property
    def leaders(self) -> Mapping[TopicPartition, Leader]:
        """The leaders of partitions at the time of the last lookup; empty before the first one."""
        return {} if self._state is None else self._state.leaders

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    # -- partitions

    def _describe(self) -> ClusterState:
        self._state = self.client.reader.describe(self._options.subscription.topic_names)
        return self._state

    def _subscribed(self, state: ClusterState) -> Iterable[TopicPartition]:
        subscription = self._options.subscription
        if subscription.partitions is not None:
            return [one for one in subscription.partitions if one in state.leaders]
        if subscription.pattern is None:
            return state.leaders
        topics = {one.topic for one in state.leaders}
        matching = {one for one in topics if subscription.matches(one, is_internal=one in state.internal)}
        return [one for one in state.leaders if one.topic in matching]

    def _assigned(self, state: ClusterState) -> frozenset[TopicPartition]:
        """Returns the partitions that the query reads; raises `SubscriptionError` unless all of them exist."""
        found = frozenset(self._subscribed(state))
        subscription = self._options.subscription
        if subscription.partitions is not None:
            absent = [one for one in subscription.partitions if one not in found]
            if absent:
                raise SubscriptionError(f"assign names partitions that do not exist: {named(absent)}")
        topics = {one.topic for one in found}
        names = [name for name in subscription.topics or () if name not in topics]
        if names:
            raise SubscriptionError(f"subscribe names topics that do not exist: {', '.join(names)}")
        return found

    # -- offsets

    def resolve(self, *points: Point) -> list[Offsets]:
        """Returns, for each point, the offset that it means in each partition of the query."""

        def ask() -> tuple[ClusterState, list[dict[TopicPartition, int | None]]]:
            state = self._describe()
            assigned = self._assigned(state)
            return state, self.client.reader.list_several([_lookup(one, assigned) for one in points], state)

        state, found = self._persistently(ask)
        return [self._resolved(point, offsets, state) for point, offsets in zip(points, found, strict=True)]

    def _resolved(self, point: Point, found: Mapping[TopicPartition, int | None], state: ClusterState) -> Offsets:
        if point.offsets is not None:
            return point.offsets | _known(found)
        if point.offset is not None:
            return _known(found)
        unmatched = [one for one, offset in found.items() if offset is None]
        if unmatched and point.is_start and not self._options.unmatched_is_latest:
            raise ConfigError(
                f"{point.option}: all records are older in {named(unmatched)}. To start at the end there, "
                "set startingOffsetsByTimestampStrategy to latest.",
                name=point.option,
            )
        ends = _known(self._list(dict.fromkeys(unmatched, LATEST), state)) if unmatched else {}
        return {one: ends[one] if offset is None else offset for one, offset in found.items()}

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return _known(self.list_offsets(dict.fromkeys(partitions, EARLIEST)))

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
            log.warning("The end offset of %s is missing, or lower than the last offset read; retrying", named(wrong))
            self._clock.sleep(self._options.fetch_offset_retry_interval_ms)

    def _latest_once(self) -> Offsets:
        state = self._describe()
        return _known(self.client.reader.list_offsets(dict.fromkeys(self._subscribed(state), LATEST), state))

    def list_offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Looks up offsets by timestamp in milliseconds, or -2 or -1. None where all records are older."""
        return self._list(wanted, self._state) if wanted else {}

    def _list(
        self, wanted: Mapping[TopicPartition, int], state: ClusterState | None
    ) -> dict[TopicPartition, int | None]:
        return self._with_leaders(state, lambda known: self.client.reader.list_offsets(wanted, known))

    def _with_leaders(self, state: ClusterState | None, ask: Callable[[ClusterState], T]) -> T:
        """Asks leaders by the cached metadata, and by new metadata each time that fails: they may have moved."""
        if state is not None:
            try:
                return ask(state)
            except ClientError as error:
                log.info("%s; looking up the leaders again", error)
        return self._persistently(lambda: ask(self._describe()))

    # -- sizes

    def bytes_per_offset(self, ranges: Sequence[OffsetRange]) -> dict[TopicPartition, float]:
        """Estimates the log bytes per offset from the first batches of the largest of these ranges.

        It takes one request to each leader. Partitions where nothing could be read are omitted.
        """
        sampled = nlargest(_SAMPLED_PARTITIONS, ranges, key=lambda one: one.end - one.start)
        return self._with_leaders(self._state, lambda state: self._sample(sampled, state.leaders))

    def _sample(
        self, ranges: Sequence[OffsetRange], leaders: Mapping[TopicPartition, Leader]
    ) -> dict[TopicPartition, float]:
        reader = self.client.reader
        by_node: dict[Node, dict[TopicPartition, PartitionToFetch]] = {}
        for one in ranges:
            leader = leaders.get(one.topic_partition)
            if leader is not None and leader.node is not None:
                row = PartitionToFetch(leader.topic_id, one.start, _SAMPLE_BYTES, leader.epoch)
                by_node.setdefault(leader.node, {})[one.topic_partition] = row
        posted = [
            reader.post_fetch(node, wanted, max_wait_ms=0, max_bytes=_SAMPLE_BYTES * len(wanted))
            for node, wanted in by_node.items()
        ]
        sizes: dict[TopicPartition, float] = {}
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
        patience_ms = 0 if self._state is None else self._options.client.default_api_timeout_ms
        deadline = self._clock.hi_res_milliseconds() + patience_ms
        while True:
            attempts -= 1
            try:
                return ask()
            except ClientError as error:
                is_patient = self._clock.hi_res_milliseconds() < deadline and not isinstance(error, SubscriptionError)
                if attempts <= 0 and not is_patient:
                    raise
                log.warning("%s; retrying", error)
                self._clock.sleep(self._options.fetch_offset_retry_interval_ms)


def _lookup(point: Point, partitions: frozenset[TopicPartition]) -> Mapping[TopicPartition, int]:
    """Returns the timestamp to look up in each partition for a point; -2 or -1 for its earliest or latest offset."""
    chosen = point.offsets if point.offsets is not None else point.timestamps
    if chosen is not None and chosen.keys() != partitions:
        raise ConfigError(
            f"If {point.option} is given for each partition, it must name all of them, and no others. "
            f"Specified: {named(chosen)}. Assigned: {named(partitions)}.",
            name=point.option,
        )
    if point.offsets is not None:
        return {one: offset for one, offset in point.offsets.items() if offset < 0}
    if point.timestamps is not None:
        return point.timestamps
    for_all = point.timestamp if point.offset is None else point.offset
    assert for_all is not None
    return dict.fromkeys(partitions, for_all)


def _known(offsets: Mapping[TopicPartition, int | None]) -> Offsets:
    return {one: offset or 0 for one, offset in offsets.items()}
