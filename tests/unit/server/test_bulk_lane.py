"""Requests that cost much: which they are, who handles them, and how much memory they may take."""

from __future__ import annotations

import pytest

from barnabas.common.clock import MockClock
from barnabas.metrics.yammer.registry import MetricsRegistry
from barnabas.network.reactor.send import FileRegion
from barnabas.network.server.response import CLOSE_CONNECTION, DROP_CONNECTION, SEND
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.framing import LENGTH_SIZE, encode_request
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.envelope import EnvelopeRequest
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.security.principal import ANONYMOUS, serialize_principal
from barnabas.server.bulk_lane import BULK_QUEUE_BYTES, BULK_RESPONSE_BYTES, STALLED_MS
from barnabas.server.dispatch import LIGHT_BYTES, ApiDispatcher, RequestRunner
from barnabas.server.envelope import ForwardedRequest, open_envelope
from barnabas.server.request import Request
from barnabas.server.request_channel import RequestChannel
from barnabas.server.request_handler_helper import RequestHandlerHelper
from barnabas.server.request_local import RequestLocal
from barnabas.server.request_metrics import RequestTimes
from network_fixtures import FakeProcessorHandle, Plane, Policy, heartbeat, leave_group, request_from

pytestmark = pytest.mark.mechanism("N11")


class Bench:
    """A channel and a clock that stands still."""

    def __init__(self, bulk_width: int = 1) -> None:
        self.clock = MockClock()
        self.times = RequestTimes(MetricsRegistry(self.clock), self.clock)
        self.channel = RequestChannel(
            10, self.clock, self.times, short_apis={ApiKey.HEARTBEAT}, parallel=False, bulk_width=bulk_width
        )
        self.processor = FakeProcessorHandle(asleep=False)
        self.channel.add_processor(self.processor)

    def request(self, number: int, size: int | None = None) -> Request:
        request = request_from(leave_group(number), self.times)
        if size is not None:
            request.size = size
        return request

    def take(self) -> Request | None:
        item = self.channel.receive_request(0)
        assert item is None or isinstance(item, Request)
        return item


def test_a_bulk_request_keeps_nobody_waiting_and_takes_its_turn() -> None:
    b = Bench()
    first, second, ordinary = b.request(1), b.request(2), b.request(3)
    b.channel.send_bulk([first, second])
    assert not b.channel.requests, "the network thread handles short requests, whatever waits in the bulk lane"
    b.channel.send_requests([ordinary])
    assert b.take() is first
    assert b.take() is ordinary
    assert b.take() is None, "one at a time"
    assert b.channel.bulk_queue_size == 1


def test_the_next_bulk_request_starts_when_the_one_before_is_done() -> None:
    b = Bench()
    first, second = b.request(1), b.request(2)
    b.channel.send_bulk([first, second])
    assert b.take() is first
    assert b.channel.is_bulk(first)
    assert not b.channel.is_bulk(second)
    b.channel.finish_bulk()
    assert not b.channel.is_bulk(first)
    assert b.take() is second


def test_a_bulk_request_is_in_flight_until_its_response() -> None:
    b = Bench()
    first, second = b.request(1), b.request(2)
    b.channel.send_bulk([first, second])
    seen = [b.channel.has_bulk]
    assert b.take() is first
    b.channel.finish_bulk()  # its handler is done, and something else completes it
    seen.append(b.channel.has_bulk)
    b.channel.send_parts(first, [b"x"])
    seen.append(b.channel.has_bulk)
    assert b.take() is second
    seen.append(b.channel.has_bulk)
    b.channel.close_without_response(second)
    seen.append(b.channel.has_bulk)
    assert seen == [False, True, False, True, False]


def test_the_entries_of_a_bulk_request_are_freed_when_it_is_handled_and_has_its_response() -> None:
    b = Bench()
    body = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="m")])
    later, now = (request_from(encode_request(body, 4, number, "test"), b.times) for number in (1, 2))
    decoded: list[LeaveGroupRequest] = []
    after_response: list[object] = []

    def handle(request: Request, _local: RequestLocal) -> None:
        assert isinstance(request.body, LeaveGroupRequest)
        decoded.append(request.body)
        if request is now:
            b.channel.send_parts(request, [b"x"])
            after_response.append(request.body)

    helper = RequestHandlerHelper(b.channel, b.clock)
    runner = RequestRunner(ApiDispatcher({ApiKey.LEAVE_GROUP: handle}, helper), b.channel, b.clock)
    for request in (later, now):
        b.channel.send_bulk([request])
        assert b.take() is request
        runner.run_bulk(request, runner.new_local())
    assert after_response == [body], "the handler may still need it"
    assert later.body == body, "it has no response yet"
    assert now.body == LeaveGroupRequest(group_id="g")
    b.channel.send_parts(later, [b"x"])
    assert later.body == LeaveGroupRequest(group_id="g")
    assert decoded == [body, body], "as those see them who still hold them"


def enveloped(b: Bench, body: CreateTopicsRequest) -> tuple[Request, ForwardedRequest]:
    """Returns the Envelope of a forwarded request, and the request."""
    inner = encode_request(body, 7, 7, "test")[LENGTH_SIZE:]
    principal = serialize_principal(ANONYMOUS)
    envelope = EnvelopeRequest(request_data=inner, request_principal=principal, client_host_address=bytes(4))
    request = request_from(encode_request(envelope, 0, 1, "broker"), b.times)
    return request, open_envelope(request)


def test_a_large_envelope_is_in_flight_until_the_response_to_its_request() -> None:
    b = Bench()
    request, inner = enveloped(b, CreateTopicsRequest(topics=[CreatableTopic(name="orders")], timeout_ms=5))
    b.channel.send_bulk([request])
    assert b.take() is request
    b.channel.finish_bulk()
    seen = [b.channel.has_bulk]
    b.channel.send_response(inner, CreateTopicsResponse())
    seen.append(b.channel.has_bulk)
    assert seen == [True, False], "every large Envelope would stay in memory"
    assert inner.body == CreateTopicsRequest(timeout_ms=5), "nor are its entries kept until the response is sent"


def test_a_single_handler_alternates_between_bulk_and_ordinary_requests() -> None:
    b = Bench()
    bulk = [b.request(number) for number in (1, 2)]
    ordinary = [b.request(number) for number in (3, 4)]
    b.channel.send_bulk(bulk)
    b.channel.send_requests(ordinary)
    assert b.take() is bulk[0]
    b.channel.finish_bulk()
    assert b.take() is ordinary[0], "num.io.threads=1: an ordinary request does not wait for the whole bulk lane"
    assert b.take() is bulk[1]
    b.channel.finish_bulk()
    assert b.take() is ordinary[1]


def test_as_many_handlers_as_the_lane_is_wide() -> None:
    b = Bench(bulk_width=2)
    requests = [b.request(number) for number in range(3)]
    b.channel.send_bulk(requests)
    assert [b.take(), b.take(), b.take()] == [requests[0], requests[1], None]


def test_the_connection_of_a_request_that_does_not_fit_is_closed() -> None:
    b = Bench()
    fits, waits, too_much = b.request(1), b.request(2, BULK_QUEUE_BYTES - 1000), b.request(3, 2000)
    b.channel.send_bulk([fits, waits, too_much])
    response = b.processor.next_response()
    assert (response.kind, response.request) == (CLOSE_CONNECTION, too_much)
    assert b.processor.response_queue_size == 0
    assert b.channel.bulk_queue_size == 2


def test_unread_responses_hold_the_next_request_back_until_they_are_gone() -> None:
    b = Bench()
    b.channel.send_bulk([b.request(1), b.request(2)])
    first = b.take()
    assert first is not None
    b.channel.send_parts(first, [bytes(BULK_RESPONSE_BYTES)])
    b.channel.finish_bulk()
    assert b.take() is None
    response = b.processor.next_response()
    assert response.kind is SEND
    assert b.take() is None, "it is on its way"
    del response
    taken = b.take()
    assert taken is not None
    assert taken.correlation_id == 2


def test_the_response_to_a_request_that_has_waited_elsewhere_counts_too() -> None:
    b = Bench()
    b.channel.send_bulk([b.request(1), b.request(2)])
    first = b.take()
    assert first is not None
    b.channel.finish_bulk()  # forwarded: the controller's response comes later
    b.channel.send_parts(first, [bytes(BULK_RESPONSE_BYTES)])
    assert b.take() is None
    b.processor.next_response()
    assert b.take() is not None


def test_records_that_are_sent_from_files_take_no_memory() -> None:
    """A fetch of hundreds of partitions is a bulk request, and a consumer may take long to receive the response."""
    b = Bench()
    b.channel.send_bulk([b.request(1), b.request(2), b.request(3)])
    first = b.take()
    assert first is not None
    b.channel.send_parts(first, [b"header", FileRegion(0, 0, 10 * BULK_RESPONSE_BYTES)])
    b.channel.finish_bulk()
    unread = [b.processor.next_response()]
    b.clock.advance(10 * STALLED_MS)
    second = b.take()
    assert second is not None, "it does not wait for the consumer"
    assert b.processor.response_queue_size == 0, "nor is the consumer disconnected"
    b.channel.send_parts(second, [bytes(BULK_RESPONSE_BYTES), FileRegion(0, 0, 1)])
    b.channel.finish_bulk()
    unread.append(b.processor.next_response())
    assert b.take() is None, "the rest of such a response counts"
    b.clock.advance(STALLED_MS)
    b.take()
    response = b.processor.next_response()
    assert (response.kind, response.request) == (DROP_CONNECTION, second), "not the consumer, which takes no memory"
    del unread


def test_who_leaves_a_response_unread_while_others_wait_is_cut_off() -> None:
    b = Bench()
    b.channel.send_bulk([b.request(1), b.request(2)])
    first = b.take()
    assert first is not None
    b.channel.send_parts(first, [bytes(BULK_RESPONSE_BYTES)])
    b.channel.finish_bulk()
    unread = b.processor.next_response()
    b.clock.advance(STALLED_MS - 1)
    assert b.take() is None
    assert b.processor.response_queue_size == 0
    b.clock.advance(1)
    b.take()
    response = b.processor.next_response()
    assert (response.kind, response.request) == (DROP_CONNECTION, first)
    del unread


def test_who_leaves_a_response_unread_is_cut_off_by_busy_handlers_too() -> None:
    b = Bench()
    b.channel.send_bulk([b.request(1), b.request(2)])
    first = b.take()
    assert first is not None
    b.channel.send_parts(first, [bytes(BULK_RESPONSE_BYTES)])
    b.channel.finish_bulk()
    unread = b.processor.next_response()
    b.clock.advance(STALLED_MS)
    ordinary = b.request(3)
    b.channel.send_requests([ordinary])  # a busy broker: no handler ever finds the queue empty
    assert b.take() is ordinary
    response = b.processor.next_response()
    assert (response.kind, response.request) == (DROP_CONNECTION, first)
    del unread


def test_nobody_is_cut_off_if_nobody_waits() -> None:
    b = Bench()
    b.channel.send_bulk([b.request(1)])
    first = b.take()
    assert first is not None
    b.channel.send_parts(first, [bytes(BULK_RESPONSE_BYTES)])
    b.channel.finish_bulk()
    unread = b.processor.next_response()
    b.clock.advance(10 * STALLED_MS)
    assert b.take() is None
    assert b.processor.response_queue_size == 0
    del unread


def test_many_pieces_of_a_response_become_one() -> None:
    b = Bench()
    b.channel.send_bulk([b.request(1)])
    first = b.take()
    assert first is not None
    pieces = [b"x"] * 100_000
    b.channel.send_parts(first, pieces)
    response = b.processor.next_response()
    assert response.size == 100_000  # type: ignore[union-attr]
    assert not pieces, "each takes more memory than what is in it"


# -- which requests are bulk requests


class PlaneBench(Plane):
    """A plane with both kinds, that notes what was handled by this thread."""

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy, self._note, clock=MockClock())
        self.apis.light_bytes = {ApiKey.HEARTBEAT: 100}
        self.data_plane = type(self.data_plane)(
            self.channel, self.runner, self.versions, MockClock(), self.data_plane.hand_off
        )
        self.handled: list[int] = []
        self.heavy: set[int] = set()
        self.channel.add_processor(FakeProcessorHandle(asleep=False))

    def _note(self, request: Request, local: RequestLocal) -> None:
        if local.inline and request.correlation_id in self.heavy:
            local.hand_over()
            return
        self.handled.append(request.correlation_id)
        self.answer(request)

    def request(self, number: int, size: int, *, short: bool = True) -> Request:
        request = request_from((heartbeat if short else leave_group)(number), self.times)
        request.size = size
        return request

    def bulk(self) -> list[int]:
        """What the bulk lane has, taken one after the other."""
        numbers = []
        while self.channel.bulk_queue_size:
            item = self.channel.receive_request(0)
            assert isinstance(item, Request)
            if self.channel.is_bulk(item):
                numbers.append(item.correlation_id)
                self.channel.finish_bulk()
        return numbers


def test_the_size_of_a_request_decides_before_it_runs() -> None:
    b = PlaneBench(Policy.DIRECT)
    b.data_plane.submit([b.request(1, 100), b.request(2, 101)])
    assert b.handled == [1]
    assert b.bulk() == [2]


@pytest.mark.parametrize("policy", [Policy.DIRECT, Policy.QUEUE])
def test_large_requests_of_other_apis_are_bulk_requests_in_either_policy(policy: Policy) -> None:
    b = PlaneBench(policy)
    b.data_plane.submit([b.request(1, LIGHT_BYTES, short=False), b.request(2, LIGHT_BYTES + 1, short=False)])
    assert b.channel.request_queue_size == 1
    assert b.bulk() == [2]


def test_a_handler_hands_over_what_turns_out_to_be_too_much() -> None:
    b = PlaneBench(Policy.DIRECT)
    b.heavy = {2}
    requests = [b.request(number, 50) for number in (1, 2, 3)]
    b.data_plane.submit(requests)
    assert b.handled == [1, 3]
    item = b.channel.receive_request(0)
    assert item is requests[1]
    assert requests[1].buffer is not None, "it is read anew"
    assert requests[1].awaits_response
    b.runner.run(requests[1], b.runner.new_local())
    assert b.handled == [1, 3, 2]
    assert requests[1].buffer is None


def test_only_the_request_of_a_network_thread_can_be_handed_over() -> None:
    b = PlaneBench(Policy.DIRECT)
    local = b.runner.new_local()
    local.request = b.request(1, 10)
    with pytest.raises(RuntimeError):
        local.hand_over()
    with pytest.raises(RuntimeError):
        b.runner.new_local(inline=True).hand_over()
