"""Runs operations on many keys, each of which belongs to a certain broker.

The brokers are found first (*lookup*), for as many keys as possible in one request; then each broker is asked about all
of its keys (*fulfillment*). An error may mean three things for a key: it has failed; the same broker should be asked
again; or another broker is responsible by now, so that the lookup starts over. Completed keys do not wait for the
others, and on timeout only the remaining ones fail.

=====================  ============================================  =============================
strategy               keys                                          asks
=====================  ============================================  =============================
`StaticBrokers`        anything, with its broker given               nobody
`PartitionLeaders`     partitions                                    any broker, Metadata
`Coordinators`         ids of groups, or transactional ids           any broker, FindCoordinator
=====================  ============================================  =============================
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, Generic, TypeVar

from barnabas.clients.admin.internals.node_choice import ANY, Broker
from barnabas.clients.admin.internals.operation import Operation
from barnabas.clients.admin.internals.steps import together
from barnabas.clients.admin.results import Results
from barnabas.common.errors import ApiError, Errors, KafkaTimeoutError, NetworkError, UnknownServerError
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.message import Request
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.protocol.versions import VersionRange

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_BATCHED_FIND_COORDINATOR: Final = VersionRange(4, 6)


def error_of(code: int, message: str | None = None) -> ApiError | None:
    """Returns the error of a code; None for no error."""
    return Errors.for_code(code).to_exception(message)


@dataclass(slots=True)
class Outcome(Generic[K, V]):
    """The outcome of a response, by key. Keys that are not in it are requested again."""

    completed: dict[K, V] = field(default_factory=dict)
    failed: dict[K, ApiError] = field(default_factory=dict)
    unmapped: set[K] = field(default_factory=set)
    """Keys that belong to another, unknown broker."""
    reasons: dict[K, ApiError] = field(default_factory=dict)
    """Why keys are neither completed nor failed."""

    def settle(self, key: K, code: int, message: str | None = None, *, moved: Iterable[Errors] = ()) -> bool:
        """Stores the error of a key; returns true if there is none, so that the caller completes the key.

        After errors in ``moved`` the broker is looked up again.
        """
        error = error_of(code, message)
        if error is None:
            return True
        if Errors.for_code(code) in moved:
            self.unmapped.add(key)
            self.reasons[key] = error
        elif error.retriable:
            self.reasons[key] = error
        else:
            self.failed[key] = error
        return False


GROUP_MOVED: Final = (Errors.NOT_COORDINATOR, Errors.COORDINATOR_NOT_AVAILABLE)


class LookupStrategy(ABC, Generic[K]):
    """Finds the broker of each key."""

    is_static = False

    @abstractmethod
    async def lookup(self, operation: Operation, keys: Sequence[K]) -> Outcome[K, int]:
        """Returns the broker ids of keys. Missing keys are looked up again after a backoff."""


class StaticBrokers(LookupStrategy[K]):
    """Uses the broker that the caller has given."""

    is_static = True

    def __init__(self, brokers: Mapping[K, int]) -> None:
        self._brokers = brokers

    async def lookup(self, operation: Operation, keys: Sequence[K]) -> Outcome[K, int]:  # noqa: ARG002 - no need
        return Outcome({key: self._brokers[key] for key in keys})


class CoordinatorType(IntEnum):
    """The kinds of coordinators, as in FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


class Coordinators(LookupStrategy[str]):
    """Looks up all groups, or all transactional ids, in one request (KIP-699)."""

    def __init__(self, kind: CoordinatorType) -> None:
        self._kind = kind

    async def lookup(self, operation: Operation, keys: Sequence[str]) -> Outcome[str, int]:
        request = FindCoordinatorRequest(key_type=self._kind, coordinator_keys=list(keys))
        response: FindCoordinatorResponse = await operation.exchange(ANY, request, _BATCHED_FIND_COORDINATOR)
        outcome: Outcome[str, int] = Outcome()
        for coordinator in response.coordinators:
            if outcome.settle(coordinator.key, coordinator.error_code, coordinator.error_message):
                outcome.completed[coordinator.key] = coordinator.node_id
        return outcome


class PartitionLeaders(LookupStrategy[TopicPartition]):
    """Finds the leaders in the metadata of the topics.

    A missing topic may be so new that the broker does not know it yet, and a missing leader is usually about to be
    elected: both are retried. Without ``patient`` they fail at once.
    """

    def __init__(self, *, patient: bool = True) -> None:
        self._patient = patient

    async def lookup(self, operation: Operation, keys: Sequence[TopicPartition]) -> Outcome[TopicPartition, int]:
        names = {key.topic: None for key in keys}
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False
        )
        response: MetadataResponse = await operation.exchange(ANY, request)
        outcome: Outcome[TopicPartition, int] = Outcome()
        wanted = set(keys)
        for topic in response.topics:
            found = {partition.partition_index: partition for partition in topic.partitions}
            for key in (key for key in wanted if key.topic == topic.name):
                if not outcome.settle(key, topic.error_code):
                    continue
                partition = found.get(key.partition)
                if partition is None:
                    outcome.reasons[key] = _require(Errors.UNKNOWN_TOPIC_OR_PARTITION)
                elif partition.leader_id < 0 or partition.error_code == Errors.LEADER_NOT_AVAILABLE:
                    outcome.reasons[key] = _require(Errors.LEADER_NOT_AVAILABLE)
                # A leader whose other replicas are missing is still the leader.
                elif partition.error_code == Errors.REPLICA_NOT_AVAILABLE or outcome.settle(key, partition.error_code):
                    outcome.completed[key] = partition.leader_id
        if not self._patient:
            outcome.failed |= outcome.reasons
        return outcome


def _require(error: Errors) -> ApiError:
    exception = error.to_exception()
    assert exception is not None
    return exception


@dataclass(frozen=True, slots=True)
class Handler(Generic[K, V]):
    """Builds the requests for keys and reads the responses."""

    build: Callable[[int, Sequence[K]], Request]
    """Takes a broker id and its keys."""
    read: Callable[[int, Sequence[K], Any], Outcome[K, V]]
    lookup: LookupStrategy[K]
    batched: bool = True
    """Whether one request can hold several keys."""
    allowed_versions: VersionRange | None = None


class _Keys(Generic[K, V]):
    """The progress of each key."""

    def __init__(self, keys: Iterable[K]) -> None:
        self.unmapped: dict[K, None] = dict.fromkeys(keys)
        self.mapped: dict[K, int] = {}
        self.completed: dict[K, V] = {}
        self.failed: dict[K, ApiError] = {}
        self.reasons: dict[K, ApiError] = {}

    @property
    def open(self) -> list[K]:
        return [*self.unmapped, *self.mapped]

    def take_lookup(self, outcome: Outcome[K, int]) -> None:
        self.reasons |= outcome.reasons
        for key, broker in outcome.completed.items():
            if key in self.unmapped:
                del self.unmapped[key]
                self.mapped[key] = broker
        for key, error in outcome.failed.items():
            self.fail(key, error)

    def take(self, outcome: Outcome[K, V]) -> None:
        self.reasons |= outcome.reasons
        for key, value in outcome.completed.items():
            if self.mapped.pop(key, None) is not None:
                self.completed[key] = value
        for key, error in outcome.failed.items():
            self.fail(key, error)
        for key in outcome.unmapped:
            self.unmap(key)

    def fail(self, key: K, error: ApiError) -> None:
        self.unmapped.pop(key, None)
        self.mapped.pop(key, None)
        self.failed[key] = error

    def unmap(self, key: K) -> None:
        if self.mapped.pop(key, None) is not None:
            self.unmapped[key] = None


async def run_keyed(operation: Operation, keys: Iterable[K], handler: Handler[K, V]) -> Results[K, V]:
    """Runs the operation until each key is settled or the time is over."""
    state: _Keys[K, V] = _Keys(keys)
    asked = list(state.unmapped)
    attempts = 0
    while state.open:
        await _lookup(operation, state, handler)
        await _fulfill(operation, state, handler)
        if not state.open:
            break
        reason = next((state.reasons[key] for key in state.open if key in state.reasons), None)
        try:
            await operation.back_off(attempts, reason or KafkaTimeoutError("There was no response."))
        except ApiError as error:
            for key in state.open:
                own = state.reasons.get(key)
                state.fail(key, error if own is None or own is reason else _timed_out(operation, own))
        attempts += 1
    order = {key: index for index, key in enumerate(asked)}
    return Results(
        {key: state.completed[key] for key in sorted(state.completed, key=order.__getitem__)},
        {key: state.failed[key] for key in sorted(state.failed, key=order.__getitem__)},
    )


def _timed_out(operation: Operation, error: ApiError) -> ApiError:
    return KafkaTimeoutError(
        f"Timed out after {operation.timeout_ms} ms; the last attempt failed with "
        f"{Errors.for_exception(error).name}: {error}"
    )


async def _lookup(operation: Operation, state: _Keys[K, V], handler: Handler[K, V]) -> None:
    keys = list(state.unmapped)
    if not keys:
        return
    try:
        state.take_lookup(await handler.lookup.lookup(operation, keys))
    except ApiError as error:
        for key in keys:
            if error.retriable:
                state.reasons[key] = error
            else:
                state.fail(key, error)


async def _fulfill(operation: Operation, state: _Keys[K, V], handler: Handler[K, V]) -> None:
    by_broker: dict[int, list[K]] = {}
    for key, broker in state.mapped.items():
        by_broker.setdefault(broker, []).append(key)
    requests = [
        (broker, group)
        for broker, keys in by_broker.items()
        for group in ([keys] if handler.batched else [[key] for key in keys])
    ]
    await together(*(_ask(operation, state, handler, broker, group) for broker, group in requests))


async def _ask(operation: Operation, state: _Keys[K, V], handler: Handler[K, V], broker: int, keys: list[K]) -> None:
    try:
        response = await operation.exchange(Broker(broker), handler.build(broker, keys), handler.allowed_versions)
    except ApiError as error:
        for key in keys:
            if not error.retriable:
                state.fail(key, error)
                continue
            state.reasons[key] = error
            # The broker may be gone for good: look up its keys again.
            if isinstance(error, NetworkError) and not handler.lookup.is_static:
                state.unmap(key)
        return
    outcome = handler.read(broker, keys, response)
    for key in keys:
        settled = key in outcome.completed or key in outcome.failed or key in outcome.unmapped
        if not settled and key not in outcome.reasons:
            outcome.failed[key] = UnknownServerError(f"The response of broker {broker} does not include {key}.")
    state.take(outcome)
