"""The requests about transactions: rights, versions, and what is answered when."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, cast

import pytest

from barnabas.broker.handlers.producer_ids import ProducerIdsHandler
from barnabas.broker.handlers.transactions import TransactionsHandler
from barnabas.common.errors import Errors
from barnabas.common.topic_partition import TopicPartition
from barnabas.coordinator.transaction.transaction_config import TransactionConfig
from barnabas.coordinator.transaction.transaction_version import TransactionVersion
from barnabas.protocol.message import Request as RequestMessage
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas.protocol.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.list_transactions import ListTransactionsRequest
from barnabas.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from barnabas.records.control import ControlRecordType
from barnabas.security.acl import AclOperation, ResourceType
from barnabas.security.auth_helper import AuthHelper
from barnabas.security.authorizer import ALLOWED, DENIED, Action
from barnabas.server.dispatch import ApiDispatcher, handlers_of
from barnabas.server.request import Request
from handler_fixtures import HandlerBench
from transaction_fixtures import ID, A, B, TransactionBench

TV_0, TV_1, TV_2 = TransactionVersion
GROUP_PARTITION = 17

WRITE_ID = (AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID)
WRITE_TOPIC = (AclOperation.WRITE, ResourceType.TOPIC)
READ_GROUP = (AclOperation.READ, ResourceType.GROUP)
DESCRIBE_ID = (AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)
DESCRIBE_TOPIC = (AclOperation.DESCRIBE, ResourceType.TOPIC)
CLUSTER_ACTION = (AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
ALTER_CLUSTER = (AclOperation.ALTER, ResourceType.CLUSTER)
TWO_PHASE_COMMIT = (AclOperation.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID)


class Rights:
    """An authorizer that allows what it is told to, for all names or for one."""

    def __init__(self, *allowed: tuple[Any, ...]) -> None:
        self._allowed = allowed

    def authorize(self, _context: Any, actions: list[Action]) -> list[Any]:
        def allowed(action: Action) -> bool:
            kind = action.operation, action.resource_pattern.resource_type
            return kind in self._allowed or (*kind, action.resource_pattern.name) in self._allowed

        return [ALLOWED if allowed(action) else DENIED for action in actions]


class Bench(HandlerBench):
    def __init__(
        self,
        version: TransactionVersion = TV_2,
        rights: Rights | None = None,
        config: TransactionConfig | None = None,
    ) -> None:
        super().__init__()
        self.transactions = TransactionBench(version, config=config)
        auth = AuthHelper(cast("Any", rights))
        coordinator = self.transactions.coordinator
        self.family = TransactionsHandler(
            self.helper,
            auth,
            cast("Any", self.transactions.cache),
            coordinator,
            cast("Any", self.transactions.markers),
            lambda _group: GROUP_PARTITION,
        )
        ids = ProducerIdsHandler(
            self.helper, auth, cast("Any", self.transactions.producer_ids), transactions=coordinator
        )
        self.dispatcher = ApiDispatcher(handlers_of(self.family, ids), self.helper)

    def send(self, body: RequestMessage, version: int) -> Request:
        request = self.request(body, version)
        self.dispatcher.handle(request, self.local)
        request.release_buffer()
        return request

    def get(self, body: RequestMessage, version: int) -> Any:
        return self.answer(self.send(body, version))

    def errors(self, response: Any, transactional_id: str | None = None) -> dict[TopicPartition, Errors]:
        """What AddPartitionsToTxn says."""
        topics = response.results_by_topic_v3_and_below
        if transactional_id is not None:
            (topics,) = (
                one.topic_results for one in response.results_by_transaction if one.transactional_id == transactional_id
            )
        return {
            TopicPartition(topic.name, one.partition_index): Errors(one.partition_error_code)
            for topic in topics
            for one in topic.results_by_partition
        }


def add_request(*partitions: TopicPartition, epoch: int = 0, producer_id: int = 1000) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=ID,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[number]) for topic, number in partitions],
    )


def batched(*transactions: tuple[str, int, bool, TopicPartition]) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=name,
                producer_id=producer_id,
                producer_epoch=0,
                verify_only=verify_only,
                topics=[AddPartitionsToTxnTopic(name=partition.topic, partitions=[partition.partition])],
            )
            for name, producer_id, verify_only, partition in transactions
        ]
    )


# -- InitProducerId


@pytest.mark.parametrize("version", range(6))
def test_a_transactional_producer_gets_its_identity(version: int) -> None:
    b = Bench()
    request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=1000)
    for epoch in range(3):
        answer = b.get(request, version)
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, 1000, epoch)


@pytest.mark.parametrize(("version", "error"), [(3, Errors.INVALID_PRODUCER_EPOCH), (4, Errors.PRODUCER_FENCED)])
def test_init_says_fenced_to_those_who_know_it(version: int, error: Errors) -> None:
    b = Bench()
    b.transactions.producer()
    stale = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=1000, producer_id=999, producer_epoch=0)
    answer = b.get(stale, version)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (error, -1, -1)


def test_two_phase_commit_takes_a_right_of_its_own() -> None:
    request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=1000, enable2_pc=True)
    config = TransactionConfig(two_phase_commit_enable=True)
    denied = Bench(rights=Rights(WRITE_ID), config=config).get(request, 6)
    assert denied.error_code == Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert Bench(rights=Rights(WRITE_ID, TWO_PHASE_COMMIT), config=config).get(request, 6).error_code == 0


def test_a_producer_is_told_of_the_transaction_that_it_was_left() -> None:
    b = Bench()
    old = b.transactions.producer()
    b.transactions.add(old, A)
    request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=1000, keep_prepared_txn=True)
    answer = b.get(request, 6)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, old.producer_id, old.epoch + 1)
    assert (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch) == old


# -- AddPartitionsToTxn


@pytest.mark.mechanism("R09")
@pytest.mark.parametrize("version", range(4))
def test_a_client_adds_partitions(version: int) -> None:
    b = Bench(TV_1)
    b.transactions.producer()
    assert b.errors(b.get(add_request(A, B), version)) == {A: Errors.NONE, B: Errors.NONE}
    assert b.transactions.metadata().topic_partitions == {A, B}
    fenced = Errors.PRODUCER_FENCED if version >= 2 else Errors.INVALID_PRODUCER_EPOCH
    assert b.errors(b.get(add_request(A, epoch=9), version)) == {A: fenced}


@pytest.mark.mechanism("R04")
def test_if_one_partition_cannot_be_added_none_is() -> None:
    b = Bench(rights=Rights(WRITE_ID, (*WRITE_TOPIC, "orders"), (*WRITE_TOPIC, "__consumer_offsets")))
    b.transactions.cache.deleted = {B}
    b.transactions.producer()
    secret, internal = TopicPartition("secret", 0), TopicPartition("__consumer_offsets", 0)
    assert b.errors(b.get(add_request(A, B, secret, internal), 3)) == {
        A: Errors.OPERATION_NOT_ATTEMPTED,
        B: Errors.UNKNOWN_TOPIC_OR_PARTITION,
        secret: Errors.TOPIC_AUTHORIZATION_FAILED,
        internal: Errors.TOPIC_AUTHORIZATION_FAILED,
    }
    assert not b.transactions.metadata().topic_partitions


@pytest.mark.mechanism("R04")
def test_a_client_needs_its_transactional_id() -> None:
    b = Bench(rights=Rights(WRITE_TOPIC))
    assert b.errors(b.get(add_request(A), 3)) == {A: Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
    answer = b.get(EndTxnRequest(transactional_id=ID), 5)
    assert (answer.error_code, answer.producer_id) == (Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1)
    offsets = b.get(AddOffsetsToTxnRequest(transactional_id=ID, group_id="g"), 3)
    assert offsets.error_code == Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


@pytest.mark.mechanism("R09")
@pytest.mark.parametrize("version", [4, 5])
def test_a_broker_gets_a_response_once_all_transactions_have_reported(version: int) -> None:
    b = Bench()
    producers = {name: b.transactions.producer(name) for name in ("one", "two", "three")}
    b.transactions.add(producers["three"], A, transactional_id="three")
    b.transactions.writer.commits_at_once = False
    request = b.send(
        batched(
            ("one", producers["one"].producer_id, False, A),
            ("two", 5, False, A),
            ("three", producers["three"].producer_id, True, B),
        ),
        version,
    )
    assert not b.is_answered(request), "the first one is not committed"
    b.transactions.writer.commit(b.transactions.partition)
    answer = b.answer(request)
    assert [one.transactional_id for one in answer.results_by_transaction] == ["one", "two", "three"]
    assert b.errors(answer, "one") == {A: Errors.NONE}
    assert b.errors(answer, "two") == {A: Errors.INVALID_PRODUCER_ID_MAPPING}
    assert b.errors(answer, "three") == {B: Errors.TRANSACTION_ABORTABLE}
    assert b.transactions.metadata("one").client_transaction_version is TV_2


def test_a_broker_needs_cluster_action() -> None:
    denied = Bench(rights=Rights(WRITE_ID, WRITE_TOPIC)).get(batched((ID, 1, True, A)), 4)
    assert denied.error_code == Errors.CLUSTER_AUTHORIZATION_FAILED
    allowed = Bench(rights=Rights(CLUSTER_ACTION))
    assert allowed.errors(allowed.get(batched((ID, 1, True, A)), 4), ID) == {A: Errors.INVALID_PRODUCER_ID_MAPPING}


def test_a_transaction_is_listed_once_or_the_request_is_invalid() -> None:
    answer = Bench().get(batched((ID, 1, True, A), (ID, 1, True, B)), 4)
    assert answer.error_code == Errors.INVALID_REQUEST


def test_a_request_without_transactions_gets_a_response() -> None:
    assert Bench().get(AddPartitionsToTxnRequest(), 4).results_by_transaction == []


# -- AddOffsetsToTxn, EndTxn


@pytest.mark.parametrize("version", range(5))
def test_offsets_are_a_partition_too(version: int) -> None:
    b = Bench(TV_1)
    b.transactions.producer()
    request = AddOffsetsToTxnRequest(transactional_id=ID, producer_id=1000, producer_epoch=0, group_id="g")
    assert b.get(request, version).error_code == 0
    assert b.transactions.metadata().topic_partitions == {TopicPartition("__consumer_offsets", GROUP_PARTITION)}
    request.producer_epoch = 4
    fenced = Errors.PRODUCER_FENCED if version >= 2 else Errors.INVALID_PRODUCER_EPOCH
    assert b.get(request, version).error_code == fenced


@pytest.mark.mechanism("R04")
def test_offsets_take_the_group() -> None:
    b = Bench(rights=Rights(WRITE_ID))
    answer = b.get(AddOffsetsToTxnRequest(transactional_id=ID, group_id="g"), 3)
    assert answer.error_code == Errors.GROUP_AUTHORIZATION_FAILED
    allowed = Bench(rights=Rights(WRITE_ID, READ_GROUP))
    answer = allowed.get(AddOffsetsToTxnRequest(transactional_id=ID, group_id="g"), 3)
    assert answer.error_code == Errors.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.mechanism("R09")
@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("committed", [True, False])
def test_a_client_ends_its_transaction(version: int, committed: bool) -> None:
    b = Bench()
    producer = b.transactions.producer()
    b.transactions.add(producer, A)
    request = EndTxnRequest(transactional_id=ID, producer_id=1000, producer_epoch=0, committed=committed)
    answer = b.get(request, version)
    assert answer.error_code == 0
    assert (answer.producer_id, answer.producer_epoch) == ((1000, 1) if version >= 5 else (-1, -1))
    (marker,) = b.transactions.markers.written
    assert marker.result is (ControlRecordType.COMMIT if committed else ControlRecordType.ABORT)
    request.producer_epoch = 7
    fenced = Errors.PRODUCER_FENCED if version >= 2 else Errors.INVALID_PRODUCER_EPOCH
    assert b.get(request, version).error_code == fenced


# -- WriteTxnMarkers


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("rights", [None, Rights(CLUSTER_ACTION), Rights(ALTER_CLUSTER)])
def test_markers_are_written(version: int, rights: Rights | None) -> None:
    b = Bench(rights=rights)
    b.transactions.markers.errors = {B: Errors.NOT_LEADER_OR_FOLLOWER}
    body = WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=7,
                producer_epoch=2,
                coordinator_epoch=4,
                transaction_result=True,
                transaction_version=2 if version >= 2 else 0,
                topics=[WritableTxnMarkerTopic(name="orders", partition_indexes=[0, 1])],
            )
        ]
    )
    answer = b.get(body, version)
    (marker,) = b.transactions.markers.written
    assert marker == (7, 2, 4, ControlRecordType.COMMIT, 2 if version >= 2 else 0, (A, B))
    ((producer_id, (topic,)),) = ((one.producer_id, one.topics) for one in answer.markers)
    assert (producer_id, topic.name) == (7, "orders")
    assert [(one.partition_index, one.error_code) for one in topic.partitions] == [(0, 0), (1, 6)]


def test_not_everybody_may_write_markers() -> None:
    b = Bench(rights=Rights(WRITE_ID))
    body = WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(producer_id=7, topics=[WritableTxnMarkerTopic(name="orders", partition_indexes=[0])])
        ]
    )
    answer = b.get(body, 1)
    assert answer.markers[0].topics[0].partitions[0].error_code == Errors.CLUSTER_AUTHORIZATION_FAILED
    assert not b.transactions.markers.written


# -- tools


def test_a_transaction_is_described() -> None:
    b = Bench()
    producer = b.transactions.producer()
    b.transactions.add(producer, A, B)
    answer = b.get(DescribeTransactionsRequest(transactional_ids=[ID, "other", ""]), 0)
    found, other, empty = answer.transaction_states
    assert (found.error_code, found.transactional_id, found.transaction_state) == (0, ID, "Ongoing")
    assert (found.producer_id, found.producer_epoch, found.transaction_timeout_ms) == (1000, 0, 60_000)
    assert found.transaction_start_time_ms == b.transactions.clock.milliseconds()
    assert [(topic.topic, topic.partitions) for topic in found.topics] == [("orders", [0, 1])]
    assert (other.transactional_id, other.error_code) == ("other", Errors.TRANSACTIONAL_ID_NOT_FOUND)
    assert empty.error_code == Errors.INVALID_REQUEST


@pytest.mark.mechanism("R04")
def test_tools_see_what_they_may() -> None:
    b = Bench(rights=Rights((*DESCRIBE_ID, ID), (*DESCRIBE_TOPIC, "orders")))
    producer = b.transactions.producer()
    b.transactions.producer("other")
    b.transactions.add(producer, A, TopicPartition("secret", 0))
    answer = b.get(DescribeTransactionsRequest(transactional_ids=["other", ID]), 0)
    denied, found = answer.transaction_states
    assert denied.error_code == Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert [topic.topic for topic in found.topics] == ["orders"]
    listed = b.get(ListTransactionsRequest(), 0)
    assert [one.transactional_id for one in listed.transaction_states] == [ID]


@pytest.mark.parametrize("version", range(3))
def test_transactions_are_listed(version: int) -> None:
    b = Bench()
    b.transactions.producer("one")
    b.transactions.add(b.transactions.producer("two"), A, transactional_id="two")
    answer = b.get(ListTransactionsRequest(state_filters=["Ongoing", "Gone"]), version)
    assert answer.unknown_state_filters == ["Gone"]
    (listed,) = answer.transaction_states
    assert (listed.transactional_id, listed.producer_id, listed.transaction_state) == ("two", 1001, "Ongoing")
    if version >= 1:
        assert b.get(ListTransactionsRequest(duration_filter=1000), version).transaction_states == [
            one for one in b.get(ListTransactionsRequest(), version).transaction_states if one.transactional_id == "one"
        ]
    if version >= 2:
        by_name = b.get(ListTransactionsRequest(transactional_id_pattern="tw."), version)
        assert [one.transactional_id for one in by_name.transaction_states] == ["two"]
        broken = b.get(ListTransactionsRequest(transactional_id_pattern="("), version)
        assert broken.error_code == Errors.INVALID_REGULAR_EXPRESSION


def test_a_broker_without_transactions_has_no_coordinator() -> None:
    b = Bench()
    ids: Future[int] = Future()
    ids.set_result(1)
    alone = ApiDispatcher(handlers_of(ProducerIdsHandler(b.helper, AuthHelper(None), cast("Any", object()))), b.helper)
    request = b.request(InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=1000), 5)
    alone.handle(request, b.local)
    assert b.answer(request).error_code == Errors.COORDINATOR_NOT_AVAILABLE
