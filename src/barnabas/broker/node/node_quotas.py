"""Makes the quota managers of a node from its configuration, and reports their measurements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.config.kafka_config import KafkaConfig
from barnabas.broker.publishers.client_quota_metadata_manager import CONNECTION_CREATION_RATE
from barnabas.common.clock import Clock
from barnabas.metrics.registry import Metrics
from barnabas.network.server.connection_limits import UNLIMITED
from barnabas.network.server.connection_rates import METRICS_GROUP as CONNECTION_METRICS
from barnabas.quota.config import QuotaConfig
from barnabas.quota.quota_factory import CALLBACK_CLASS, QuotaManagers, make_callback
from barnabas.quota.quota_type import ClientQuotaType

if TYPE_CHECKING:
    from barnabas.quota.usage import QuotaUsage

IP_RATE: Final = "connection-accept-rate"


def make_quota_managers(config: KafkaConfig, metrics: Metrics, clock: Clock, role: str) -> QuotaManagers:
    """Makes the quota managers of a broker or controller; both roles of a node share the same sensors."""
    return QuotaManagers.instantiate(
        QuotaConfig.from_values(config.values),
        metrics,
        clock,
        thread_name_prefix=f"{role}-{config.node_id}-",
        callback=make_callback(config.value(CALLBACK_CLASS), config.properties),
    )


def quota_report(
    roles: Sequence[QuotaManagers], metrics: Metrics, clock: Clock, node_id: int
) -> Callable[[], dict[str, Any]]:
    """Returns a function that renders the ``/quotas`` page: quota usage, and the number of throttled connections.

    `roles` are the managers of the node's broker and controller roles.

    =============== ==================================================================================================
    ``node``        the measuring broker; each broker of a cluster measures separately
    ``time_ms``     the time of the report
    ``callback``    the class of the quota callback; null if the limits come from the metadata
    ``quotas``      for each group of clients that share a quota: ``key`` and ``tags`` identify it (user and client id,
                    or ip), ``limit`` is null if there is none, ``usage`` is per second over ``window_ms`` (or the
                    tokens left in a token bucket), ``throttle_time_ms`` is the recent mean
    ``windows``     for each kind of quota, the number of ``samples`` and the ``window_ms`` of each
    ``throttled``   connections that are muted now, by kind of quota
    =============== ==================================================================================================
    """
    from barnabas.quota.usage import usage_of

    managers = [manager for quotas in roles for manager in quotas.clients]
    callback = next((quotas.callback for quotas in roles), None)
    windows = {
        manager.quota_type.client_quota_type.key: {
            "samples": manager.windows.samples,
            "window_ms": manager.windows.window_seconds * 1_000,
        }
        for manager in managers
    }
    windows[CONNECTION_CREATION_RATE] = windows[ClientQuotaType.REQUEST.key]

    def report() -> dict[str, Any]:
        now_ms = clock.milliseconds()
        throttled: Counter[str] = Counter()
        for manager in managers:
            throttled[manager.quota_type.client_quota_type.key] += manager.throttled_channels
        return {
            "node": node_id,
            "time_ms": now_ms,
            "callback": None if callback is None else type(callback).__qualname__,
            "quotas": [usage.to_json() for usage in (*usage_of(managers, now_ms), *_ip_rates(metrics, now_ms))],
            "windows": windows,
            "throttled": dict(throttled),
        }

    return report


def _ip_rates(metrics: Metrics, now_ms: int) -> Iterator[QuotaUsage]:
    from barnabas.quota.usage import QuotaUsage

    for name, metric in metrics.metrics.items():
        if name.name == IP_RATE and name.group == CONNECTION_METRICS and "ip" in name.tags:
            quota = metric.config.quota
            yield QuotaUsage(
                CONNECTION_CREATION_RATE,
                {"ip": name.tags["ip"]},
                None if quota is None or quota.bound >= UNLIMITED else quota.bound,
                metric.value(now_ms),
                metric.window_size(now_ms),
                max_throttle_ms=metric.config.window_ms,
            )
