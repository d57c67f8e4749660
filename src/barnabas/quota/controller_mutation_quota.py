"""The mutation quota of one request (Q08, KIP-599).

CreateTopics, CreatePartitions and DeleteTopics are charged one permit for each partition that they make or remove,
topic by topic, while the controller goes through them and before it has written anything. What happens when there are
no permits left depends on whether the client can understand a refusal:

==================== ============================================== ===============================================
.                    strict                                         permissive
==================== ============================================== ===============================================
clients              CreateTopics v6+, CreatePartitions v3+,        older ones
                     DeleteTopics v5+
bucket overdrawn     the topic is refused with                      the topic is made; the client has to wait
                     THROTTLING_QUOTA_EXCEEDED
bucket not empty     the topic is made, however large it is         the topic is made; if that overdraws the bucket,
                                                                    the client has to wait
==================== ============================================== ===============================================

How long to wait is computed when the charge is made, but told when the answer is, which may be much later: a
CreateTopics waits until the metadata log has it. So what has passed by then is taken off.
"""

from __future__ import annotations

import abc

from barnabas.common.clock import Clock
from barnabas.common.errors import Errors, ThrottlingQuotaExceededError
from barnabas.metrics.sensor import QuotaViolationError, Sensor
from barnabas.metrics.throttle import token_bucket_throttle_time
from barnabas.quota.client_quota_manager import MAX_THROTTLE_MS


class AbstractControllerMutationQuota(abc.ABC):
    """Remembers how long the client has to wait."""

    __slots__ = ("_clock", "_last_recorded_ms", "_last_throttle_ms", "_sensor")

    def __init__(self, clock: Clock, sensor: Sensor) -> None:
        self._clock = clock
        self._sensor = sensor
        self._last_throttle_ms = 0
        self._last_recorded_ms = 0

    @property
    @abc.abstractmethod
    def is_exceeded(self) -> bool:
        """Whether anything was refused."""

    @abc.abstractmethod
    def record(self, permits: float) -> None:
        """Charges so many partitions."""

    @property
    def throttle_time_ms(self) -> int:
        """What is left of the time to wait."""
        elapsed_ms = self._clock.hi_res_milliseconds() - self._last_recorded_ms
        return max(0, self._last_throttle_ms - elapsed_ms)

    def _remember(self, violation: QuotaViolationError) -> None:
        self._last_throttle_ms = min(token_bucket_throttle_time(violation), MAX_THROTTLE_MS)
        # On the steady clock: a date that is set back an hour must not add an hour to the wait.
        self._last_recorded_ms = self._clock.hi_res_milliseconds()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._sensor.name}, {self._last_throttle_ms} ms)"


class StrictControllerMutationQuota(AbstractControllerMutationQuota):
    """Refuses when the bucket is overdrawn; does not make anybody wait as long as it is not."""

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
    """Refuses nothing; makes the client wait as soon as the bucket is overdrawn."""

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
