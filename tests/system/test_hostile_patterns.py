"""Regular expressions of clients, sent to a broker process: hostile ones, and the same ones to Apache Kafka."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from benchmarks.broker_process import BrokerProcess
from benchmarks.waiting import until
from benchmarks.wire_client import WireClient

from barnabas.common.errors import Errors
from barnabas.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from clients.java.conftest import java_or_skip
from oracles.kafka_server import KafkaServer

WAIT_S = 60.0
SMALL = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
NOT_YET = {Errors.COORDINATOR_NOT_AVAILABLE, Errors.NOT_COORDINATOR, Errors.COORDINATOR_LOAD_IN_PROGRESS}
HOSTILE = [
    "(?:(?:(?:){1000}){1000}){1000}",
    "(a?a?a?){900}",
    f"({'|' * 3000}){{300}}",
    "(" * 250 + ")" * 250,
]


def subscribe(client: WireClient, pattern: str) -> Errors:
    """Joins a new group with this pattern."""
    request = ConsumerGroupHeartbeatRequest(
        group_id=f"group-{uuid.uuid4()}",
        member_id=str(uuid.uuid4()),
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_regex=pattern,
        topic_partitions=[],
    )
    return Errors.for_code(client.ask(request, 1, ConsumerGroupHeartbeatResponse).error_code)


def list_transactions(client: WireClient, pattern: str) -> Errors | list[str]:
    request = ListTransactionsRequest(duration_filter=-1, transactional_id_pattern=pattern)
    response = client.ask(request, 2, ListTransactionsResponse)
    error = Errors.for_code(response.error_code)
    return error or sorted(one.transactional_id for one in response.transaction_states)


def await_coordinators(client: WireClient, *transactional_ids: str) -> None:
    """Has both coordinators loaded, and these transactional ids known."""
    for key_type in (0, 1):
        until(partial(_has_coordinator, client, key_type), "there is a coordinator", WAIT_S)
    until(lambda: subscribe(client, "a") not in NOT_YET, "the group coordinator is loaded", WAIT_S)
    for name in transactional_ids:
        until(partial(_is_known, client, name), f"{name} is known", WAIT_S)


def _has_coordinator(client: WireClient, key_type: int) -> bool:
    request = FindCoordinatorRequest(coordinator_keys=["a"], key_type=key_type)
    return client.ask(request, 4, FindCoordinatorResponse).coordinators[0].error_code not in NOT_YET


def _is_known(client: WireClient, transactional_id: str) -> bool:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    return client.ask(request, 4, InitProducerIdResponse).error_code not in NOT_YET


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "ours", output=tmp_path / "out", overrides=SMALL) as made:
        yield made


def test_hostile_patterns_cost_little_and_the_broker_still_stops(broker: BrokerProcess) -> None:
    """They took 5 to 15 s each, and SIGTERM did not end the broker in 30 s after such a ListTransactions."""
    with WireClient(broker.bootstrap_servers) as client:
        client.create_topics([("a" * 249, 1), ("ab" * 120, 1)])
        await_coordinators(client, "a" * 200)
        before_s, before_bytes = broker.cpu_seconds, broker.resident_bytes
        for pattern in HOSTILE:
            expected = {Errors.NONE, Errors.INVALID_REGULAR_EXPRESSION}
            assert subscribe(client, pattern) in expected
            listed = list_transactions(client, pattern)
            assert isinstance(listed, list) or listed in expected
        assert broker.cpu_seconds - before_s < 3
        assert broker.resident_bytes - before_bytes < 32 << 20
    assert broker.stop() == 0
    assert "Traceback" not in broker.text()


PATTERNS = [
    "pay-.*",
    "pay",
    "pay-1|ref-1",
    "(pay|ref)-[0-9]+",
    "\\Qpay-1\\E",
    "\\pL+-\\d",
    "\\p{Greek}+",
    "(?i)PAY-1",
    "^pay-1$",
    "(",
    "[z-a]",
    "pay-**",
    "pay(?=-1).*",
    "(p)ay-\\1",
    "(?<!x)pay-1",
    "pay-{1001}",
    "pay-1\\",
]
IDS = ["pay-1", "ref-1", "pay-1x", "Ω"]


@pytest.mark.java
def test_responses_are_those_of_apache_kafka(broker: BrokerProcess, tmp_path: Path) -> None:
    with java_or_skip(), ExitStack() as stack:
        kafka = KafkaServer(
            tmp_path,
            offsets_topic_num_partitions="1",
            transaction_state_log_num_partitions="1",
            transaction_state_log_replication_factor="1",
            transaction_state_log_min_isr="1",
        )
        kafka.format()
        kafka.start()
        stack.callback(kafka.stop)
        clients = [stack.enter_context(WireClient(one.bootstrap_servers)) for one in (broker, kafka)]
        for client in clients:
            await_coordinators(client, *IDS)
        for pattern in PATTERNS:
            ours, theirs = [(subscribe(client, pattern), list_transactions(client, pattern)) for client in clients]
            assert ours == theirs, pattern
