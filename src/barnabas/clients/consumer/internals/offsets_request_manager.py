"""Looks up offsets: log start and end, by timestamp, and to validate positions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Final, NamedTuple

from barnabas.clients.common.list_offsets import LATEST_TIMESTAMP
from barnabas.clients.common.offsets import OffsetAndMetadata
from barnabas.clients.common.partition_errors import Recovery, recovery_of
from barnabas.clients.consumer.auto_offset_reset import AutoOffsetResetStrategy, StrategyType
from barnabas.clients.consumer.consumer_config import IsolationLevel
from barnabas.clients.consumer.errors import LogTruncationError, NoOffsetForPartitionError
from barnabas.clients.consumer.internals.background_events import BackgroundEventQueue, ErrorEvent
from barnabas.clients.consumer.internals.background_future import new_future
from barnabas.clients.consumer.internals.consumer_metadata import ConsumerMetadata
from barnabas.clients.consumer.internals.fetch_position import FetchPosition
from barnabas.clients.consumer.internals.list_offsets import (
    FoundOffset,
    ListOffsetsQuestion,
    ListOffsetsRequester,
)
from barnabas.clients.consumer.internals.request_managers import (
    EMPTY,
    FOREVER,
    PatientRequestManager,
    PollResult,
    UnsentRequest,
)
from barnabas.clients.consumer.internals.subscription_state import SubscriptionState
from barnabas.common.clock import Clock
from barnabas.common.errors import BarnabasError, Errors, TopicAuthorizationError
from barnabas.common.topic_partition import TopicPartition
from barnabas.network.client.client_request import ClientResponse
from barnabas.network.client.node import Node
from barnabas.network.client.node_api_versions import ApiVersions
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.protocol.versions import VersionRange

log = logging.getLogger(__name__)

Committed = Mapping[TopicPartition, OffsetAndMetadata | None]
FetchCommitted = Callable[[Collection[TopicPartition], int], "Future[Committed]"]

_CONSUMER: Final = -1
_FIRST_EPOCH_VERSION: Final = 3
"""The first usable version of OffsetForLeaderEpoch: older ones need cluster permissions, which consumers lack."""


class OffsetsSettings(NamedTuple):
    isolation_level: IsolationLevel
    retry_backoff_ms: int
    request_timeout_ms: int
    default_api_timeout_ms: int


class OffsetsRequestManager(PatientRequestManager):
    """Gives every partition a position, and keeps positions valid.

    A new partition starts at the group's committed offset; else its position is *reset* to the end, the beginning or a
    time, as ``auto.offset.reset`` says. This begins when the application polls or requests a position, because until
    then it may still seek.

    **Validation** (KIP-320). Each position carries the leader epoch of the record before it. A new leader of the
    partition is asked where this epoch ends in *its* log. If that is before the position, the log was truncated after
    an unclean election, and the records read beyond that point are gone: the consumer goes back there, or raises an
    error if there is no reset policy. Otherwise it would skip the records written there next.
    """

    def __init__(
        self,
        subscriptions: SubscriptionState,
        metadata: ConsumerMetadata,
        background_events: BackgroundEventQueue,
        api_versions: ApiVersions,
        settings: OffsetsSettings,
        *,
        fetch_committed: FetchCommitted | None,
        clock: Clock,
    ) -> None:
        """``fetch_committed`` fetches the group's committed offsets; None if there is no group."""
        self._assignment = subscriptions.assignment
        self._positions = subscriptions.positions
        self._resets = subscriptions.resets
        self._validation = subscriptions.validation
        self._lag = subscriptions.lag
        self._metadata = metadata
        self._events = background_events
        self._api_versions = api_versions
        self._settings = settings
        self._fetch_committed = fetch_committed
        self._clock = clock
        self._requester = ListOffsetsRequester(metadata, settings.isolation_level, settings.request_timeout_ms)
        self._questions: list[ListOffsetsQuestion] = []
        self._seen_metadata_version = -1
        self._committed: Future[Committed] | None = None

    # -- queries of the application

    def fetch_offsets(
        self, timestamps: Mapping[TopicPartition, int], deadline_ms: int
    ) -> Future[dict[TopicPartition, FoundOffset | None]]:
        """Looks up the offsets for timestamps, including special ones such as `LATEST_TIMESTAMP`."""
        topics = {partition.topic for partition in timestamps}
        self._metadata.add_transient_topics(topics)
        question = ListOffsetsQuestion(timestamps, deadline_ms, new_future())
        question.future.add_done_callback(lambda _future: self._metadata.remove_transient_topics(topics))
        self._questions.append(question)
        return question.future

    def request_end_offset(self, partition: TopicPartition) -> None:
        """Requests the unknown end offset of a partition, for `current_lag`."""
        deadline_ms = self._clock.hi_res_milliseconds() + self._settings.default_api_timeout_ms
        future = self.fetch_offsets({partition: LATEST_TIMESTAMP}, deadline_ms)

        def done(ended: Future[dict[TopicPartition, FoundOffset | None]]) -> None:
            found = None if ended.exception() is not None else ended.result().get(partition)
            if found is not None:
                self._lag.update_end_offset(partition, found.offset, self._settings.isolation_level)

        future.add_done_callback(done)

    # -- positions

    def update_positions(self, now: int) -> None:
        """Gives positions to partitions without one, when the application needs records or a position."""
        self._validate_for_new_metadata()
        initializing = self._positions.initializing_partitions()
        if not initializing:
            return
        if self._fetch_committed is None:
            self._reset_initializing(initializing)
            return
        if self._committed is not None and not self._committed.done():
            return  # partitions added since then are requested next
        asked = frozenset(initializing)
        self._committed = self._fetch_committed(asked, now + self._settings.default_api_timeout_ms)
        self._committed.add_done_callback(lambda future: self._on_committed(asked, future))

    def _on_committed(self, asked: frozenset[TopicPartition], future: Future[Committed]) -> None:
        self._committed = None
        error = future.exception()
        if error is not None:
            # The next poll retries transient errors.
            if not getattr(error, "retriable", False):
                self._events.put(ErrorEvent(error))
            return
        found = future.result()
        still = self._positions.initializing_partitions()
        for partition in asked & still:
            offset = found.get(partition)
            if offset is None:
                continue
            leader = self._metadata.current_leader(partition)
            position = FetchPosition(offset.offset, offset.leader_epoch, leader)
            log.info("Setting offset for partition %s to the committed offset %s", partition, position)
            self._positions.seek_unvalidated(partition, position)
        self._reset_initializing({partition for partition in asked & still if found.get(partition) is None})

    def _reset_initializing(self, partitions: Collection[TopicPartition]) -> None:
        try:
            self._resets.reset_initializing_positions(partitions)
        except NoOffsetForPartitionError as error:
            self._events.put(ErrorEvent(error))

    def _validate_for_new_metadata(self) -> None:
        metadata = self._metadata
        version = metadata.update_version
        if version == self._seen_metadata_version:
            return
        self._seen_metadata_version = version
        for partition in self._assignment.in_fetch_order():
            self._check_leader(partition)

    def _check_leader(self, partition: TopicPartition) -> None:
        leader = self._metadata.current_leader(partition)
        can_validate = leader.leader is None or self._can_validate(leader.leader)
        self._validation.maybe_validate_position_for_current_leader(partition, leader, can_validate=can_validate)

    def _can_validate(self, node: Node) -> bool:
        versions = self._api_versions.get(node.id_string)
        if versions is None:
            return True
        spoken = versions.supported.get(ApiKey.OFFSET_FOR_LEADER_EPOCH)
        return spoken is not None and spoken.highest >= _FIRST_EPOCH_VERSION

    # -- background loop

    def poll(self, now: int) -> PollResult:
        if self._metadata.update_version != self._seen_metadata_version:
            self._validate_for_new_metadata()
        if not self._questions and self._positions.all_settled():
            return EMPTY
        requests: list[UnsentRequest] = []
        if self._assignment:
            self._give_leaders()
            requests += self._reset_requests(now)
            requests += self._validation_requests(now)
        wait_ms = FOREVER
        for question in list(self._questions):
            more, question_wait_ms = self._requester.advance(question, now, self._settings.retry_backoff_ms)
            requests += more
            wait_ms = min(wait_ms, question_wait_ms)
            if question.future.done():
                self._questions.remove(question)
        retry_ms = self._positions.time_until_next_retry(now)
        if retry_ms is not None:
            wait_ms = min(wait_ms, max(retry_ms, 1))
        if not requests and wait_ms == FOREVER:
            return EMPTY
        return PollResult(wait_ms, requests)

    def _give_leaders(self) -> None:
        """Adds the leader to positions that the application has sought to."""
        for partition in self._positions.partitions_without_leader():
            leader = self._metadata.current_leader(partition)
            if leader.leader is not None:
                self._check_leader(partition)
            else:
                self._metadata.request_update()

    def poll_on_close(self, now: int) -> PollResult:  # noqa: ARG002 - nobody waits for positions any more
        return EMPTY

    # -- reset

    def _reset_requests(self, now: int) -> list[UnsentRequest]:
        strategies = self._resets.partitions_needing_reset(now)
        if not strategies:
            return []
        date_ms = self._clock.milliseconds()
        timestamps = {partition: strategy.timestamp(date_ms) for partition, strategy in strategies.items()}
        by_node, unknown = self._requester.group(timestamps)
        if unknown:
            self._metadata.request_update()
            self._positions.set_next_allowed_retry(unknown, now + self._settings.retry_backoff_ms)
        requests = []
        for node, rows in by_node.items():
            # No second request before this one has ended.
            self._positions.set_next_allowed_retry(rows, now + self._settings.request_timeout_ms)
            requests.append(self._requester.request(node, rows, partial(self._on_reset, rows, strategies)))
        return requests

    def _on_reset(
        self,
        asked: Mapping[TopicPartition, int],
        strategies: Mapping[TopicPartition, AutoOffsetResetStrategy],
        found: Mapping[TopicPartition, FoundOffset | None],
        failed: Mapping[TopicPartition, Errors],
        now: int,
    ) -> None:
        later: list[TopicPartition] = []
        for partition, timestamp in asked.items():
            if partition in failed:
                if failed[partition] is Errors.TOPIC_AUTHORIZATION_FAILED:
                    self._events.put(
                        ErrorEvent(TopicAuthorizationError(f"Not authorized to access topics: [{partition.topic}]"))
                    )
                later.append(partition)
                continue
            offset = found.get(partition)
            if offset is None:
                if strategies[partition].type is StrategyType.BY_DURATION and timestamp != LATEST_TIMESTAMP:
                    self._nothing_since(partition, strategies[partition], now)
                else:
                    later.append(partition)
                continue
            self._resets.maybe_complete_reset(
                partition,
                FetchPosition(offset.offset, None, self._metadata.current_leader(partition)),
                strategies[partition],
            )
        if later:
            self._metadata.request_update()
            self._positions.set_next_allowed_retry(later, now + self._settings.retry_backoff_ms)

    def _nothing_since(self, partition: TopicPartition, strategy: AutoOffsetResetStrategy, now: int) -> None:
        """Resets to the end: all records are older than the duration allows."""
        future = self.fetch_offsets({partition: LATEST_TIMESTAMP}, now + self._settings.default_api_timeout_ms)

        def done(ended: Future[dict[TopicPartition, FoundOffset | None]]) -> None:
            end = None if ended.exception() is not None else ended.result().get(partition)
            if end is None:
                self._positions.set_next_allowed_retry((partition,), self._clock.hi_res_milliseconds())
            else:
                self._resets.maybe_complete_reset(
                    partition, FetchPosition(end.offset, None, self._metadata.current_leader(partition)), strategy
                )

        future.add_done_callback(done)

    # -- validation

    def _validation_requests(self, now: int) -> list[UnsentRequest]:
        partitions = self._validation.partitions_needing_validation(now)
        if not partitions:
            return []
        by_node: dict[Node, dict[TopicPartition, FetchPosition]] = {}
        for partition in partitions:
            position = self._positions.position(partition)
            if position is None:
                continue
            leader = position.current_leader.leader
            if leader is None:
                self._metadata.request_update()
                self._positions.set_next_allowed_retry((partition,), now + self._settings.retry_backoff_ms)
            elif not self._can_validate(leader):
                self._validation.complete_validation(partition)
            else:
                by_node.setdefault(leader, {})[partition] = position
        return [self._validation_request(node, rows, now) for node, rows in by_node.items()]

    def _validation_request(self, node: Node, rows: Mapping[TopicPartition, FetchPosition], now: int) -> UnsentRequest:
        self._positions.set_next_allowed_retry(rows, now + self._settings.request_timeout_ms)
        topics: dict[str, OffsetForLeaderTopic] = {}
        for partition, position in rows.items():
            topic = topics.setdefault(partition.topic, OffsetForLeaderTopic(topic=partition.topic))
            assert position.offset_epoch is not None
            epoch = position.current_leader.epoch
            topic.partitions.append(
                OffsetForLeaderPartition(
                    partition=partition.partition,
                    current_leader_epoch=-1 if epoch is None else epoch,
                    leader_epoch=position.offset_epoch,
                )
            )
        return UnsentRequest(
            OffsetForLeaderEpochRequest(replica_id=_CONSUMER, topics=list(topics.values())),
            node,
            lambda response: self._on_validated(rows, response),
            allowed_versions=VersionRange(_FIRST_EPOCH_VERSION, ApiKey.OFFSET_FOR_LEADER_EPOCH.stable_versions.highest),
        )

    def _on_validated(self, rows: Mapping[TopicPartition, FetchPosition], response: ClientResponse) -> None:
        now = response.received_ms
        body = response.body
        if not isinstance(body, OffsetForLeaderEpochResponse):
            if response.version_mismatch is not None:
                for partition in rows:
                    self._validation.complete_validation(partition)
            else:
                self._later(rows, now)
            return
        truncated: dict[TopicPartition, int] = {}
        divergent: dict[TopicPartition, OffsetAndMetadata] = {}
        later = set(rows)
        for topic in body.topics:
            for row in topic.partitions:
                partition = TopicPartition(topic.topic, row.partition)
                if partition not in rows:
                    continue
                error = Errors.for_code(row.error_code)
                if error is Errors.TOPIC_AUTHORIZATION_FAILED:
                    self._events.put(
                        ErrorEvent(TopicAuthorizationError(f"Not authorized to access topics: [{partition.topic}]"))
                    )
                    continue
                if error is not Errors.NONE:
                    level = logging.WARNING if recovery_of(error) is Recovery.FAIL else logging.DEBUG
                    log.log(level, "Validating the position of %s: %s, asking again", partition, error.name)
                    continue
                later.discard(partition)
                truncation = self._validation.maybe_complete_validation(
                    partition, rows[partition], row.leader_epoch, row.end_offset
                )
                if truncation is not None:
                    truncated[partition] = truncation.position.offset
                    if truncation.divergent_offset is not None:
                        divergent[partition] = truncation.divergent_offset
        if later:
            self._later(later, now)
        if truncated:
            # No further request until the application has decided where to continue.
            self._positions.set_next_allowed_retry(truncated, now + self._settings.request_timeout_ms)
            self._events.put(ErrorEvent(LogTruncationError(truncated, divergent)))

    def _later(self, partitions: Iterable[TopicPartition], now: int) -> None:
        self._metadata.request_update()
        self._positions.set_next_allowed_retry(partitions, now + self._settings.retry_backoff_ms)

    def fail(self, error: BarnabasError) -> None:
        """Fails all pending requests when the consumer closes."""
        for question in self._questions:
            if not question.future.done():
                question.future.set_exception(error)
        self._questions.clear()
