"""All managers of a node, and the callback that decides in place of the limits."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from barnabas.common.config_def import ConfigError
from barnabas.metrics.names import MetricName
from barnabas.quota.client_quota_callback import Cluster
from barnabas.quota.quota_entity import QuotaEntity, QuotaLevel
from barnabas.quota.quota_factory import QuotaManagers, make_callback
from barnabas.quota.quota_type import ClientQuotaType, QuotaType
from barnabas.quota.usage import QuotaUsage, usage_of
from barnabas.security.principal import KafkaPrincipal
from quota_fixtures import QuotaBench, quota_bench


class ByTeam:
    """Quotas by the first part of the user's name."""

    def __init__(self) -> None:
        self.limits = {"red": 1_000.0, "blue": 2_000.0}
        self.configured: Mapping[str, str] = {}
        self.told: list[tuple[object, ...]] = []
        self.reset_required = False
        self.closed = False

    def configure(self, properties: Mapping[str, str]) -> None:
        self.configured = properties

    def quota_metric_tags(
        self, quota_type: ClientQuotaType, principal: KafkaPrincipal, client_id: str
    ) -> Mapping[str, str]:
        return {"team": principal.name.partition("-")[0]}

    def quota_limit(self, quota_type: ClientQuotaType, tags: Mapping[str, str]) -> float | None:
        return self.limits.get(tags["team"]) if quota_type is ClientQuotaType.PRODUCE else None

    def update_quota(self, quota_type: ClientQuotaType, entity: QuotaEntity, value: float) -> None:
        self.told.append((quota_type, entity, value))

    def remove_quota(self, quota_type: ClientQuotaType, entity: QuotaEntity) -> None:
        self.told.append((quota_type, entity))

    def quota_reset_required(self, quota_type: ClientQuotaType) -> bool:
        required, self.reset_required = self.reset_required, False
        return required

    def update_cluster_metadata(self, cluster: Cluster) -> bool:
        self.told.append((cluster,))
        return True

    def close(self) -> None:
        self.closed = True


class NoCallback:
    """Has nothing of what a callback has."""


@pytest.mark.mechanism("Q11")
def test_a_callback_says_who_shares_a_quota_and_how_large_it_is() -> None:
    callback = ByTeam()
    with quota_bench(callback=callback) as bench:
        assert bench.managers.produce.levels is QuotaLevel.CUSTOM
        assert bench.managers.fetch.is_enabled, "a callback may have a quota for anybody"
        assert bench.produce(15_000, "red-alice") == 5_000
        assert bench.produce(0, "red-bob") == 5_000, "the same team"
        assert bench.produce(15_000, "blue-carol") == 0
        assert bench.produce(1e9, "green-dave") == 0, "no limit"
        metric = bench.metrics.metric(MetricName("byte-rate", "Produce", {"team": "red"}))
        assert metric is not None
        assert metric.value() == 1_500
    assert callback.closed


@pytest.mark.mechanism("Q11")
def test_a_callback_hears_of_limits_set_with_the_usual_tools_and_they_count_for_nothing() -> None:
    callback = ByTeam()
    with quota_bench(callback=callback) as bench:
        bench.managers.produce.update_quota(QuotaEntity("red-alice"), 5.0)
        bench.managers.produce.update_quota(QuotaEntity("red-alice"), None)
        entity = QuotaEntity("red-alice")
        assert callback.told == [(ClientQuotaType.PRODUCE, entity, 5.0), (ClientQuotaType.PRODUCE, entity)]
        assert bench.managers.produce.quota("red-alice", "") == 1_000


@pytest.mark.mechanism("Q11")
def test_a_callback_whose_limits_have_changed_has_them_looked_up_again() -> None:
    callback = ByTeam()
    with quota_bench(callback=callback) as bench:
        assert bench.produce(15_000, "red-alice") == 5_000
        callback.limits["red"] = 3_000.0
        assert bench.produce(0, "red-alice") == 5_000, "nobody has said so yet"
        callback.reset_required = True
        assert bench.produce(0, "red-alice") == 0
        callback.limits["red"] = 1_000.0
        cluster = Cluster("id", frozenset({1}), {})
        bench.managers.update_cluster_metadata(cluster)
        assert callback.told == [(cluster,)]
        assert bench.produce(0, "red-alice") == 5_000, "and nothing is forgotten"


@pytest.mark.mechanism("Q11")
def test_a_callback_is_given_the_settings_of_the_broker() -> None:
    assert make_callback(None, {}) is None
    callback = make_callback(ByTeam, {"node.id": "1"})
    assert isinstance(callback, ByTeam)
    assert callback.configured == {"node.id": "1"}


def test_a_class_that_is_no_callback_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"client\.quota\.callback\.class .*quota_metric_tags"):
        make_callback(NoCallback, {})


def test_each_key_has_its_manager(bench: QuotaBench) -> None:
    managers: QuotaManagers = bench.managers
    assert [managers.of(kind).quota_type for kind in ClientQuotaType] == [
        QuotaType.PRODUCE,
        QuotaType.FETCH,
        QuotaType.REQUEST,
        QuotaType.CONTROLLER_MUTATION,
    ]


def test_usage_tells_what_the_next_request_would_cost(bench: QuotaBench) -> None:
    """The forecast is what the manager then does."""
    bench.managers.produce.update_quota(QuotaEntity("alice"), 1_000)
    bench.managers.request.update_quota(QuotaEntity("alice"), 1)
    bench.managers.controller_mutation.update_quota(QuotaEntity("alice"), 2)
    bench.produce(9_000, "alice")
    bench.clock.advance(2_300)
    usages = {usage.key: usage for usage in usage_of(bench.managers.clients, bench.now_ms)}
    usage = usages["producer_byte_rate"]
    assert usage.tags == {"user": "alice", "client-id": ""}
    assert usage.limit == 1_000
    assert usage.window_ms == 10_300
    assert usage.usage == pytest.approx(9_000 / 10.3)
    assert usage.throttle_ms == 0
    assert usage.after(2_000).throttle_ms == 700
    assert bench.produce(2_000, "alice") == 700
    assert QuotaUsage.from_json(usage.to_json()) == usage

    principal = KafkaPrincipal("User", "alice")
    mutation = bench.managers.controller_mutation
    assert mutation.record_and_get_throttle_time_ms(principal, "", 30, bench.now_ms) == 0
    (bucket,) = (one for one in usage_of(bench.managers.clients, bench.now_ms) if one.is_token_bucket)
    assert (bucket.usage, bucket.throttle_ms, bucket.after(2).throttle_ms) == (-8, 4_000, 5_000)
    assert mutation.record_and_get_throttle_time_ms(principal, "", 1, bench.now_ms) == 4_000


def test_whoever_has_used_nothing_has_empty_windows_and_a_full_bucket() -> None:
    assert QuotaUsage.unused("producer_byte_rate", 1_000, 11, 1_000).after(11_000).throttle_ms == 1_000
    assert QuotaUsage.unused("request_percentage", 1, 11, 1_000).after(1_000).throttle_ms == 1_000, "capped"
    assert QuotaUsage.unused("controller_mutation_rate", 5, 100, 1_000).after(560).throttle_ms == 12_000
