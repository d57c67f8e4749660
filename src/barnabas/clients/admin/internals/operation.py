"""An operation of the admin client: requests with retries and a timeout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from barnabas.clients.admin.internals.admin_client_runnable import AdminClientRunnable
from barnabas.clients.admin.internals.node_choice import CONTROLLER, NodeChoice
from barnabas.common.errors import (
    ApiError,
    Errors,
    KafkaTimeoutError,
    NetworkError,
    NotControllerError,
    UnsupportedVersionError,
)
from barnabas.network.client.client_request import ClientResponse
from barnabas.network.client.exponential_backoff import ExponentialBackoff
from barnabas.protocol.message import Request
from barnabas.protocol.versions import VersionRange

T = TypeVar("T")


class Operation:
    """One operation, with its deadline.

    Each attempt has ``request.timeout.ms``, and all of them together ``default.api.timeout.ms``. After a transient
    error there is a backoff that grows from ``retry.backoff.ms`` to ``retry.backoff.max.ms``. The timeout error
    includes the last such error.
    """

    __slots__ = ("_backoff", "_max_retries", "_runnable", "deadline_ms", "timeout_ms")

    def __init__(
        self, runnable: AdminClientRunnable, timeout_ms: int, max_retries: int, backoff: ExponentialBackoff
    ) -> None:
        self._runnable = runnable
        self._max_retries = max_retries
        self._backoff = backoff
        self.timeout_ms = timeout_ms
        self.deadline_ms = runnable.clock.hi_res_milliseconds() + timeout_ms

    @property
    def remaining_ms(self) -> int:
        """The remaining time, for timeouts in requests: a broker need not work longer than the client waits."""
        return max(self.deadline_ms - self._runnable.clock.hi_res_milliseconds(), 0)

    def now_ms(self) -> int:
        """The wall clock time in milliseconds."""
        return self._runnable.clock.milliseconds()

    async def exchange(self, where: NodeChoice, request: Request, allowed_versions: VersionRange | None = None) -> Any:
        """Makes one attempt; returns the response or raises an error."""
        response = await self._runnable.send(where, request, self.deadline_ms, allowed_versions)
        return self._body(where, response)

    async def ask(
        self,
        where: NodeChoice,
        make_request: Request | Callable[[], Request],
        read: Callable[[Any], T],
        allowed_versions: VersionRange | None = None,
    ) -> T:
        """Returns the result of ``read`` on a response. Transient errors that ``read`` raises are retried."""
        attempts = 0
        while True:
            try:
                request = make_request if isinstance(make_request, Request) else make_request()
                return read(await self.exchange(where, request, allowed_versions))
            except ApiError as error:
                if not error.retriable or self.remaining_ms == 0:
                    raise
                if isinstance(error, NotControllerError) or (where is CONTROLLER and isinstance(error, NetworkError)):
                    self._runnable.forget_controller()
                await self.back_off(attempts, error)
                attempts += 1

    async def back_off(self, attempts: int, error: ApiError) -> None:
        """Waits before the next attempt; raises `KafkaTimeoutError` if there is no time left for one."""
        if attempts >= self._max_retries:
            raise error
        pause_ms = self._backoff.backoff(attempts)
        if self.remaining_ms <= pause_ms:
            raise KafkaTimeoutError(
                f"Timed out after {self.timeout_ms} ms and {attempts + 1} attempts; the last one failed with "
                f"{Errors.for_exception(error).name}: {error}"
            ) from error
        await self._runnable.pause(pause_ms)

    def _body(self, where: NodeChoice, response: ClientResponse) -> Any:
        if response.body is not None:
            return response.body
        title = response.api_key.title
        if response.version_mismatch is not None:
            raise UnsupportedVersionError(f"{title} cannot be asked of {where}: {response.version_mismatch}")
        if response.authentication_error is not None:
            raise response.authentication_error
        if response.timed_out:
            raise KafkaTimeoutError(f"{where} did not respond to {title} in time")
        raise NetworkError(f"{title} got no response from {where}: {response.reason or 'the connection was lost'}")
