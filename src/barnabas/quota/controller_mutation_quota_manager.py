"""Quotas on the partitions that a client creates and deletes (Q08)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING

from barnabas.common.clock import Clock
from barnabas.metrics.names import MetricName
from barnabas.metrics.registry import Metrics
from barnabas.metrics.sensor import QuotaViolationError, Sensor
from barnabas.metrics.stats import Rate, TokenBucket
from barnabas.metrics.throttle import token_bucket_throttle_time
from barnabas.quota.client_quota_manager import MAX_THROTTLE_MS, ClientQuotaManager, principal_of
from barnabas.quota.config import QuotaWindows
from barnabas.quota.controller_mutation_quota import (
    PermissiveControllerMutationQuota,
    StrictControllerMutationQuota,
)
from barnabas.quota.quota_type import QuotaType
from barnabas.security.principal import KafkaPrincipal
from barnabas.server.request import Request
from barnabas.server.throttling import UNLIMITED, ControllerMutationQuota

if TYPE_CHECKING:
    from barnabas.quota.client_quota_callback import ClientQuotaCallback


class ControllerMutationQuotaManager(ClientQuotaManager):
    """The mutation quota: a token bucket per group of clients instead of a rate.

    Topics are created in bursts: a deployment creates fifty of them and then none for a week. A rate would throttle
    such a client as long as its one large sample counts; a bucket throttles it only until the overdrawn permits have
    been refilled (`TokenBucket`). Besides the tokens there is a metric of the rate, for monitoring.
    """

    def __init__(
        self,
        windows: QuotaWindows,
        metrics: Metrics,
        clock: Clock,
        *,
        thread_name_prefix: str = "",
        callback: ClientQuotaCallback | None = None,
    ) -> None:
        super().__init__(
            windows,
            metrics,
            QuotaType.CONTROLLER_MUTATION,
            clock,
            thread_name_prefix=thread_name_prefix,
            callback=callback,
        )

    def new_quota_for(self, request: Request, strict_since_version: int) -> ControllerMutationQuota:
        """Returns the quota for a request: strict from that version of the API on."""
        if request.api_version >= strict_since_version:
            return self.new_strict_quota_for(principal_of(request), request.client_id)
        return self.new_permissive_quota_for(principal_of(request), request.client_id)

    def new_strict_quota_for(self, principal: KafkaPrincipal | None, client_id: str | None) -> ControllerMutationQuota:
        if not self.is_enabled:
            return UNLIMITED
        return StrictControllerMutationQuota(self._clock, self.sensors_of(principal, client_id).quota_sensor)

    def new_permissive_quota_for(
        self, principal: KafkaPrincipal | None, client_id: str | None
    ) -> ControllerMutationQuota:
        if not self.is_enabled:
            return UNLIMITED
        return PermissiveControllerMutationQuota(self._clock, self.sensors_of(principal, client_id).quota_sensor)

    def record_and_get_throttle_time_ms(
        self, principal: KafkaPrincipal | None, client_id: str | None, value: float, now_ms: int
    ) -> int:
        """Charges permits if the bucket is not overdrawn; else charges nothing and returns the throttle time."""
        try:
            self.sensors_of(principal, client_id).quota_sensor.check_then_record(value, now_ms)
        except QuotaViolationError as violation:
            return min(token_bucket_throttle_time(violation), MAX_THROTTLE_MS)
        return 0

    def _add_quota_metrics(self, sensor: Sensor, key: Hashable, tags: Mapping[str, str]) -> bool:
        return sensor.add(self.rate_metric_name(tags), Rate()) and sensor.add(
            self.quota_metric_name(tags), TokenBucket(), self._quota_config(self._limit(key))
        )

    def rate_metric_name(self, tags: Mapping[str, str]) -> MetricName:
        return self._metrics.metric_name(
            "mutation-rate", str(self.quota_type), tags, "Partitions that these clients create and delete per second"
        )

    def quota_metric_name(self, tags: Mapping[str, str]) -> MetricName:
        return self._metrics.metric_name(
            "tokens", str(self.quota_type), tags, "Remaining permits of these clients; below zero they are throttled"
        )
