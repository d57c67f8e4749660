"""Six moments of a request, seven durations per API."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.common.clock import MockClock
from barnabas.common.errors import Errors
from barnabas.metrics.names import MBeanName
from barnabas.metrics.yammer.registry import MetricsRegistry
from barnabas.network.server.response import NO_OP, NetworkResponse
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.framing import encode_request
from barnabas.protocol.messages.fetch import FetchRequest, ReplicaState
from barnabas.server.request import NOT_SET, Request
from barnabas.server.request_metrics import TIMES, RequestTimes
from network_fixtures import heartbeat, request_from

pytestmark = pytest.mark.mechanism("N20")

MS = 1_000_000
HEARTBEAT = heartbeat(1)


class Bench:
    """Requests with moments of the test's choice."""

    def __init__(self) -> None:
        self.clock = MockClock()
        self.registry = MetricsRegistry(self.clock)
        self.times = RequestTimes(self.registry, self.clock)

    def request(self, frame: bytes = HEARTBEAT, /, **moments_ms: int) -> Request:
        request = request_from(frame, self.times)
        for name, moment in moments_ms.items():
            setattr(request, name, moment * MS)
        return request

    def finish(self, request: Request, at_ms: float) -> None:
        self.clock.advance(at_ms - self.clock.nanoseconds() / MS)
        request.complete(0, NetworkResponse(NO_OP, request))

    def means(self, api: str) -> dict[str, float]:
        found = {}
        for name in (*TIMES, "RequestBytes"):
            metric: Any = self.registry.get(MBeanName("kafka.network", "RequestMetrics", name, {"request": api}))
            found[name] = float(metric.snapshot().mean)
        return found

    def count(self, api: str) -> int:
        metric: Any = self.registry.get(MBeanName("kafka.network", "RequestMetrics", "TotalTimeMs", {"request": api}))
        return int(metric.snapshot().count)


def durations(values: dict[str, float]) -> list[float]:
    return [values[name] for name in TIMES]


def test_each_duration_lies_between_its_two_moments() -> None:
    b = Bench()
    request = b.request(
        start_time_ns=100,
        request_dequeue_time_ns=103,
        api_local_complete_time_ns=108,
        response_complete_time_ns=121,
        response_dequeue_time_ns=123,
    )
    request.api_throttle_time_ms = 40
    b.finish(request, at_ms=140)
    assert durations(b.means("Heartbeat")) == [3, 5, 13, 40, 2, 17, 40]
    assert b.means("Heartbeat")["RequestBytes"] == len(HEARTBEAT) - 4


def test_throttle_time_is_no_part_of_the_total() -> None:
    b = Bench()
    request = b.request(start_time_ns=0)
    request.api_throttle_time_ms = 5000
    b.finish(request, at_ms=10)
    assert b.means("Heartbeat")["TotalTimeMs"] == 10


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        # queue, local, remote, throttle, response queue, send, total
        ({"request_dequeue_time_ns"}, [0, 8, 13, 0, 2, 17, 40]),
        ({"api_local_complete_time_ns"}, [3, 18, 0, 0, 2, 17, 40]),
        ({"response_dequeue_time_ns"}, [3, 5, 13, 0, 0, 19, 40]),
        ({"response_complete_time_ns", "response_dequeue_time_ns"}, [3, 5, 32, 0, 0, 0, 40]),
    ],
    ids=lambda value: "-".join(sorted(value)) if isinstance(value, set) else "",
)
def test_a_moment_that_is_missing_makes_no_time_of_its_own(missing: set[str], expected: list[int]) -> None:
    b = Bench()
    moments = {
        "start_time_ns": 100,
        "request_dequeue_time_ns": 103,
        "api_local_complete_time_ns": 108,
        "response_complete_time_ns": 121,
        "response_dequeue_time_ns": 123,
    }
    b.finish(b.request(**{name: moment for name, moment in moments.items() if name not in missing}), at_ms=140)
    assert durations(b.means("Heartbeat")) == expected


def test_a_request_that_has_only_begun_has_a_total() -> None:
    b = Bench()
    b.finish(b.request(start_time_ns=100), at_ms=140)
    means = b.means("Heartbeat")
    assert means["TotalTimeMs"] == 40
    assert sum(durations(means)) - means["TotalTimeMs"] == 40


def test_a_local_part_that_ends_after_the_response_counts_up_to_the_response() -> None:
    """A handler may go on after it has handed its response over."""
    b = Bench()
    request = b.request(
        start_time_ns=0,
        request_dequeue_time_ns=1,
        api_local_complete_time_ns=50,
        response_complete_time_ns=5,
        response_dequeue_time_ns=6,
    )
    b.finish(request, at_ms=7)
    assert durations(b.means("Heartbeat")) == [1, 4, 0, 0, 1, 1, 7]


@pytest.mark.mechanism("N13")
def test_work_of_callbacks_counts_as_local_work_and_not_as_waiting() -> None:
    b = Bench()
    request = b.request(
        start_time_ns=0,
        request_dequeue_time_ns=1,
        api_local_complete_time_ns=3,
        callback_request_dequeue_time_ns=20,
        callback_request_complete_time_ns=26,
        response_complete_time_ns=26,
        response_dequeue_time_ns=27,
    )
    b.finish(request, at_ms=28)
    assert durations(b.means("Heartbeat")) == [1, 2 + 6, 23 - 6, 0, 1, 1, 28]


MOMENT = st.one_of(st.just(NOT_SET), st.integers(0, 100).map(lambda ms: ms * MS))


@given(st.tuples(MOMENT, MOMENT, MOMENT, MOMENT), st.tuples(MOMENT, MOMENT), st.integers(0, 50))
def test_no_duration_is_negative_and_they_add_up_to_the_total(
    moments: tuple[int, int, int, int], callback: tuple[int, int], start: int
) -> None:
    """Whatever is missing. What is there comes from one clock, so it is in order."""
    present = iter(sorted(moment for moment in moments if moment != NOT_SET and moment >= start * MS))
    ordered = [NOT_SET if moment == NOT_SET else next(present, NOT_SET) for moment in moments]
    b = Bench()
    request = b.request(start_time_ns=start)
    (
        request.request_dequeue_time_ns,
        request.api_local_complete_time_ns,
        request.response_complete_time_ns,
        request.response_dequeue_time_ns,
    ) = ordered
    if NOT_SET not in callback:
        request.callback_request_dequeue_time_ns, request.callback_request_complete_time_ns = sorted(callback)
    b.finish(request, at_ms=100)
    means = b.means("Heartbeat")
    assert min(means.values()) >= 0
    parts = means.copy()
    total = parts.pop("TotalTimeMs")
    parts.pop("RequestBytes")
    assert total == 100 - start
    assert sum(parts.values()) == pytest.approx(total)


@pytest.mark.parametrize("version", range(ApiKey.FETCH.versions.lowest, ApiKey.FETCH.versions.highest + 1))
@pytest.mark.parametrize("replica", [-1, 0, 7, -2])
def test_fetches_of_consumers_and_of_followers_are_told_apart(version: int, replica: int) -> None:
    b = Bench()
    body = (
        FetchRequest(replica_state=ReplicaState(replica_id=replica))
        if version >= 15
        else FetchRequest(replica_id=replica)
    )
    request = b.request(encode_request(body, version, 1, "c"), start_time_ns=0)
    assert request.body is not None
    b.finish(request, at_ms=9)
    kind, other = ("FetchFollower", "FetchConsumer") if replica >= 0 else ("FetchConsumer", "FetchFollower")
    assert (b.count("Fetch"), b.count(kind), b.count(other)) == (1, 1, 0)
    assert b.means(kind) == b.means("Fetch")


def test_a_fetch_that_nobody_looked_into_is_a_consumers() -> None:
    b = Bench()
    b.finish(b.request(encode_request(FetchRequest(replica_id=3), 12, 1, "c"), start_time_ns=0), at_ms=1)
    assert (b.count("FetchConsumer"), b.count("FetchFollower")) == (1, 0)


def test_requests_are_counted_by_api_and_version() -> None:
    b = Bench()
    for version in (12, 12, 17):
        request = b.request(encode_request(FetchRequest(), version, 1, "c"), start_time_ns=0)
        b.finish(request, at_ms=1)
    b.finish(b.request(start_time_ns=0), at_ms=1)

    def rate(api: str, version: int) -> int:
        tags = {"request": api, "version": str(version)}
        metric: Any = b.registry.get(MBeanName("kafka.network", "RequestMetrics", "RequestsPerSec", tags))
        return int(metric.count)

    assert [rate("Fetch", 12), rate("FetchConsumer", 12), rate("Fetch", 17), rate("Heartbeat", 4)] == [2, 2, 1, 1]
    assert {str(name.tags.get("request")) for name in b.registry.metrics} == {
        "Fetch",
        "FetchConsumer",
        "FetchFollower",
        "Heartbeat",
    }, "an API that is never called has no metrics"


def test_errors_are_counted_by_api_and_error() -> None:
    b = Bench()
    b.times.of(ApiKey.PRODUCE).mark_error(Errors.NOT_LEADER_OR_FOLLOWER, 3)
    b.times.of(ApiKey.PRODUCE).mark_error(Errors.NOT_LEADER_OR_FOLLOWER)
    tags = {"request": "Produce", "error": "NOT_LEADER_OR_FOLLOWER"}
    metric: Any = b.registry.get(MBeanName("kafka.network", "RequestMetrics", "ErrorsPerSec", tags))
    assert metric.count == 4


def test_a_listener_hears_of_each_request_that_has_ended() -> None:
    b = Bench()
    heard: list[tuple[Request, object, int]] = []
    b.times.listener = lambda request, response, now: heard.append((request, response, now))
    request = b.request(start_time_ns=0)
    b.finish(request, at_ms=9)
    ((ended, response, now),) = heard
    assert (ended, now) == (request, 9 * MS)
    assert isinstance(response, NetworkResponse)


def test_clients_cannot_make_metrics_by_inventing_versions() -> None:
    """ApiVersions of any version is served, and its version is a number of the client's choice."""
    b = Bench()
    for version in (0, 2, -32_768, -1, *range(100, 300), 32_767):
        tagged_fields = b"\0" if version > 2 else b""
        header = struct.pack(">hhih", ApiKey.API_VERSIONS, version, 1, -1) + tagged_fields
        frame = struct.pack(">i", len(header)) + header
        request = b.request(frame, start_time_ns=0)
        b.finish(request, at_ms=1)
    found: dict[str, Any] = {
        name.tags["version"]: meter for name, meter in b.registry.metrics.items() if name.name == "RequestsPerSec"
    }
    assert {version: meter.count for version, meter in found.items()} == {"0": 1, "2": 1, "unsupported": 203}
    assert len(b.times.of(ApiKey.API_VERSIONS).counts) == 2
