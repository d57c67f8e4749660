"""Transactions and producers: list, describe, abort and fence them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from barnabas.clients.admin.groups import broker_ids
from barnabas.clients.admin.internals.admin_api_driver import (
    GROUP_MOVED,
    Coordinators,
    CoordinatorType,
    Handler,
    LookupStrategy,
    Outcome,
    PartitionLeaders,
    StaticBrokers,
    run_keyed,
)
from barnabas.clients.admin.internals.node_choice import Broker
from barnabas.clients.admin.internals.operation import Operation
from barnabas.clients.admin.internals.steps import together
from barnabas.clients.admin.results import Results
from barnabas.clients.common.partition_errors import LEADER_MOVED
from barnabas.common.errors import Errors, raise_for_code
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.messages import describe_producers as producers_api
from barnabas.protocol.messages import describe_transactions as describe_api
from barnabas.protocol.messages import list_transactions as list_api
from barnabas.protocol.messages import write_txn_markers as markers_api
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.versions import VersionRange

_WITH_DURATION: Final = VersionRange(1, 2)
_WITH_PATTERN: Final = VersionRange(2, 2)
_FENCING: Final = VersionRange(0, 5)


class TransactionState(StrEnum):
    """The state of a transaction."""

    ONGOING = "Ongoing"
    PREPARE_ABORT = "PrepareAbort"
    PREPARE_COMMIT = "PrepareCommit"
    COMPLETE_ABORT = "CompleteAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    EMPTY = "Empty"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    UNKNOWN = "Unknown"

    @classmethod
    def of(cls, text: str) -> TransactionState:
        """Parses Kafka's name; UNKNOWN for states of later Kafka versions."""
        return next((state for state in cls if state.value == text), cls.UNKNOWN)


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """An existing transactional id."""

    transactional_id: str
    producer_id: int
    state: TransactionState


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id, and its open transaction."""

    transactional_id: str
    coordinator_id: int
    state: TransactionState
    producer_id: int
    producer_epoch: int
    transaction_timeout_ms: int
    transaction_start_ms: int | None
    """None if none is open."""
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class ProducerState:
    """A partition's state of a producer."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int | None
    current_transaction_start_offset: int | None
    """None if it has no open transaction here."""


@dataclass(frozen=True, slots=True)
class AbortTransactionSpec:
    """A transaction as a partition knows it, from `describe_producers`."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int


@dataclass(frozen=True, slots=True)
class ProducerIdAndEpoch:
    """A producer's id, and the epoch that fences its predecessors."""

    producer_id: int
    producer_epoch: int


async def list_transactions(
    operation: Operation,
    *,
    states: Iterable[TransactionState | str] = (),
    producer_ids: Iterable[int] = (),
    min_duration_ms: int | None = None,
    transactional_id_pattern: str | None = None,
) -> list[TransactionListing]:
    """Lists transactional ids: all, or those with these states, producers, a minimum transaction duration, and a name
    pattern.

    Every broker is asked, since a coordinator only knows its own."""
    request = list_api.ListTransactionsRequest(
        state_filters=[str(state) for state in states],
        producer_id_filters=list(producer_ids),
        duration_filter=-1 if min_duration_ms is None else min_duration_ms,
        transactional_id_pattern=transactional_id_pattern,
    )
    versions = None
    if transactional_id_pattern is not None:
        versions = _WITH_PATTERN
    elif min_duration_ms is not None:
        versions = _WITH_DURATION

    def read(response: list_api.ListTransactionsResponse) -> list[TransactionListing]:
        raise_for_code(response.error_code)
        return [
            TransactionListing(row.transactional_id, row.producer_id, TransactionState.of(row.transaction_state))
            for row in response.transaction_states
        ]

    brokers = await broker_ids(operation)
    parts = await together(*(operation.ask(Broker(one), request, read, versions) for one in brokers))
    found = {listing.transactional_id: listing for part in parts for listing in part}
    return [found[name] for name in sorted(found)]


async def describe_transactions(
    operation: Operation, transactional_ids: Iterable[str], *, partial: bool = False
) -> Results[str, TransactionDescription]:
    """Returns the coordinators' state of transactional ids."""

    def build(_broker: int, keys: Sequence[str]) -> describe_api.DescribeTransactionsRequest:
        return describe_api.DescribeTransactionsRequest(transactional_ids=list(keys))

    def read(
        broker: int, _keys: Sequence[str], response: describe_api.DescribeTransactionsResponse
    ) -> Outcome[str, TransactionDescription]:
        outcome: Outcome[str, TransactionDescription] = Outcome()
        for row in response.transaction_states:
            if outcome.settle(row.transactional_id, row.error_code, moved=GROUP_MOVED):
                outcome.completed[row.transactional_id] = TransactionDescription(
                    row.transactional_id,
                    broker,
                    TransactionState.of(row.transaction_state),
                    row.producer_id,
                    row.producer_epoch,
                    row.transaction_timeout_ms,
                    row.transaction_start_time_ms if row.transaction_start_time_ms >= 0 else None,
                    frozenset(TopicPartition(topic.topic, index) for topic in row.topics for index in topic.partitions),
                )
        return outcome

    handler = Handler(build, read, Coordinators(CoordinatorType.TRANSACTION))
    return (await run_keyed(operation, transactional_ids, handler)).checked(partial)


async def describe_producers(
    operation: Operation,
    partitions: Iterable[TopicPartition],
    *,
    broker_id: int | None = None,
    patient: bool = True,
    partial: bool = False,
) -> Results[TopicPartition, tuple[ProducerState, ...]]:
    """Returns the active producers of partitions, from the leaders or from one broker."""
    keys = list(dict.fromkeys(partitions))
    lookup: LookupStrategy[TopicPartition] = (
        PartitionLeaders(patient=patient) if broker_id is None else StaticBrokers(dict.fromkeys(keys, broker_id))
    )

    def build(_broker: int, asked: Sequence[TopicPartition]) -> producers_api.DescribeProducersRequest:
        topics: dict[str, list[int]] = {}
        for key in asked:
            topics.setdefault(key.topic, []).append(key.partition)
        return producers_api.DescribeProducersRequest(
            topics=[producers_api.TopicRequest(name=name, partition_indexes=rows) for name, rows in topics.items()]
        )

    def read(
        _broker: int, _keys: Sequence[TopicPartition], response: producers_api.DescribeProducersResponse
    ) -> Outcome[TopicPartition, tuple[ProducerState, ...]]:
        outcome: Outcome[TopicPartition, tuple[ProducerState, ...]] = Outcome()
        for topic in response.topics:
            for row in topic.partitions:
                key = TopicPartition(topic.name, row.partition_index)
                error = Errors.for_code(row.error_code)
                if broker_id is not None and error is Errors.NOT_LEADER_OR_FOLLOWER:
                    # The caller has chosen the broker, so there is no other to ask.
                    outcome.failed[key] = error.to_exception(row.error_message) or outcome.failed[key]
                elif outcome.settle(key, row.error_code, row.error_message, moved=LEADER_MOVED):
                    outcome.completed[key] = tuple(map(_producer, row.active_producers))
        return outcome

    return (await run_keyed(operation, keys, Handler(build, read, lookup))).checked(partial)


def _producer(row: producers_api.ProducerState) -> ProducerState:
    return ProducerState(
        row.producer_id,
        row.producer_epoch,
        row.last_sequence,
        row.last_timestamp,
        None if row.coordinator_epoch < 0 else row.coordinator_epoch,
        None if row.current_txn_start_offset < 0 else row.current_txn_start_offset,
    )


async def abort_transaction(operation: Operation, spec: AbortTransactionSpec) -> None:
    """Aborts a transaction in one partition, without its coordinator.

    It is for *hanging* transactions, which a partition waits for and no coordinator knows; any other will be ended by
    its coordinator.
    """

    def build(_broker: int, _keys: Sequence[TopicPartition]) -> markers_api.WriteTxnMarkersRequest:
        return markers_api.WriteTxnMarkersRequest(
            markers=[
                markers_api.WritableTxnMarker(
                    producer_id=spec.producer_id,
                    producer_epoch=spec.producer_epoch,
                    coordinator_epoch=spec.coordinator_epoch,
                    transaction_result=False,
                    topics=[
                        markers_api.WritableTxnMarkerTopic(
                            name=spec.partition.topic, partition_indexes=[spec.partition.partition]
                        )
                    ],
                )
            ]
        )

    def read(
        _broker: int, _keys: Sequence[TopicPartition], response: markers_api.WriteTxnMarkersResponse
    ) -> Outcome[TopicPartition, None]:
        outcome: Outcome[TopicPartition, None] = Outcome()
        for marker in response.markers:
            for topic in marker.topics:
                for row in topic.partitions:
                    key = TopicPartition(topic.name, row.partition_index)
                    if outcome.settle(key, row.error_code, moved=LEADER_MOVED):
                        outcome.completed[key] = None
        return outcome

    (await run_keyed(operation, [spec.partition], Handler(build, read, PartitionLeaders()))).checked()


async def fence_producers(
    operation: Operation, transactional_ids: Iterable[str], *, partial: bool = False
) -> Results[str, ProducerIdAndEpoch]:
    """Aborts open transactions of transactional ids, and fences their producers."""

    def build(_broker: int, keys: Sequence[str]) -> InitProducerIdRequest:
        # The timeout does not matter, because this id does nothing more. It must be one that brokers accept.
        return InitProducerIdRequest(transactional_id=keys[0], transaction_timeout_ms=max(operation.remaining_ms, 1))

    def read(_broker: int, keys: Sequence[str], response: InitProducerIdResponse) -> Outcome[str, ProducerIdAndEpoch]:
        outcome: Outcome[str, ProducerIdAndEpoch] = Outcome()
        if outcome.settle(keys[0], response.error_code, moved=GROUP_MOVED):
            outcome.completed[keys[0]] = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
        return outcome

    handler = Handler(build, read, Coordinators(CoordinatorType.TRANSACTION), batched=False, allowed_versions=_FENCING)
    return (await run_keyed(operation, transactional_ids, handler)).checked(partial)
