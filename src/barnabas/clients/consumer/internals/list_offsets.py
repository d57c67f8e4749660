"""ListOffsets requests: groups partitions by leader, and reads the responses."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import NamedTuple, TypeAlias

from barnabas.clients.common.list_offsets import OffsetToList, list_offsets_request
from barnabas.clients.common.partition_errors import Recovery, recovery_of
from barnabas.clients.consumer.consumer_config import IsolationLevel
from barnabas.clients.consumer.internals.consumer_metadata import ConsumerMetadata
from barnabas.clients.consumer.internals.request_managers import FOREVER, UnsentRequest
from barnabas.common.errors import BarnabasError, Errors, KafkaTimeoutError, TopicAuthorizationError
from barnabas.common.topic_partition import TopicPartition
from barnabas.network.client.client_request import ClientResponse
from barnabas.network.client.node import Node
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.list_offsets import ListOffsetsResponse
from barnabas.protocol.versions import VersionRange

log = logging.getLogger(__name__)


class FoundOffset(NamedTuple):
    """An offset, its record's timestamp (-1 for special timestamps), and its leader epoch."""

    offset: int
    timestamp: int
    leader_epoch: int | None


OnListed: TypeAlias = Callable[
    [Mapping[TopicPartition, FoundOffset | None], Mapping[TopicPartition, Errors], int], None
]
"""The offsets found, the failures, and the time. A partition without a matching record is found as None."""


class ListOffsetsQuestion:
    """An application's request, and the offsets found so far."""

    __slots__ = ("deadline_ms", "found", "future", "in_flight", "missing", "not_before_ms")

    def __init__(
        self,
        timestamps: Mapping[TopicPartition, int],
        deadline_ms: int,
        future: Future[dict[TopicPartition, FoundOffset | None]],
    ) -> None:
        self.missing = dict(timestamps)
        self.deadline_ms = deadline_ms
        self.future = future
        self.found: dict[TopicPartition, FoundOffset | None] = {}
        self.in_flight = 0
        self.not_before_ms = 0


class ListOffsetsRequester:
    """Builds the requests. It does not use positions."""

    def __init__(self, metadata: ConsumerMetadata, isolation_level: IsolationLevel, request_timeout_ms: int) -> None:
        self._metadata = metadata
        self._isolation_level = isolation_level
        self._request_timeout_ms = request_timeout_ms

    def group(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> tuple[dict[Node, dict[TopicPartition, int]], list[TopicPartition]]:
        """Groups partitions by leader; also returns those without a known leader."""
        by_node: dict[Node, dict[TopicPartition, int]] = {}
        unknown: list[TopicPartition] = []
        snapshot = self._metadata.snapshot
        for partition, timestamp in timestamps.items():
            leader = snapshot.leader_for(partition)
            if leader is None:
                unknown.append(partition)
            else:
                by_node.setdefault(leader, {})[partition] = timestamp
        return by_node, unknown

    def request(self, node: Node, timestamps: Mapping[TopicPartition, int], on_listed: OnListed) -> UnsentRequest:
        epoch_of = self._metadata.snapshot.leader_epoch_for
        rows = [OffsetToList(partition, timestamp, epoch_of(partition)) for partition, timestamp in timestamps.items()]
        stable = ApiKey.LIST_OFFSETS.stable_versions
        lowest = 2 if self._isolation_level is IsolationLevel.READ_COMMITTED else stable.lowest
        return UnsentRequest(
            list_offsets_request(rows, self._isolation_level, self._request_timeout_ms),
            node,
            lambda response: self._on_response(timestamps, on_listed, response),
            allowed_versions=VersionRange(lowest, stable.highest),
        )

    def _on_response(
        self, timestamps: Mapping[TopicPartition, int], on_listed: OnListed, response: ClientResponse
    ) -> None:
        found: dict[TopicPartition, FoundOffset | None] = {}
        failed = dict.fromkeys(timestamps, Errors.NETWORK_EXCEPTION)
        body = response.body
        if isinstance(body, ListOffsetsResponse):
            failed = dict.fromkeys(timestamps, Errors.UNKNOWN_TOPIC_OR_PARTITION)
            for topic in body.topics:
                for row in topic.partitions:
                    partition = TopicPartition(topic.name, row.partition_index)
                    if partition not in timestamps:
                        continue
                    error = Errors.for_code(row.error_code)
                    if error is Errors.NONE or error is Errors.UNSUPPORTED_FOR_MESSAGE_FORMAT:
                        # Brokers whose log has no timestamps cannot search by time: treat it as not found.
                        del failed[partition]
                        epoch = row.leader_epoch if row.leader_epoch >= 0 else None
                        found[partition] = None if row.offset < 0 else FoundOffset(row.offset, row.timestamp, epoch)
                    else:
                        failed[partition] = error
        elif response.version_mismatch is not None:
            failed = dict.fromkeys(timestamps, Errors.UNSUPPORTED_VERSION)
        on_listed(found, failed, response.received_ms)

    # -- questions

    def advance(
        self, question: ListOffsetsQuestion, now: int, retry_backoff_ms: int
    ) -> tuple[Iterable[UnsentRequest], int]:
        """Returns the requests to send now, and when to retry. Fails the question after its deadline."""
        if question.future.done():
            return (), FOREVER
        remaining_ms = question.deadline_ms - now
        if remaining_ms <= 0:
            names = ", ".join(sorted(map(str, question.missing)))
            silence = self._metadata.explain_silence()
            message = f"Failed to get offsets by times of {names} within the time that was given."
            question.future.set_exception(KafkaTimeoutError(f"{message} {silence}".rstrip()))
            return (), FOREVER
        if not question.missing:
            question.future.set_result(question.found)
            return (), FOREVER
        if question.in_flight:
            return (), remaining_ms
        if now < question.not_before_ms:
            return (), min(question.not_before_ms - now, remaining_ms)
        by_node, unknown = self.group(question.missing)
        if unknown:
            self._metadata.request_update()
            question.not_before_ms = now + retry_backoff_ms
        requests = []
        for node, rows in by_node.items():
            question.in_flight += 1
            requests.append(
                self.request(
                    node,
                    rows,
                    lambda found, failed, when: self._on_listed(question, found, failed, when + retry_backoff_ms),
                )
            )
        return requests, min(remaining_ms, retry_backoff_ms if unknown else FOREVER)

    def _on_listed(
        self,
        question: ListOffsetsQuestion,
        found: Mapping[TopicPartition, FoundOffset | None],
        failed: Mapping[TopicPartition, Errors],
        retry_ms: int,
    ) -> None:
        question.in_flight -= 1
        question.found.update(found)
        for partition in found:
            question.missing.pop(partition, None)
        if question.future.done():
            return
        for partition, error in failed.items():
            if error is Errors.TOPIC_AUTHORIZATION_FAILED:
                question.future.set_exception(
                    TopicAuthorizationError(f"Not authorized to access topics: [{partition.topic}]")
                )
                return
            if recovery_of(error) is Recovery.FAIL:
                question.future.set_exception(_exception(error))
                return
        if failed:
            log.debug("Offsets of %s could not be looked up and are asked for again", list(failed))
            self._metadata.request_update()
            question.not_before_ms = retry_ms
        elif not question.missing:
            question.future.set_result(question.found)


def _exception(error: Errors) -> BarnabasError:
    made = error.to_exception()
    assert made is not None
    return made
