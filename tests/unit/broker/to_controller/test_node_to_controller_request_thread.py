"""Requests to the controller: whom they go to, and what becomes of them when something goes wrong (R10)."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.to_controller.controller_node_provider import ControllerNodeProvider
from barnabas.broker.to_controller.node_to_controller_request_thread import (
    NO_CONTROLLER_WAIT_MS,
    NOT_CONTROLLER_RETRY_MS,
    NodeToControllerRequestThread,
)
from barnabas.common.clock import MockClock
from barnabas.common.errors import AuthenticationError, Errors, UnsupportedVersionError
from barnabas.network.client.client_request import ClientResponse
from barnabas.network.client.node import Node
from barnabas.network.client.node_api_versions import NodeApiVersions
from barnabas.protocol.message import Response
from barnabas.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from barnabas.protocol.messages.alter_partition import (
    AlterPartitionResponse,
    ResponsePartitionData,
    ResponseTopicData,
)
from barnabas.protocol.messages.envelope import EnvelopeResponse
from barnabas.raft.client import LeaderAndEpoch
from controller_channel_fixtures import FakeControllerClient

ONE, TWO = Node(1, "one", 9093), Node(2, "two", 9093)
RETRY_TIMEOUT_MS = 1_000


class Outcome:
    """A completion handler that remembers."""

    def __init__(self) -> None:
        self.responses: list[ClientResponse] = []
        self.timeouts = 0

    def on_complete(self, response: ClientResponse) -> None:
        self.responses.append(response)

    def on_timeout(self) -> None:
        self.timeouts += 1

    @property
    def is_open(self) -> bool:
        return not self.responses and not self.timeouts


class Bench:
    def __init__(self, leader: int | None = 1) -> None:
        self.clock = MockClock()
        self.client = FakeControllerClient(self.clock)
        self.nodes = ControllerNodeProvider({1: ONE, 2: TWO})
        self.elect(leader)
        self.new_controllers: list[Node] = []
        self.thread = NodeToControllerRequestThread(
            "test", self.client, self.nodes, self.clock, RETRY_TIMEOUT_MS, self.new_controllers.append
        )

    def elect(self, leader: int | None) -> None:
        self.nodes.on_controller_change(LeaderAndEpoch(leader, 1))

    def send(self, broker_id: int = 0) -> Outcome:
        outcome = Outcome()
        self.thread.enqueue(AllocateProducerIdsRequest(broker_id=broker_id), outcome)
        return outcome

    def work(self, turns: int = 1) -> None:
        for _ in range(turns):
            self.thread.do_work()

    def destination(self) -> str:
        return self.client.sent[0].destination

    def sent_ids(self) -> list[int]:
        bodies: list[Any] = [request.body for request in self.client.sent]
        return [body.broker_id for body in bodies]


@pytest.mark.mechanism("R10")
def test_a_request_goes_to_the_controller_and_its_response_to_the_handler() -> None:
    b = Bench(leader=2)
    outcome = b.send()
    b.work()
    assert b.destination() == "2"
    assert b.new_controllers == [TWO]
    answer = AllocateProducerIdsResponse(producer_id_len=1000)
    b.client.end(answer)
    b.work()
    assert [response.body for response in outcome.responses] == [answer]


def test_requests_go_one_at_a_time_and_in_order() -> None:
    b = Bench()
    first, second = b.send(1), b.send(2)
    b.work(3)
    assert b.sent_ids() == [1]
    b.client.end(AllocateProducerIdsResponse())
    b.work()
    assert not first.is_open
    assert second.is_open
    b.work()
    assert b.sent_ids() == [2]


def test_without_a_controller_a_request_waits_until_there_is_one() -> None:
    b = Bench(leader=None)
    outcome = b.send()
    b.work(2)
    assert b.client.waits == [NO_CONTROLLER_WAIT_MS] * 2
    assert not b.client.sent
    assert outcome.is_open
    b.elect(2)
    b.work()
    assert b.destination() == "2"


def test_whoever_is_told_of_a_new_controller_is_woken() -> None:
    b = Bench(leader=None)
    b.nodes.add_listener(b.thread.wakeup)
    b.elect(1)
    assert b.client.wakeups == 1


NOT_CONTROLLER = Errors.NOT_CONTROLLER.value


@pytest.mark.mechanism("R10")
@pytest.mark.parametrize(
    "answer",
    [
        AllocateProducerIdsResponse(error_code=NOT_CONTROLLER),
        EnvelopeResponse(error_code=NOT_CONTROLLER),
        AlterPartitionResponse(
            topics=[ResponseTopicData(partitions=[ResponsePartitionData(error_code=NOT_CONTROLLER)])]
        ),
    ],
    ids=["in the answer", "in the Envelope", "deep in the answer"],
)
def test_not_controller_makes_it_look_the_controller_up_again_and_resend(answer: Response) -> None:
    b = Bench(leader=1)
    outcome, later = b.send(1), b.send(2)
    b.work()
    b.client.end(answer)
    b.elect(2)
    b.work()
    assert outcome.is_open
    assert b.client.disconnects == ["1"]
    b.work()
    assert b.destination() == "2"
    assert b.sent_ids() == [1], "the request goes before those that came after it"
    b.client.end(AllocateProducerIdsResponse())
    b.work()
    assert len(outcome.responses) == 1
    assert later.is_open


@pytest.mark.mechanism("R10")
def test_a_controller_that_does_not_know_it_yet_is_asked_again_shortly() -> None:
    b = Bench(leader=1)
    outcome = b.send()
    b.work()
    b.client.end(AllocateProducerIdsResponse(error_code=NOT_CONTROLLER))
    b.work(2)
    assert not b.client.disconnects
    assert not b.client.sent
    assert b.client.waits[-1] == NOT_CONTROLLER_RETRY_MS
    b.clock.advance(NOT_CONTROLLER_RETRY_MS)
    b.work()
    assert b.destination() == "1"
    assert outcome.is_open


@pytest.mark.mechanism("R10")
def test_a_lost_connection_makes_it_look_the_controller_up_again_and_resend() -> None:
    b = Bench(leader=1)
    outcome = b.send()
    b.work()
    b.client.end(disconnected=True)
    b.elect(2)
    b.work(2)
    assert outcome.is_open
    assert b.destination() == "2"


def test_a_connection_that_cannot_be_made_is_tried_again_after_the_backoff_and_elsewhere() -> None:
    b = Bench(leader=1)
    outcome = b.send()
    b.client.failed = True
    b.work(2)
    assert b.client.waits == [50, 50]
    assert outcome.is_open
    assert not b.client.sent
    b.elect(2)
    b.client.failed = False
    b.work()
    assert b.client.asked == [ONE, ONE, TWO]
    assert b.destination() == "2"


def test_a_connection_in_the_making_is_waited_for() -> None:
    b = Bench()
    b.client.is_ready = False
    b.send()
    b.work()
    assert b.client.waits == [RETRY_TIMEOUT_MS]
    assert b.thread.active_controller == ONE


def test_a_request_that_cannot_be_sent_in_time_times_out_and_the_others_go_on() -> None:
    b = Bench(leader=None)
    early = b.send(1)
    b.clock.advance(RETRY_TIMEOUT_MS - 1)
    late = b.send(2)
    b.work()
    assert early.is_open
    assert b.client.waits == [1], "it wakes up for the deadline"
    b.clock.advance(1)
    b.work()
    assert early.timeouts == 1
    assert late.is_open
    b.elect(1)
    b.work()
    assert b.sent_ids() == [2]


def test_a_version_that_is_not_spoken_is_told() -> None:
    b = Bench()
    outcome = b.send()
    b.work()
    b.client.end(version_mismatch=UnsupportedVersionError("no"))
    b.work()
    assert outcome.responses[0].version_mismatch is not None
    assert b.thread.active_controller == ONE, "it is still the controller"


def test_a_controller_that_refuses_this_node_is_told_at_once() -> None:
    b = Bench()
    outcome = b.send()
    b.work()
    b.client.end(disconnected=True, authentication_error=AuthenticationError("no"))
    b.work()
    assert outcome.responses[0].authentication_error is not None
    assert b.client.disconnects == ["1"]
    assert b.thread.active_controller is None


def test_a_connection_that_is_refused_before_anything_is_sent_is_told_too() -> None:
    b = Bench()
    outcome, second = b.send(), b.send()
    b.client.failed = True
    b.client.error = AuthenticationError("no")
    b.work()
    assert outcome.responses[0].authentication_error is b.client.error
    assert second.is_open
    assert b.client.waits == [50], "no faster than the back-off"


def test_a_handler_that_fails_does_not_stop_the_thread() -> None:
    b = Bench()

    class Broken:
        def on_complete(self, response: ClientResponse) -> None:
            raise RuntimeError("a bug")

        def on_timeout(self) -> None:
            raise RuntimeError("a bug")

    b.thread.enqueue(AllocateProducerIdsRequest(), Broken())
    b.work()
    b.client.end(AllocateProducerIdsResponse())
    b.work()
    b.thread.enqueue(AllocateProducerIdsRequest(), Broken())
    b.clock.advance(RETRY_TIMEOUT_MS)
    outcome = b.send(3)
    b.work(2)
    assert b.sent_ids() == [3]
    assert outcome.is_open


def test_the_versions_of_the_controller_outlive_its_connection() -> None:
    b = Bench()
    assert b.thread.controller_api_versions is None
    b.send()
    b.work()
    spoken = b.client.versions["1"] = NodeApiVersions([])
    b.client.end(AllocateProducerIdsResponse(error_code=NOT_CONTROLLER))
    b.elect(None)
    b.work()
    b.client.versions.clear()
    assert b.thread.active_controller is None
    assert b.thread.controller_api_versions is spoken


def test_closing_tells_everybody_who_waits_and_everybody_who_comes_later() -> None:
    b = Bench(leader=None)
    before = b.send()
    b.thread.close()
    after = b.send()
    assert before.timeouts == after.timeouts == 1
    assert b.client.closed
