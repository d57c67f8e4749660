"""The quota managers of a node, as its configuration wants them, and a look at what they have measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from barnabas.broker.config.kafka_config import KafkaConfig
from barnabas.common.clock import Clock
from barnabas.metrics.registry import Metrics
from barnabas.network.connection_limits import UNLIMITED
from barnabas.network.connection_rates import METRICS_GROUP as CONNECTION_METRICS
from barnabas.quota.config import QuotaConfig
from barnabas.quota.quota_factory import CALLBACK_CLASS, QuotaManagers, make_callback
from barnabas.quota.usage import usage_of

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


def quota_report(quotas: QuotaManagers, metrics: Metrics, clock: Clock, node_id: int) -> Callable[[], dict[str, Any]]:
    """For the ``/quotas`` page: what clients have used, and how many are held back at the moment.

    =============== ==================================================================================================
    ``node``        the broker that has measured this; each broker of a cluster counts for itself
    ``time_ms``     when
    ``callback``    the class that decides about quotas; null if the limits are those of the metadata
    ``quotas``      for each group of clients that share one: ``key`` and ``tags`` say which, ``limit`` is null if there
                    is none, ``usage`` is per second over ``window_ms`` (or the tokens left, of a token bucket),
                    ``throttle_time_ms`` is the mean of late
    ``ips``         ``limit`` and ``usage`` in connections per second, by address
    ``throttled``   connections that are muted now, by kind of quota
    =============== ==================================================================================================
    """

    def report() -> dict[str, Any]:
        now_ms = clock.milliseconds()
        return {
            "node": node_id,
            "time_ms": now_ms,
            "callback": None if quotas.callback is None else type(quotas.callback).__qualname__,
            "quotas": [usage.to_json() for usage in usage_of(quotas.clients, now_ms)],
            "ips": _ip_rates(metrics, now_ms),
            "throttled": {
                manager.quota_type.client_quota_type.key: manager.throttled_channels for manager in quotas.clients
            },
        }

    return report


def _ip_rates(metrics: Metrics, now_ms: int) -> dict[str, Any]:
    found = {}
    for name, metric in metrics.metrics.items():
        if name.name == IP_RATE and name.group == CONNECTION_METRICS and "ip" in name.tags:
            quota = metric.config.quota
            found[name.tags["ip"]] = {
                "limit": None if quota is None or quota.bound >= UNLIMITED else quota.bound,
                "usage": metric.value(now_ms),
                "window_ms": metric.window_size(now_ms),
                "max_throttle_ms": metric.config.window_ms,
            }
    return found
