"""The token source of an OAUTHBEARER client. The first setting of this table that is present decides:

=========================================================  ==========================================================
setting                                                    tokens come from
=========================================================  ==========================================================
``sasl.oauth.token.provider``                              a function or an object of the application
``sasl.oauthbearer.jwt.retriever.class``                   an object of that Python class
``sasl.oauthbearer.token.endpoint.url``, ``file:`` URL     a file
``...token.endpoint.url`` and ``...assertion.*``           the JWT-bearer grant: an assertion, signed or from a file
``...token.endpoint.url``                                  the client-credentials grant
``unsecuredLogin...`` options of ``sasl.jaas.config``      the client itself, without a signature: for tests only
=========================================================  ==========================================================

Names of Kafka's own Java classes in a properties file are ignored: the other settings have the same effect.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from barnabas.clients.common.security_aliases import TOKEN_PROVIDER
from barnabas.common.config_def import ConfigError, ConfigValues, Password
from barnabas.common.errors import SaslAuthenticationError
from barnabas.security.sasl.jaas import JaasEntry
from barnabas.security.sasl.oauth_http import DEFAULT_TIMEOUT_MS
from barnabas.security.sasl.oauth_login import OAuthLogin, RefreshSettings
from barnabas.security.sasl.oauth_token import OAuthBearerToken
from barnabas.security.sasl.token_provider import (
    TOKEN_ENDPOINT,
    AssertionSigner,
    ClientCredentialsProvider,
    FileTokenProvider,
    JwtBearerProvider,
    TokenEndpoint,
    TokenProvider,
    UnsecuredTokenProvider,
)

_PREFIX: Final = "sasl.oauthbearer."
_ASSERTION: Final = _PREFIX + "assertion."
_UNSECURED: Final = "unsecuredLogin"
_EXTENSION: Final = "extension_"


class TokenLogin:
    """The token of a client, and the extensions that go with it."""

    def __init__(self, login: OAuthLogin, extensions: Mapping[str, str]) -> None:
        self.token = login.token
        self.close = login.close
        self.extensions = extensions


def token_login(values: ConfigValues, jaas: JaasEntry) -> TokenLogin:
    """Obtains the first token; raises `ConfigError` or `SaslAuthenticationError`."""
    provider = _provider(values, jaas)
    login = OAuthLogin(
        provider,
        RefreshSettings(
            window_factor=values.get_float("sasl.login.refresh.window.factor"),
            window_jitter=values.get_float("sasl.login.refresh.window.jitter"),
            min_period_s=values.get_int("sasl.login.refresh.min.period.seconds"),
            buffer_s=values.get_int("sasl.login.refresh.buffer.seconds"),
            retry_backoff_ms=values.get_int("sasl.login.retry.backoff.ms"),
            retry_backoff_max_ms=values.get_int("sasl.login.retry.backoff.max.ms"),
            principal_claim_name=values.get_str(_PREFIX + "sub.claim.name"),
            scope_claim_name=values.get_str(_PREFIX + "scope.claim.name"),
        ),
    )
    _start(login)
    if isinstance(provider, UnsecuredTokenProvider):
        return TokenLogin(login, UnsecuredTokenProvider.extensions(jaas.options))
    given = {name.removeprefix(_EXTENSION): text for name, text in jaas.options.items() if name.startswith(_EXTENSION)}
    return TokenLogin(login, given)


def _start(login: OAuthLogin) -> None:
    """Starts the login, in another thread if this one runs an event loop: a coroutine needs a loop of its own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        login.start()
        return
    problems: list[BaseException] = []

    def start() -> None:
        try:
            login.start()
        except BaseException as error:  # noqa: BLE001 - raised below, in the caller's thread
            problems.append(error)

    thread = threading.Thread(target=start, name="oauthbearer-first-login", daemon=True)
    thread.start()
    thread.join()
    if problems:
        raise problems[0]


def _provider(values: ConfigValues, jaas: JaasEntry) -> TokenProvider:
    given = values.originals.get(TOKEN_PROVIDER)
    if given is None:
        retriever = values.get_optional_class(_PREFIX + "jwt.retriever.class")
        given = None if retriever is None else retriever()
    if given is not None:
        return _of_application(given)
    url = values.get_optional_str(TOKEN_ENDPOINT)
    if url is not None:
        parts = urlsplit(url)
        if parts.scheme == "file":
            return FileTokenProvider(unquote(parts.path))
        endpoint = TokenEndpoint(url, timeout_ms=_timeout_ms(values))
        if any(values.is_set(name) for name in values if name.startswith(_ASSERTION)):
            return JwtBearerProvider(endpoint, _assertion(values), values.get_optional_str(_PREFIX + "scope"))
        return _client_credentials(endpoint, values, jaas)
    if any(name.startswith(_UNSECURED) for name in jaas.options):
        return UnsecuredTokenProvider(jaas.options)
    raise ConfigError(
        f"OAUTHBEARER needs a source of tokens: set {TOKEN_ENDPOINT} (https: or file:), or pass "
        f"{TOKEN_PROVIDER.replace('.', '_')}=, a function that returns a token.",
        name=TOKEN_ENDPOINT,
    )


def _timeout_ms(values: ConfigValues) -> int:
    given = [values.get_optional_int(f"sasl.login.{name}.timeout.ms") for name in ("connect", "read")]
    return sum(one for one in given if one is not None) or DEFAULT_TIMEOUT_MS


def _client_credentials(endpoint: TokenEndpoint, values: ConfigValues, jaas: JaasEntry) -> TokenProvider:
    secret = values.get_optional_password(_PREFIX + "client.credentials.client.secret")
    return ClientCredentialsProvider(
        endpoint,
        values.get_optional_str(_PREFIX + "client.credentials.client.id") or jaas.options.get("clientId", ""),
        jaas.options.get("clientSecret", "") if secret is None else secret.value,
        values.get_optional_str(_PREFIX + "scope") or jaas.options.get("scope"),
        header_urlencode=values.get_bool(_PREFIX + "header.urlencode"),
    )


def _assertion(values: ConfigValues) -> Callable[[], str]:
    """Returns the source of assertions: a file with a complete one, or a private key that signs them."""
    complete = values.get_optional_str(_ASSERTION + "file")
    if complete is not None:
        return FileTokenProvider(complete)
    key = values.get_optional_str(_ASSERTION + "private.key.file")
    if key is None:
        raise ConfigError(
            f"The JWT-bearer grant needs {_ASSERTION}file or {_ASSERTION}private.key.file.",
            name=_ASSERTION + "private.key.file",
        )
    header, claims = _template(values.get_optional_str(_ASSERTION + "template.file"))
    for claim in ("aud", "iss", "sub"):
        value = values.get_optional_str(f"{_ASSERTION}claim.{claim}")
        if value is not None:
            claims[claim] = value
    passphrase: Password | None = values.get_optional_password(_ASSERTION + "private.key.passphrase")
    return AssertionSigner(
        key,
        claims,
        algorithm=values.get_str(_ASSERTION + "algorithm").upper(),
        passphrase=None if passphrase is None else passphrase.value,
        lifetime_s=values.get_int(_ASSERTION + "claim.exp.seconds"),
        not_before_s=values.get_int(_ASSERTION + "claim.nbf.seconds"),
        include_id=values.get_bool(_ASSERTION + "claim.jti.include"),
        header=header,
    )


def _template(path: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns header and claims of a file with a JSON object of both."""
    if path is None:
        return {}, {}
    name = _ASSERTION + "template.file"
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{name}: cannot read {path}: {error}", name=name) from None
    header, payload = (document.get(part, {}) if isinstance(document, dict) else None for part in ("header", "payload"))
    if not isinstance(header, dict) or not isinstance(payload, dict):
        raise ConfigError(f"{name}: {path} must be a JSON object with the objects header and payload", name=name)
    return header, payload


# -- tokens of the application


def _of_application(given: Any) -> TokenProvider:
    """Returns a provider for a function, a coroutine function, or an object with a method ``token``."""
    call = getattr(given, "token", given)
    if not callable(call):
        raise ConfigError(
            f"{TOKEN_PROVIDER} must be a function, or an object with a method token: {type(given).__name__}",
            name=TOKEN_PROVIDER,
        )

    def provide() -> OAuthBearerToken | str | Awaitable[OAuthBearerToken | str]:
        result = call()
        return _awaited(result) if inspect.isawaitable(result) else _as_token(result)

    return provide


async def _awaited(pending: Awaitable[Any]) -> OAuthBearerToken | str:
    return _as_token(await pending)


def _as_token(result: Any) -> OAuthBearerToken | str:
    """Accepts a JWT, or a token with its expiry in seconds since 1970, as confluent-kafka's callbacks return it."""
    if isinstance(result, str | OAuthBearerToken):
        return result
    if isinstance(result, tuple) and len(result) >= 2 and isinstance(result[0], str) and _is_number(result[1]):
        return OAuthBearerToken(result[0], "", int(result[1] * 1000))
    raise SaslAuthenticationError(
        f"{TOKEN_PROVIDER} must return a token, or a tuple of a token and its expiry in seconds: it returned a "
        f"{type(result).__name__}"
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
