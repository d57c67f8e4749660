"""How many bytes per second a client may send or get (Q04, Q06)."""

from __future__ import annotations

import math

from barnabas.quota.client_quota_manager import ClientQuotaManager, principal_of
from barnabas.server.request import Request


class ClientBandwidthQuotaManager(ClientQuotaManager):
    """The quotas of Produce and Fetch: requests are charged by their bytes.

    **A fetch is charged before it is answered.** A consumer that is over its quota gets an empty answer, so what it was
    charged must be taken back (`unrecord`): the windows add up what comes in, so recording the negative does it. And
    nothing larger is read than the windows can hold (`max_value_in_window`). Else a consumer with a small quota that
    asks for a lot would be over it with every single answer, and would be given the empty one forever.
    """

    def maybe_record_and_get_throttle_time_ms(self, request: Request, value: float, now_ms: int) -> int:
        """Charges so many bytes to the client, if anybody has such a quota; how long it is to be held back."""
        if not self.is_enabled:
            return 0
        return self.record_and_get_throttle_time_ms(principal_of(request), request.client_id, value, now_ms)

    def unrecord(self, request: Request, value: float, now_ms: int) -> None:
        """Takes back what was charged for an answer that is not sent after all."""
        if not self.is_enabled:
            return
        sensor = self.sensors_of(principal_of(request), request.client_id).quota_sensor
        sensor.record(-value, now_ms, check_quotas=False)

    def max_value_in_window(self, request: Request) -> float:
        """The most that the client can get at once without being held back, if it has had nothing lately.

        The windows that a rate is taken over at least, without the current one, times the limit.
        """
        if not self.is_enabled:
            return math.inf
        sensors = self.sensors_of(principal_of(request), request.client_id)
        limit = self._known_limit(sensors.key)
        if limit is None:
            return math.inf
        return limit * (self.windows.samples - 1) * self.windows.window_seconds
