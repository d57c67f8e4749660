"""What a broker remembers of a client that sends, or may send, its metrics."""

from __future__ import annotations

from typing import Final

from barnabas.common.errors import Errors
from barnabas.common.identifiers import Uuid, uuid_to_string
from barnabas.server.timer import TimerTask
from barnabas.telemetry.subscription_info import ClientSubscription

_NEVER: Final = -(2**62)
_RECOVERABLE: Final = frozenset({Errors.UNKNOWN_SUBSCRIPTION_ID, Errors.UNSUPPORTED_COMPRESSION_TYPE})
"""Errors that a client gets over by asking again what is wanted of it."""


class ClientMetricsInstance:
    """One client, known by its instance id: what is wanted of it, and when it last came.

    **The gate** (Q13). A client may push once per interval. Clients do not come on the dot, on purpose: after each
    GetTelemetrySubscriptions they wait for 0.5 to 1.5 times the interval, so that a thousand clients that were
    restarted together do not push together. So there are two ways through: the first push after a Get comes in whenever
    it comes, and any later one when the interval since the push before is over::

        interval 10 s      0 s     4 s     5 s      14 s     15 s
                           Get     Push    Push     Push     Get
                           ok      ok      early    ok       early: 10 s after whatever came before

    A client whose last push failed because it was out of date (unknown subscription, unsupported compression) is told
    to ask again at once, and so it is not turned away for being early.

    There is no lock here: the manager's guards all fields.
    """

    __slots__ = (
        "_get_pending",
        "_last_get_ms",
        "_last_push_ms",
        "client_instance_id",
        "connection_id",
        "expiration",
        "last_known_error",
        "subscription",
        "subscription_version",
        "terminating",
    )

    def __init__(
        self,
        client_instance_id: Uuid,
        connection_id: str,
        subscription: ClientSubscription,
        subscription_version: int,
    ) -> None:
        self.client_instance_id = client_instance_id
        self.connection_id = connection_id
        """The connection that the client came over last."""
        self.subscription = subscription
        self.subscription_version = subscription_version
        """Which state of all subscriptions this one was made from."""
        self.terminating = False
        """The client has said that it will push no more."""
        self.last_known_error = Errors.NONE
        self.expiration: TimerTask | None = None
        self._last_get_ms = _NEVER
        self._last_push_ms = _NEVER
        self._get_pending = False
        """Whether no push has come since the last Get."""

    def update_subscription(self, subscription: ClientSubscription, version: int) -> None:
        """Subscriptions have changed. If that makes a difference to this client, it may come at once."""
        if subscription != self.subscription:
            self.subscription = subscription
            self._last_get_ms = self._last_push_ms = _NEVER
            self._get_pending = False
        self.subscription_version = version

    def maybe_update_get_request_timestamp(self, now_ms: int) -> bool:
        """Whether the client may ask now what is wanted of it; if so, it has."""
        elapsed_ms = now_ms - max(self._last_get_ms, self._last_push_ms)
        if elapsed_ms < self.subscription.push_interval_ms and self.last_known_error not in _RECOVERABLE:
            return False
        self._last_get_ms = now_ms
        self._get_pending = True
        return True

    def maybe_update_push_request_timestamp(self, now_ms: int) -> bool:
        """Whether the client may push now; if so, it has."""
        elapsed_ms = now_ms - self._last_push_ms
        if not self._get_pending and elapsed_ms < self.subscription.push_interval_ms:
            return False
        self._last_push_ms = now_ms
        self._get_pending = False
        return True

    def cancel_expiration(self) -> None:
        if self.expiration is not None:
            self.expiration.cancel()
            self.expiration = None

    def __repr__(self) -> str:
        return (
            f"ClientMetricsInstance({uuid_to_string(self.client_instance_id)}, {self.connection_id}, "
            f"{self.subscription}{', terminating' if self.terminating else ''})"
        )
