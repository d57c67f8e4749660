"""A new connection for each request is no way around a produce quota."""

from __future__ import annotations

import heapq

import pytest
from benchmarks.waiting import until

from barnabas.quota import client_bandwidth_quota_manager
from barnabas.quota.client_bandwidth_quota_manager import MAX_WAIT_MS
from barnabas.quota.quota_entity import QuotaEntity
from quota_fixtures import QuotaBench

MB = 1_000_000
LIMIT_S = 60
SIZE = 100_000


def wait_ms(bench: QuotaBench, client_id: str = "client") -> int:
    """Of the first request on a new connection."""
    return bench.managers.produce.first_wait_ms(bench.request(client_id=client_id))


@pytest.mark.mechanism("Q03")
def test_nothing_configured_and_nobody_waits(bench: QuotaBench) -> None:
    bench.produce(1e12)
    assert wait_ms(bench) == 0


def test_the_first_request_of_a_connection_waits_as_long_as_its_entity_is_throttled(bench: QuotaBench) -> None:
    bench.managers.produce.update_quota(QuotaEntity(client_id="client"), MB)
    bench.managers.produce.update_quota(QuotaEntity(client_id="other"), MB)
    assert wait_ms(bench) == 0
    throttled_ms = bench.produce(12 * MB)
    assert throttled_ms == 2_000
    assert wait_ms(bench) == 2_000
    assert wait_ms(bench, "other") == 0, "an entity of its own"
    bench.clock.advance(1_500)
    assert wait_ms(bench) == 500
    bench.clock.advance(500)
    assert wait_ms(bench) == 0


def test_a_limit_that_is_taken_away_lets_everybody_in(bench: QuotaBench) -> None:
    produce = bench.managers.produce
    produce.update_quota(QuotaEntity(client_id="client"), MB)
    produce.update_quota(QuotaEntity(client_id="other"), MB)
    bench.produce(12 * MB)
    produce.update_quota(QuotaEntity(client_id="client"), None)
    assert wait_ms(bench) == 0


def test_nobody_waits_longer_than_clients_wait_for_a_response(bench: QuotaBench) -> None:
    bench.managers.produce.update_quota(QuotaEntity(client_id="client"), MB)
    assert bench.produce(1_000 * MB) > MAX_WAIT_MS
    assert wait_ms(bench) == MAX_WAIT_MS


def test_a_request_is_resumed_after_its_wait(bench: QuotaBench) -> None:
    produce = bench.managers.produce
    produce.update_quota(QuotaEntity(client_id="client"), MB)
    resumed: list[str] = []
    assert produce.hold(bench.request(), 300, lambda: resumed.append("second"))
    assert produce.hold(bench.request(), 200, lambda: resumed.append("first"))
    assert produce.throttled_channels == 2
    bench.clock.advance(200)
    until(lambda: resumed == ["first"], "the first", LIMIT_S)
    bench.clock.advance(100)
    until(lambda: len(resumed) == 2, "both", LIMIT_S)
    assert resumed == ["first", "second"]
    assert produce.throttled_channels == 0


def test_what_waits_is_bounded(bench: QuotaBench, monkeypatch: pytest.MonkeyPatch) -> None:
    produce = bench.managers.produce
    produce.update_quota(QuotaEntity(client_id="client"), MB)
    request = bench.request()
    monkeypatch.setattr(client_bandwidth_quota_manager, "MAX_HELD_BYTES", 2 * request.size)
    resumed: list[int] = []
    assert produce.hold(request, 100, lambda: resumed.append(1))
    assert produce.hold(request, 100, lambda: resumed.append(2))
    assert not produce.hold(request, 100, lambda: resumed.append(3))
    bench.clock.advance(100)
    until(lambda: len(resumed) == 2, "both", LIMIT_S)
    assert resumed == [1, 2]
    assert produce.hold(request, 100, lambda: None), "there is room again"


@pytest.mark.parametrize("parallel", [1, 20])
@pytest.mark.parametrize("is_new", [True, False], ids=["a connection per request", "connections that stay"])
def test_an_entity_gets_what_its_quota_allows(bench: QuotaBench, parallel: int, is_new: bool) -> None:
    """Before, a new connection was served at once, whatever its entity had used."""
    produce = bench.managers.produce
    produce.update_quota(QuotaEntity(client_id="client"), MB)
    started = bench.clock.nanoseconds()
    ready = [(0, number) for number in range(parallel)]
    has_produced = [False] * parallel
    charged = total = 0
    measured_from_ms, until_ms = 30_000, 120_000
    while True:
        time_ms, number = heapq.heappop(ready)
        elapsed_ms = (bench.clock.nanoseconds() - started) // 1_000_000
        bench.clock.advance(max(time_ms - elapsed_ms, 0))
        if time_ms > until_ms or total > 1_000 * MB:  # a quota that is not kept need not be measured for long
            break
        wait = 0 if has_produced[number] else wait_ms(bench)
        has_produced[number] = True
        if wait:
            heapq.heappush(ready, (time_ms + wait, number))
            continue
        throttled_ms = bench.produce(SIZE)
        total += SIZE
        charged += SIZE if time_ms >= measured_from_ms else 0
        has_produced[number] = not is_new
        # One that stays is muted; one that is new is back a millisecond later, on another connection.
        heapq.heappush(ready, (time_ms + (1 if is_new else max(throttled_ms, 1)), number))
    share = charged / (until_ms - measured_from_ms) * 1_000 / MB
    assert 0.9 < share < 1.2
