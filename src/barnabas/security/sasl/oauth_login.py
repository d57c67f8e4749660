"""The login of an OAUTHBEARER client: holds the current token and replaces it before it expires (KIP-368, KIP-768).

`OAuthLogin.start` obtains the first token and fails if that fails. A thread then obtains the next one after
``sasl.login.refresh.window.factor`` of the lifetime plus a random jitter, but not within ``min.period.seconds`` after
the last one and ``buffer.seconds`` before the expiry, if the lifetime leaves the choice. Existing connections keep
their token until they authenticate again.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
import threading
from collections.abc import Awaitable
from typing import Any, Final

from barnabas.common.clock import SYSTEM_CLOCK, Clock
from barnabas.common.dataclass import dataclass
from barnabas.common.errors import SaslAuthenticationError
from barnabas.security.sasl.oauth_http import HttpError
from barnabas.security.sasl.oauth_token import OAuthBearerToken, TokenRejectedError, read_token
from barnabas.security.sasl.token_provider import TokenProvider

log = logging.getLogger(__name__)

MAX_WAIT_MS: Final = 60_000
"""The thread looks at the wall clock this often: it may jump, for example after a suspend."""
RETRY_AFTER_FAILURE_MS: Final = 10_000
"""How long the thread waits after a failed replacement before it tries again."""


@dataclass(frozen=True, slots=True)
class RefreshSettings:
    """The settings ``sasl.login.refresh.*`` and ``sasl.login.retry.*``."""

    window_factor: float = 0.8
    window_jitter: float = 0.05
    min_period_s: int = 60
    buffer_s: int = 300
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 10_000
    principal_claim_name: str = "sub"
    scope_claim_name: str = "scope"

    def refresh_at_ms(self, now_ms: int, token: OAuthBearerToken, share: float) -> int:
        """Returns when to replace a token; ``share`` from 0 to 1 chooses within the jitter."""
        if token.expiry_ms <= now_ms:
            return now_ms + RETRY_AFTER_FAILURE_MS
        part = self.window_factor + self.window_jitter * share
        if now_ms + (self.min_period_s + self.buffer_s) * 1000 > token.expiry_ms:
            # Too short to keep both distances. The rest of its life counts, not all of it: a provider that returns the
            # same token again, such as a file that was not replaced yet, would be called without a pause.
            return now_ms + max(int((token.expiry_ms - now_ms) * part), 1)
        start_ms = now_ms if token.start_ms is None else min(token.start_ms, now_ms)
        planned = start_ms + int((token.expiry_ms - start_ms) * part)
        return max(min(planned, token.expiry_ms - self.buffer_s * 1000), now_ms + self.min_period_s * 1000)


class OAuthLogin:
    """The current token of a client."""

    def __init__(
        self,
        provider: TokenProvider,
        settings: RefreshSettings | None = None,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        clock: Clock = SYSTEM_CLOCK,
        rng: random.Random | None = None,
    ) -> None:
        """``loop`` runs the coroutines of an asynchronous provider; by default each runs in a loop of its own."""
        self._provider = provider
        self._settings = RefreshSettings() if settings is None else settings
        self._loop = loop
        self._clock = clock
        self._random = random.Random() if rng is None else rng  # noqa: S311 - spreads load, protects nothing
        self._changed = threading.Condition()
        """Guards the fields below. No token is obtained while it is held."""
        self._token: OAuthBearerToken | None = None
        self._refresh_at_ms = 0
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="oauthbearer-login", daemon=True)

    def start(self) -> None:
        """Obtains the first token, which may take as long as the provider; raises `SaslAuthenticationError`.

        With an asynchronous provider it must run in another thread than the event loop.
        """
        self._replace(self._obtain())
        self._thread.start()

    def token(self) -> str:
        """Returns the value of the current token. Never waits."""
        with self._changed:
            token = self._token
        if token is None:
            raise SaslAuthenticationError("there is no token yet: the login has not been started, or it failed")
        if token.expiry_ms <= self._clock.milliseconds():
            raise SaslAuthenticationError("the token has expired, and a new one could not be obtained")
        return token.value

    @property
    def current(self) -> OAuthBearerToken | None:
        with self._changed:
            return self._token

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(1)  # it may be in a call of the provider, which ends by itself

    def _replace(self, token: OAuthBearerToken) -> None:
        now_ms = self._clock.milliseconds()
        with self._changed:
            self._token = token
            self._refresh_at_ms = self._settings.refresh_at_ms(now_ms, token, self._random.random())

    def _obtain(self) -> OAuthBearerToken:
        """Calls the provider until it succeeds, for at most ``retry_backoff_max_ms``."""
        settings, clock = self._settings, self._clock
        deadline_ms = clock.hi_res_milliseconds() + settings.retry_backoff_max_ms
        backoff_ms = settings.retry_backoff_ms
        while True:
            try:
                return self._read(self._call())
            except (OSError, HttpError) as error:
                permanent = isinstance(error, HttpError) and error.permanent
                if permanent or clock.hi_res_milliseconds() + backoff_ms >= deadline_ms or not self._pause(backoff_ms):
                    raise SaslAuthenticationError(f"no token could be obtained: {error}") from None
                backoff_ms *= 2
            except TokenRejectedError as error:
                raise SaslAuthenticationError(f"the token that was obtained is not usable: {error}") from None

    def _call(self) -> str | OAuthBearerToken:
        result = self._provider()
        return self._await(result) if inspect.isawaitable(result) else result

    def _await(self, pending: Awaitable[Any]) -> str | OAuthBearerToken:
        async def run() -> str | OAuthBearerToken:
            token: str | OAuthBearerToken = await pending
            return token

        if self._loop is None:
            return asyncio.run(run())
        return asyncio.run_coroutine_threadsafe(run(), self._loop).result()

    def _read(self, token: str | OAuthBearerToken) -> OAuthBearerToken:
        if isinstance(token, OAuthBearerToken):
            return token
        return read_token(
            token,
            principal_claim_name=self._settings.principal_claim_name,
            scope_claim_name=self._settings.scope_claim_name,
        )

    def _run(self) -> None:
        while self._wait():
            try:
                token = self._obtain()
            except Exception as error:  # noqa: BLE001 - whatever the application's function raises, the login goes on
                if isinstance(error, SaslAuthenticationError):
                    log.warning("Keeping the last token: %s", error)
                else:
                    log.warning("Keeping the last token: the provider raised %s", type(error).__name__)
                with self._changed:
                    self._refresh_at_ms = self._clock.milliseconds() + RETRY_AFTER_FAILURE_MS
            else:
                self._replace(token)

    def _wait(self) -> bool:
        """Waits until the token has to be replaced; false if it will not be."""
        with self._changed:
            while not self._closed:
                remaining_ms = self._refresh_at_ms - self._clock.milliseconds()
                if remaining_ms <= 0:
                    return True
                self._clock.wait(self._changed, min(remaining_ms, MAX_WAIT_MS))
            return False

    def _pause(self, milliseconds: float) -> bool:
        """Waits between two attempts; false if the login was closed meanwhile."""
        deadline_ms = self._clock.hi_res_milliseconds() + milliseconds
        with self._changed:
            while not self._closed:
                remaining_ms = deadline_ms - self._clock.hi_res_milliseconds()
                if remaining_ms <= 0:
                    return True
                self._clock.wait(self._changed, remaining_ms)
            return False

    def __repr__(self) -> str:
        return f"OAuthLogin({self.current!r})"
