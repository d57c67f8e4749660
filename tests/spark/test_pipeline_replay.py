"""The replay behind the dry run, without Spark: the broker's own arithmetic, and what clients do who are held back."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from barnabas.common.clock import MockClock
from barnabas.metrics.registry import Metrics
from barnabas.quota.client_bandwidth_quota_manager import ClientBandwidthQuotaManager
from barnabas.quota.config import QuotaWindows
from barnabas.quota.quota_entity import DEFAULT, QuotaEntity
from barnabas.quota.quota_type import QuotaType
from barnabas.security.principal import KafkaPrincipal
from barnabas.spark.pipelines.quota_proposal import ProposedLimit, Tenancy
from barnabas.spark.pipelines.quota_replay import ClientBehaviour, Outcome, QuotaReplay, RecordedRequest
from barnabas.spark.pipelines.quota_traffic import components
from spark.pipeline_records import SECOND, START_US

pytestmark = pytest.mark.mechanism("S07")

PRODUCE = "producer_byte_rate"
FETCH = "consumer_byte_rate"
TIME = "request_percentage"
WINDOWS = QuotaWindows(3, 1)


def produce(
    at_us: int, size: int, connection: str = "c1", client_id: str | None = "alpha", **more: int
) -> RecordedRequest:
    start = START_US + at_us
    busy = more.get("busy_us", 0)
    return RecordedRequest(
        connection, "Produce", "User:alice", client_id, start, start + busy, busy, 0, size, 50, answered=True
    )


def fetch(at_us: int, size: int, connection: str = "c1", client_id: str = "alpha") -> RecordedRequest:
    start = START_US + at_us
    return RecordedRequest(connection, "Fetch", "User:alice", client_id, start, start, 0, 0, 80, size, answered=True)


def limit(quota: str, amount: float, client_id: str = "alpha") -> ProposedLimit:
    return ProposedLimit(quota, QuotaEntity(client_id=client_id), amount)


def run(
    requests: list[RecordedRequest],
    *limits: ProposedLimit,
    behaviour: ClientBehaviour = ClientBehaviour.BACKLOG,
    windows: QuotaWindows = WINDOWS,
) -> list[Outcome]:
    return list(QuotaReplay(limits, windows, behaviour).run(requests))


def test_delays_are_those_of_the_brokers_own_managers() -> None:
    """Requests that are so far apart that no delay reaches the next one, given to a manager by hand."""
    windows = QuotaWindows()
    sizes = [3_000, 10_000, 12_345, 777, 9_000, 15_001]
    clock = MockClock(START_US // 1_000)
    manager = ClientBandwidthQuotaManager(windows, Metrics(clock=clock), QuotaType.PRODUCE, clock)
    manager.update_quota(QuotaEntity(client_id="alpha"), 1_000)
    expected = []
    for size in sizes:
        expected.append(
            manager.record_and_get_throttle_time_ms(
                KafkaPrincipal("User", "alice"), "alpha", size, clock.milliseconds()
            )
        )
        clock.advance(4_300)
    manager.shutdown()
    far_apart = [produce(place * 4_300_000, size, f"c{place}") for place, size in enumerate(sizes)]
    found = run(far_apart, limit(PRODUCE, 1_000), windows=windows)
    assert [outcome.delay_ms for outcome in found] == expected
    assert sum(expected) > 0
    assert [outcome.charged_us for outcome in found] == [request.start_us for request in far_apart]


def test_a_limit_of_the_peak_delays_nobody_and_a_little_less_does() -> None:
    requests = [produce(place * 137_000, 900 + place % 7) for place in range(60)]
    measured = run(requests, limit(PRODUCE, 1e12))
    peak = max(outcome.charges[0].rate for outcome in measured)
    assert not any(outcome.delay_ms for outcome in run(requests, limit(PRODUCE, peak)))
    assert any(outcome.delay_ms for outcome in run(requests, limit(PRODUCE, peak * 0.99)))


def test_what_comes_in_while_a_connection_is_muted_waits() -> None:
    requests = [produce(place * 100_000, 1_000) for place in range(40)]  # 10,000 bytes/s for 4 s
    found = run(requests, limit(PRODUCE, 5_000))
    for before, after in pairwise(found):
        assert after.charged_us >= before.charged_us + before.delay_ms * 1_000, "it was read while it was muted"
    # 40,000 bytes at 5,000 bytes/s take 8 s, of which the windows let two seconds' worth through at once.
    total = sum(outcome.delay_ms for outcome in found)
    assert 5_000 < total < 8_000
    assert found[-1].charged_us - START_US > 5.5 * SECOND
    assert all(outcome.request.connection == "c1" for outcome in found)


def test_a_client_that_waits_for_each_answer_offers_less() -> None:
    requests = [produce(place * 100_000, 1_000) for place in range(100)]
    backlog = run(requests, limit(PRODUCE, 5_000))
    shift = run(requests, limit(PRODUCE, 5_000), behaviour=ClientBehaviour.SHIFT)
    unlimited = run(requests, limit(PRODUCE, 1e12), behaviour=ClientBehaviour.SHIFT)
    assert [one.charged_us for one in unlimited] == [one.request.answer_us for one in unlimited]
    # It goes on as before after each wait, so its requests never come in a burst.
    assert sum(one.delay_ms for one in shift) < sum(one.delay_ms for one in backlog)
    gaps = [after.charged_us - before.charged_us for before, after in pairwise(shift)]
    assert min(gaps) >= 100_000


def test_connections_that_share_a_limit_are_held_back_for_each_other() -> None:
    one = [produce(place * 200_000, 1_000, "c1") for place in range(20)]
    other = [produce(100_000 + place * 200_000, 1_000, "c2") for place in range(20)]
    alone = run(one, limit(PRODUCE, 7_000))
    together = run(one + other, limit(PRODUCE, 7_000))
    assert not any(outcome.delay_ms for outcome in alone)
    assert {outcome.request.connection for outcome in together if outcome.delay_ms} == {"c1", "c2"}
    assert [one.charged_us for one in together] == sorted(one.charged_us for one in together)


def test_the_order_of_the_rows_says_nothing() -> None:
    """Requests of several connections at the same moments, in the order of one Spark cluster and of another."""
    requests = [produce(place * 100_000, size, name) for place in range(30) for name, size in (("a", 300), ("b", 900))]
    expected = run(requests, limit(PRODUCE, 8_000))
    assert any(outcome.delay_ms for outcome in expected)
    for seed in range(5):
        random.Random(seed).shuffle(requests)
        assert run(requests, limit(PRODUCE, 8_000)) == expected


def test_a_fetch_that_is_held_back_gets_nothing_and_asks_again() -> None:
    found = run([fetch(0, 1_900), fetch(10_000, 1_900)], limit(FETCH, 1_000))
    amounts = [sum(one.amount for one in outcome.charges if one.quota == FETCH) for outcome in found]
    delays = [outcome.delay_ms for outcome in found]
    assert amounts[0] == 1_900
    assert amounts[1:-1] == [0.0] * (len(found) - 2), "an empty answer is charged nothing"
    assert amounts[-1] == 1_900
    assert delays[0] == delays[-1] == 0
    assert all(delay > 0 for delay in delays[1:-1])
    assert len(found) > 2


def test_a_fetch_larger_than_the_windows_is_had_in_several_goes() -> None:
    found = run([fetch(0, 5_000)], limit(FETCH, 1_000))
    charged = [one.amount for outcome in found for one in outcome.charges if one.quota == FETCH and one.amount]
    assert charged == [2_000, 2_000, 1_000]


def test_time_is_charged_but_not_of_requests_without_an_answer() -> None:
    busy = [produce(place * 100_000, 10, busy_us=50_000) for place in range(30)]
    found = run(busy, limit(TIME, 10.0))
    assert max(outcome.delay_ms for outcome in found) == 1_000, "no longer than a window"
    assert {outcome.quota for outcome in found if outcome.delay_ms} == {TIME}
    silent = [request._replace(answered=False) for request in busy]
    assert not any(outcome.delay_ms for outcome in run(silent, limit(TIME, 10.0)))


def test_sampled_requests_count_for_those_that_are_not_there() -> None:
    every = [produce(place * 10_000, 100) for place in range(1_000)]
    some = [request._replace(weight=10.0) for request in every[::10]]
    whole, sampled = (sum(one.delay_ms for one in run(requests, limit(PRODUCE, 6_000))) for requests in (every, some))
    assert sampled == pytest.approx(whole, rel=0.05)


def test_clients_with_nothing_in_common_are_replayed_apart() -> None:
    clients = [("User:a", "x"), ("User:a", "y"), ("User:b", "x"), ("User:b", "z"), ("User:c", None)]

    def groups(*limits: ProposedLimit, shared: tuple[int, ...] = ()) -> int:
        together = [[clients[place] for place in shared]] if shared else []
        return len(set(components(clients, together, limits).values()))

    assert groups() == 5
    assert groups(ProposedLimit(PRODUCE, QuotaEntity(client_id=DEFAULT), 1)) == 4, "both x share a limit"
    assert groups(ProposedLimit(PRODUCE, QuotaEntity(user=DEFAULT), 1)) == 3
    both = (
        ProposedLimit(PRODUCE, QuotaEntity(user=DEFAULT), 1),
        ProposedLimit(FETCH, QuotaEntity(client_id=DEFAULT), 1),
    )
    assert groups(*both) == 2, "a and b have to do with each other through x"
    assert groups(shared=(0, 4)) == 4


def test_proposals_say_whom_they_are_for() -> None:
    for tenancy, entity in (
        (Tenancy.USER, QuotaEntity("alice")),
        (Tenancy.CLIENT_ID, QuotaEntity(client_id="x")),
        (Tenancy.USER_CLIENT_ID, QuotaEntity("alice", "x")),
    ):
        proposed = ProposedLimit(PRODUCE, tenancy.entity("alice", "x"), 5.0)
        assert proposed.entity == entity
        assert ProposedLimit.from_json(proposed.to_json()) == proposed
    nameless = ProposedLimit(PRODUCE, Tenancy.CLIENT_ID.entity("alice", ""), 5.0)
    assert nameless.entity.client_id is DEFAULT
    assert ProposedLimit.from_json(nameless.to_json()) == nameless
    with pytest.raises(ValueError, match="cannot be replayed"):
        ProposedLimit("controller_mutation_rate", QuotaEntity("alice"), 5.0)
    with pytest.raises(ValueError, match="must be greater than 0"):
        ProposedLimit(PRODUCE, QuotaEntity("alice"), 0.0)
