"""The broker's state of a client that pushes metrics."""

from __future__ import annotations

from typing import Final

from barnabas.common.errors import Errors
from barnabas.common.identifiers import Uuid, uuid_to_string
from barnabas.server.timer import TimerTask
from barnabas.telemetry.subscription_info import ClientSubscription

_NEVER: Final = -(2**62)
_RECOVERABLE: Final = frozenset({Errors.UNKNOWN_SUBSCRIPTION_ID, Errors.UNSUPPORTED_COMPRESSION_TYPE})
"""Errors that a client resolves by requesting its subscription again."""


class ClientMetricsInstance:
    """One client instance: its subscription, and the times of its last requests.

    **Rate limiting** (Q13). A client may push once per interval. Clients add jitter: after each
    GetTelemetrySubscriptions they wait for 0.5 to 1.5 times the interval, so that a thousand clients that were
    restarted together do not push together. So the first push after a Get is always accepted, and a later one if the
    interval since the last push has ended::

        interval 10 s      0 s     4 s     5 s      14 s     15 s
                           Get     Push    Push     Push     Get
                           ok      ok      early    ok       early: a Get needs 10 s since any request

    A client whose last push failed because it was outdated (unknown subscription, unsupported compression) must request
    its subscription again at once, so that request is accepted early.

    There is no lock here: the manager's lock guards all fields.
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
        """The client's most recent connection."""
        self.subscription = subscription
        self.subscription_version = subscription_version
        """The version of all subscriptions that this one was computed from."""
        self.terminating = False
        """Whether the client has sent its terminating push."""
        self.last_known_error = Errors.NONE
        self.expiration: TimerTask | None = None
        self._last_get_ms = _NEVER
        self._last_push_ms = _NEVER
        self._get_pending = False
        """Whether no push has arrived since the last Get."""

    def update_subscription(self, subscription: ClientSubscription, version: int) -> None:
        """Replaces the subscription. If it differs, the client's next request is accepted early."""
        if subscription != self.subscription:
            self.subscription = subscription
            self._last_get_ms = self._last_push_ms = _NEVER
            self._get_pending = False
        self.subscription_version = version

    def maybe_update_get_request_timestamp(self, now_ms: int) -> bool:
        """Returns whether a Get is accepted now, and records it if so."""
        elapsed_ms = now_ms - max(self._last_get_ms, self._last_push_ms)
        if elapsed_ms < self.subscription.push_interval_ms and self.last_known_error not in _RECOVERABLE:
            return False
        self._last_get_ms = now_ms
        self._get_pending = True
        return True

    def maybe_update_push_request_timestamp(self, now_ms: int) -> bool:
        """Returns whether a push is accepted now, and records it if so."""
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
