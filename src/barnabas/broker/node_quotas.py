"""The quota managers of a node, as its configuration wants them, and a look at what they have measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.client_quota_metadata_manager import CONNECTION_CREATION_RATE
from barnabas.broker.config.kafka_config import KafkaConfig
from barnabas.common.clock import Clock
from barnabas.metrics.registry import Metrics
from barnabas.network.connection_limits import UNLIMITED
from barnabas.network.connection_rates import METRICS_GROUP as CONNECTION_METRICS
from barnabas.quota.config import QuotaConfig
from barnabas.quota.quota_factory import CALLBACK_CLASS, QuotaManagers, make_callback
from barnabas.quota.quota_type import ClientQuotaType

if TYPE_CHECKING:
    from barnabas.quota.usage import QuotaUsage

IP_RATE: Final = "connection-accept-rate"


def make_quota_managers(config: KafkaConfig, metrics: Metrics, clock: Clock, role: str) -> QuotaManagers:
    """For a broker or a controller; both of one node measure into the same sensors."""
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
    """For the ``/quotas`` page: what clients have used, and how many are held back at the moment.

    `roles` are the managers of the node's broker and controller, of those that it has.

    =============== ==================================================================================================
    ``node``        the broker that has measured this; each broker of a cluster counts for itself
    ``time_ms``     when
    ``callback``    the class that decides about quotas; null if the limits are those of the metadata
    ``quotas``      for each group of clients that share one: ``key`` and ``tags`` say which (user and client id, or
                    ip), ``limit`` is null if there is none, ``usage`` is per second over ``window_ms`` (or the tokens
                    left, of a token bucket), ``throttle_time_ms`` is the mean of late
    ``windows``     over how many ``samples`` of which ``window_ms`` each kind is measured
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
