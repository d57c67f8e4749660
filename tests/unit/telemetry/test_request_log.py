"""The request log: who is chosen, what is told, and what it costs when it is off."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.common.clock import MockClock
from barnabas.common.errors import Errors
from barnabas.common.log_safety import MAX_ARGUMENT
from barnabas.common.scheduler import MockScheduler
from barnabas.metrics.yammer.registry import MetricsRegistry
from barnabas.network.server.response import SendResponse
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.security.principal import KafkaPrincipal
from barnabas.server.request import Request
from barnabas.telemetry.request_log import (
    ENTRY_BYTES,
    MAX_KEPT_BYTES,
    MAX_PASSED_OVER,
    RequestLog,
    RequestLogEncoder,
    RequestLogEntry,
    completed_moments,
    passed_over,
)
from barnabas.telemetry.topic_writer import TopicWriter
from handler_fixtures import HandlerBench
from telemetry_fixtures import Appends, OneTopic


class Offered(TopicWriter[RequestLogEntry]):
    """A writer that keeps what it is given."""

    def __init__(self, clock: MockClock) -> None:
        scheduler = MockScheduler(clock)
        super().__init__(
            "__request_log",
            RequestLogEncoder(1, clock),
            1,
            OneTopic(),
            Appends(),
            lambda _name: None,
            lambda: None,
            scheduler,
            clock,
            MetricsRegistry(clock),
        )
        self.entries: list[tuple[RequestLogEntry, int]] = []

    def offer(self, record: RequestLogEntry, size: int) -> bool:
        self.entries.append((record, size))
        return True


class Bench:
    def __init__(self, chance: Callable[[], float] = lambda: 0.0) -> None:
        self.clock = MockClock(milliseconds=1_700_000_000_000)
        self.handlers = HandlerBench(clock=self.clock)
        self.writer = Offered(self.clock)
        self.log = RequestLog(self.handlers.times, self.writer, chance)

    def request(self, **options: Any) -> Request:
        return self.handlers.request(HeartbeatRequest(group_id="g"), 4, **options)

    def answer(self, request: Request, error: Errors = Errors.NONE) -> SendResponse:
        """Sends a response, as handler and processor do."""
        self.handlers.helper.send(request, HeartbeatResponse(error_code=error))
        (response,) = self.handlers.responses(request)
        assert isinstance(response, SendResponse)
        return response

    def complete(self, request: Request, error: Errors = Errors.NONE) -> None:
        request.complete(0, self.answer(request, error))

    def document(self, index: int = -1) -> dict[str, Any]:
        record = RequestLogEncoder(3, self.clock)(self.writer.entries[index][0])
        document: dict[str, Any] = json.loads(record.value)
        assert record.timestamp_ms == document["end_time_us"] // 1_000
        return document


def test_turned_off_nobody_is_told_of_requests() -> None:
    bench = Bench()
    told = []
    for rate in (0.0, 0.5, 0.0):
        bench.log.sample_rate = rate
        told.append(bench.handlers.times.listener is not None)
        bench.complete(bench.request())
    assert told == [False, True, False]
    assert len(bench.writer.entries) == 1


def test_it_is_off_unless_turned_on() -> None:
    bench = Bench()
    assert bench.log.sample_rate == 0.0
    assert bench.handlers.times.listener is None


def test_chance_decides() -> None:
    """A draw of 0 takes the next request; of 0.5 at a rate of a half, the one after it."""
    chances = iter([0.5, 0.0, 0.75, 0.0])
    bench = Bench(lambda: next(chances))
    bench.log.sample_rate = 0.5
    requests = [bench.request(correlation_id=number) for number in range(6)]
    for request in requests:
        bench.complete(request)
    assert [entry.correlation_id for entry, _ in bench.writer.entries] == [1, 2, 5]
    assert bench.document()["sample_rate"] == 0.5


def test_nothing_is_drawn_for_requests_that_are_passed_over() -> None:
    draws: list[float] = []

    def chance() -> float:
        draws.append(0.5)
        return 0.5

    bench = Bench(chance)
    bench.log.sample_rate = 0.01
    for _ in range(69):
        bench.complete(bench.request())
    assert (len(draws), len(bench.writer.entries)) == (2, 1)


def test_the_rate_changes_while_requests_come() -> None:
    bench = Bench(lambda: 0.5)
    bench.log.sample_rate = 0.000_001
    bench.complete(bench.request())
    bench.log.sample_rate = 1.0
    bench.complete(bench.request())
    bench.log.sample_rate = 0.5
    bench.complete(bench.request())
    bench.log.sample_rate = 0.6
    bench.complete(bench.request())
    assert [entry.sample_rate for entry, _ in bench.writer.entries] == [1.0, 0.6]


def test_a_request_that_ends_while_the_rate_changes_does_not_draw_by_the_old_one() -> None:
    bench = Bench(lambda: 0.9)
    bench.log.sample_rate = 0.000_001
    late = bench.handlers.times.listener
    bench.log.sample_rate = 1.0
    request = bench.request()
    assert late is not None
    late(request, bench.answer(request), 1)
    bench.complete(bench.request())
    assert [entry.sample_rate for entry, _ in bench.writer.entries] == [0.000_001, 1.0]


@pytest.mark.parametrize("rate", [0.01, 0.3, 0.9])
def test_each_request_has_the_same_chance(rate: float) -> None:
    chance = random.Random(7).random
    chosen, number = set(), 0
    while number < 100_000:
        number += passed_over(chance(), rate)
        chosen.add(number)
        number += 1
    expected, deviation = 100_000 * rate, math.sqrt(100_000 * rate * (1 - rate))
    assert abs(len(chosen) - expected) < 4 * deviation
    # What came before makes no difference: after one that was chosen the next is as likely as any.
    pairs = sum(number + 1 in chosen for number in chosen)
    assert abs(pairs - len(chosen) * rate) < 4 * math.sqrt(len(chosen) * rate * (1 - rate))


def test_the_ends_of_what_can_be_passed_over() -> None:
    almost_one = 1 - 2**-53
    assert passed_over(0.0, 0.01) == 0
    assert passed_over(almost_one, 1.0) == 0
    assert 3_600 < passed_over(almost_one, 0.01) < 3_700
    assert passed_over(almost_one, 5e-324) == MAX_PASSED_OVER
    recorder = Bench().handlers.times
    recorder.untold = MAX_PASSED_OVER


def test_all_that_is_told() -> None:
    bench = Bench()
    bench.log.sample_rate = 1.0
    request = bench.request(principal=KafkaPrincipal("User", "alice"), client_id="billing", correlation_id=12)
    request.context.client_software_name = "librdkafka"
    request.context.client_software_version = "2.11"
    request.api_throttle_time_ms = 44
    for field in ("request_dequeue_time_ns", "api_local_complete_time_ns"):
        bench.clock.advance(1)
        setattr(request, field, bench.clock.nanoseconds())
    bench.clock.advance(2)
    response = bench.answer(request, Errors.REBALANCE_IN_PROGRESS)
    bench.clock.advance(3)
    request.response_dequeue_time_ns = bench.clock.nanoseconds()
    bench.clock.advance(4)
    request.complete(0, response)
    start = 1_700_000_000_000_000
    assert bench.document() == {
        "schema_version": 1,
        "node_id": 3,
        "sample_rate": 1.0,
        "api": "Heartbeat",
        "api_key": 12,
        "api_version": 4,
        "correlation_id": 12,
        "client_id": "billing",
        "client_software_name": "librdkafka",
        "client_software_version": "2.11",
        "principal": "User:alice",
        "listener": "PLAINTEXT",
        "security_protocol": "PLAINTEXT",
        "client_address": "127.0.0.1",
        "connection_id": "c",
        "forwarded": False,
        "request_bytes": request.size,
        "response": "send",
        "response_bytes": response.size,
        "start_time_us": start,
        "request_dequeue_time_us": start + 1_000,
        "api_local_complete_time_us": start + 2_000,
        "response_complete_time_us": start + 4_000,
        "response_dequeue_time_us": start + 7_000,
        "end_time_us": start + 11_000,
        "callback_time_us": 0,
        "throttle_time_ms": 44,
        "errors": {"REBALANCE_IN_PROGRESS": 1},
    }


def test_the_date_is_that_of_the_request_however_late_it_is_written() -> None:
    bench = Bench()
    bench.log.sample_rate = 1.0
    bench.complete(bench.request())
    bench.clock.advance(60_000)
    assert bench.document()["end_time_us"] == 1_700_000_000_000_000


def test_work_after_a_wait_is_told_of() -> None:
    bench = Bench()
    bench.log.sample_rate = 1.0
    request = bench.request()
    request.callback_request_dequeue_time_ns = 1_000_000
    request.callback_request_complete_time_ns = 4_000_000
    bench.complete(request)
    assert bench.document()["callback_time_us"] == 3_000


def test_a_client_without_a_name_is_anonymous() -> None:
    bench = Bench()
    bench.log.sample_rate = 1.0
    bench.complete(bench.request(client_id=None))
    assert bench.document()["client_id"] is None
    assert bench.document()["principal"] == "User:ANONYMOUS"


@pytest.mark.parametrize("name", ['"', "a\nb", "\\", "Grüße, 世界", "\udc80", ""])
def test_names_of_any_kind_are_told_as_they_are(name: str) -> None:
    bench = Bench()
    bench.log.sample_rate = 1.0
    bench.complete(bench.request())
    entry, size = bench.writer.entries[0]
    bench.writer.entries.append((entry._replace(client_id=name), size))
    assert bench.document()["client_id"] == name


def test_a_long_name_is_cut_and_nothing_breaks_a_line() -> None:
    bench = Bench()
    bench.log.sample_rate = 1.0
    bench.complete(bench.request(client_id="\u2028\u202e\x85" + "x" * 30_000))
    bench.complete(bench.request(client_id="\u2028\u202e\x85"))
    assert len(bench.document(0)["client_id"]) <= MAX_ARGUMENT
    assert bench.document(1)["client_id"] == "\u2028\u202e\x85"
    for entry, _ in bench.writer.entries:
        assert RequestLogEncoder(3, bench.clock)(entry).value.isascii()


def test_what_goes_wrong_here_does_not_reach_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()

    def fail(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(bench.writer, "offer", fail)
    bench.log.sample_rate = 1.0
    bench.complete(bench.request())
    assert bench.writer.failed == 1


@pytest.mark.parametrize("how", ["no_op", "close_connection"])
def test_a_request_without_a_response(how: str) -> None:
    bench = Bench()
    bench.log.sample_rate = 1.0
    request = bench.request()
    if how == "no_op":
        bench.handlers.channel.send_no_op_response(request)
    else:
        bench.handlers.channel.close_connection(request)
    request.complete(0, bench.handlers.responses(request)[0])
    document = bench.document()
    assert (document["response"], document["response_bytes"], document["errors"]) == (how, 0, None)


def test_nothing_of_a_request_is_kept_but_its_small_response() -> None:
    bench = Bench()
    bench.log.sample_rate = 1.0
    request = bench.request()
    request.body  # noqa: B018
    response = bench.answer(request)
    request.complete(0, response)
    entry, size = bench.writer.entries[0]
    assert not any(value is request or value is request.body for value in entry)
    assert size == ENTRY_BYTES + response.size
    request = bench.request()
    bench.handlers.channel.send_parts(request, (bytes(MAX_KEPT_BYTES + 1),))
    request.complete(0, bench.handlers.responses(request)[0])
    entry, size = bench.writer.entries[1]
    assert (entry.response_pieces, size, entry.response_bytes) == (None, ENTRY_BYTES, MAX_KEPT_BYTES + 1)


@pytest.mark.parametrize(
    ("moments", "expected"),
    [
        ((10, 20, 30, 40, 50, 60), (10, 20, 30, 40, 50, 60)),
        ((10, -1, -1, -1, -1, 60), (10, 10, 60, 60, 60, 60)),
        ((10, 20, -1, 40, 50, 60), (10, 20, 40, 40, 50, 60)),
        ((10, 20, 45, 40, 50, 60), (10, 20, 40, 40, 50, 60)),
        ((10, 20, 30, 40, -1, 60), (10, 20, 30, 40, 40, 60)),
    ],
)
def test_moments_that_are_missing(
    moments: tuple[int, int, int, int, int, int], expected: tuple[int, int, int, int, int, int]
) -> None:
    assert completed_moments(moments) == expected
