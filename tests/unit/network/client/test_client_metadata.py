"""The client and the owner of the metadata: who is asked, what has precedence, what is reported to whom."""

from __future__ import annotations

from random import Random

import pytest

from barnabas.common.errors import UnsupportedVersionError
from barnabas.network.client.inflight import FOREVER
from barnabas.network.client.metadata_updater import ManualMetadataUpdater
from barnabas.network.client.node import Node
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from unit.network.client.client_doubles import NODE, OTHER, Harness, all_versions

THIRD = Node(3, "three.example", 9092)


# -- metadata requests


def test_while_metadata_is_due_no_node_is_ready() -> None:
    harness = Harness()
    harness.make_ready()
    harness.updater.due = True
    assert not harness.client.is_ready(NODE, harness.now)
    assert not harness.ready()
    assert len(harness.selector.attempts) == 1, "connected all the same"
    harness.updater.due = False
    assert harness.ready()


def test_a_metadata_request_goes_to_the_updater_and_to_nobody_else() -> None:
    harness = Harness(nodes=[NODE])
    harness.updater.wanted = MetadataRequest(topics=None)
    assert harness.poll(9000) == []
    assert harness.updater.delays == [50], "a connection is being made for it"
    assert harness.selector.waits[-1] == 50
    assert harness.poll(9000) == []
    assert harness.updater.delays == [50, 50], "and no second one meanwhile"
    harness.selector.accept("1")
    harness.poll()
    harness.answer(harness.selector.sent.popleft(), all_versions())
    harness.poll()
    assert harness.poll(0) == []
    assert harness.updater.delays[-1] == 30_000
    sent = harness.selector.sent.popleft()
    assert sent.header.api_key is ApiKey.METADATA
    harness.answer(sent, MetadataResponse(cluster_id="c"))
    assert harness.poll() == []
    ((request, response),) = harness.updater.completed
    assert request.correlation_id == sent.header.correlation_id
    assert isinstance(response, MetadataResponse)
    assert response.cluster_id == "c"
    assert harness.updater.failures == []


def test_a_metadata_request_of_the_callers_own_is_a_request_like_any_other() -> None:
    harness = Harness()
    harness.make_ready()
    harness.send(MetadataRequest())
    harness.answer(harness.selector.sent.popleft(), MetadataResponse())
    assert len(harness.poll()) == 1
    assert harness.updater.completed == []


def test_a_metadata_request_that_cannot_be_sent_waits_for_the_connection_to_report() -> None:
    harness = Harness(nodes=[NODE], max_in_flight_requests_per_connection=1)
    harness.make_ready()
    harness.send(HeartbeatRequest())
    assert harness.client.send_metadata_request(NODE, MetadataRequest, harness.now) == FOREVER


@pytest.mark.parametrize("how", ["lost", "timed out", "disconnected", "closed"])
def test_a_metadata_request_that_gets_no_response_has_failed(how: str) -> None:
    harness = Harness(nodes=[NODE])
    harness.make_ready()
    harness.updater.wanted = MetadataRequest()
    harness.poll()
    assert harness.client.in_flight_request_count() == 1
    if how == "lost":
        harness.selector.lose("1", error=EOFError())
    elif how == "timed out":
        harness.clock.advance(30_001)
    elif how == "disconnected":
        harness.client.disconnect("1")
    else:
        harness.client.close_connection("1")
    assert harness.poll() == []
    assert harness.updater.failures == [None]
    assert harness.updater.disconnects == ([("1", None)] if how in {"lost", "timed out"} else [])


def test_a_metadata_request_without_a_version_has_failed_for_good() -> None:
    harness = Harness(nodes=[NODE])
    harness.make_ready(versions=all_versions(METADATA=(90, 99)))
    harness.updater.wanted = MetadataRequest()
    assert harness.poll() == []
    (error,) = harness.updater.failures
    assert isinstance(error, UnsupportedVersionError)
    assert harness.poll() == []


def test_poll_waits_no_longer_than_the_updater_wants() -> None:
    harness = Harness(nodes=[])
    harness.updater.wanted = MetadataRequest()
    harness.poll(9000)
    assert harness.selector.waits == [50], "no node at all: look again soon"


# -- starting again


def test_starting_again_closes_everything_first() -> None:
    harness = Harness()
    harness.updater.rebootstraps = True
    harness.make_ready()
    request = harness.send(HeartbeatRequest())
    assert not harness.ready(OTHER)
    harness.updater.needed = True
    responses = harness.poll()
    assert [response.request for response in responses] == [request]
    assert responses[0].disconnected
    assert harness.updater.rebootstrapped == [harness.now]
    assert sorted(harness.selector.closed_by_client) == ["1", "2"]
    assert harness.updater.disconnects == [("1", None), ("2", None)]


def test_an_updater_that_does_not_start_again_is_not_asked() -> None:
    harness = Harness()
    harness.updater.needed = True
    harness.make_ready()
    harness.poll()
    assert harness.updater.rebootstrapped == []


def test_nodes_can_be_set_by_hand() -> None:
    updater = ManualMetadataUpdater()
    assert list(updater.fetch_nodes()) == []
    updater.set_nodes([NODE])
    assert list(updater.fetch_nodes()) == [NODE]
    assert not updater.is_update_due(0)
    assert updater.cluster_id is None
    assert not updater.can_rebootstrap
    assert not updater.needs_rebootstrap(0)


# -- the least loaded node


def least(harness: Harness) -> Node | None:
    return harness.client.least_loaded_node(harness.now).node


def test_the_node_with_the_fewest_requests_in_flight() -> None:
    harness = Harness(nodes=[NODE, OTHER, THIRD])
    for node in (NODE, OTHER, THIRD):
        harness.make_ready(node)
    for node in (NODE, NODE, OTHER, THIRD, THIRD):
        harness.send(HeartbeatRequest(), node)
    assert least(harness) == OTHER
    harness.send(HeartbeatRequest(), OTHER)
    assert least(harness) == NODE, "the first of those that are equal"


def test_a_connected_node_before_a_connecting_one_before_one_that_is_not() -> None:
    harness = Harness(nodes=[NODE, OTHER, THIRD])
    found = harness.client.least_loaded_node(harness.now)
    assert found.node == NODE
    assert not found.connection_ready
    assert not harness.ready(OTHER)
    assert least(harness) == OTHER
    harness.make_ready(THIRD)
    harness.send(HeartbeatRequest(), THIRD)
    found = harness.client.least_loaded_node(harness.now)
    assert found.node == THIRD
    assert found.connection_ready


def test_of_nodes_not_connected_the_one_not_tried_for_longest() -> None:
    harness = Harness(nodes=[NODE, OTHER])
    for node in (NODE, OTHER):
        assert not harness.ready(node)
        harness.selector.lose(node.id_string, error=ConnectionRefusedError())
        harness.poll()
        harness.clock.advance(1000)
    assert least(harness) == NODE
    assert not harness.ready(NODE)
    harness.selector.lose("1", error=ConnectionRefusedError())
    harness.poll()
    assert least(harness) == OTHER


def test_no_node_when_all_are_in_their_back_off() -> None:
    harness = Harness(nodes=[NODE])
    assert not harness.ready()
    harness.selector.lose("1", error=ConnectionRefusedError())
    harness.poll()
    found = harness.client.least_loaded_node(harness.now)
    assert found.node is None
    assert not found.has_node_available_or_connection_ready
    harness.clock.advance(50)
    assert least(harness) == NODE


def test_a_busy_connection_is_no_node_but_no_reason_to_start_again() -> None:
    harness = Harness(nodes=[NODE], max_in_flight_requests_per_connection=1)
    harness.make_ready()
    harness.send(HeartbeatRequest())
    found = harness.client.least_loaded_node(harness.now)
    assert found.node is None
    assert found.connection_ready
    assert found.has_node_available_or_connection_ready
    harness.answer(harness.selector.sent.popleft(), HeartbeatResponse())
    harness.poll()
    assert least(harness) == NODE


def test_equal_nodes_are_chosen_at_random() -> None:
    harness = Harness(nodes=[NODE, OTHER, THIRD], random=Random(5))
    assert {least(harness) for _ in range(60)} == {NODE, OTHER, THIRD}


def test_there_may_be_no_nodes_at_all() -> None:
    found = Harness(nodes=[]).client.least_loaded_node(0)
    assert found.node is None
    assert not found.has_node_available_or_connection_ready
