"""The mutation quota of one request (Q08, KIP-599).

CreateTopics, CreatePartitions and DeleteTopics are charged one permit per partition that they create or delete, topic
by topic, while the controller processes them and before it has written anything. When no permits are left, the result
depends on whether the client understands a rejection:

==================== ============================================== ===============================================
.                    strict                                         permissive
==================== ============================================== ===============================================
clients              CreateTopics v6+, CreatePartitions v3+,        older ones
                     DeleteTopics v5+
bucket overdrawn     the topic is rejected with                     the topic is created; the client is throttled
                     THROTTLING_QUOTA_EXCEEDED
bucket not empty     the topic is created, however large it is      the topic is created; if that overdraws the bucket,
                                                                    the client is throttled
==================== ============================================== ===============================================

The throttle time is computed at the charge but returned in the response, which may be much later: a CreateTopics waits
until the metadata log is committed. So the time that has passed is subtracted.
"""

from __future__ import annotations

import abc

from barnabas.common.clock import Clock
from barnabas.common.errors import Errors, ThrottlingQuotaExceededError
from barnabas.metrics.sensor import QuotaViolationError, Sensor
from barnabas.metrics.throttle import token_bucket_throttle_time
from barnabas.quota.client_quota_manager import MAX_THROTTLE_MS


class AbstractControllerMutationQuota(abc.ABC):
    """Stores the throttle time of the client."""

    __slots__ = ("_clock", "_last_recorded_ms", "_last_throttle_ms", "_sensor")

    def __init__(self, clock: Clock, sensor: Sensor) -> None:
        self._clock = clock
        self._sensor = sensor
        self._last_throttle_ms = 0
        self._last_recorded_ms = 0

    @property
    @abc.abstractmethod
    def is_exceeded(self) -> bool:
        """Whether a topic was rejected."""

    @abc.abstractmethod
    def record(self, permits: float) -> None:
        """Charges this number of partitions."""

    @property
    def throttle_time_ms(self) -> int:
        """Returns the remaining throttle time."""
        elapsed_ms = self._clock.hi_res_milliseconds() - self._last_recorded_ms
        return max(0, self._last_throttle_ms - elapsed_ms)

    def _remember(self, violation: QuotaViolationError) -> None:
        self._last_throttle_ms = min(token_bucket_throttle_time(violation), MAX_THROTTLE_MS)
        # A monotonic clock: setting the wall clock back an hour must not add an hour to the throttle time.
        self._last_recorded_ms = self._clock.hi_res_milliseconds()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._sensor.name}, {self._last_throttle_ms} ms)"


class StrictControllerMutationQuota(AbstractControllerMutationQuota):
    """Rejects if the bucket is overdrawn, and does not throttle otherwise."""

    __slots__ = ()

    @property
    def is_exceeded(self) -> bool:
        return self._last_throttle_ms > 0

    def record(self, permits: float) -> None:
        now_ms = self._clock.milliseconds()
        try:
            self._sensor.check_then_record(permits, now_ms)
        except QuotaViolationError as violation:
            self._remember(violation)
            raise ThrottlingQuotaExceededError(Errors.THROTTLING_QUOTA_EXCEEDED.message) from None


class PermissiveControllerMutationQuota(AbstractControllerMutationQuota):
    """Rejects nothing, and throttles if the bucket is overdrawn."""

    __slots__ = ()

    @property
    def is_exceeded(self) -> bool:
        return False

    def record(self, permits: float) -> None:
        now_ms = self._clock.milliseconds()
        try:
            self._sensor.record(permits, now_ms)
        except QuotaViolationError as violation:
            self._remember(violation)
