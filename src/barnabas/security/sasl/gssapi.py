"""GSSAPI with Kerberos (RFC 4752): both ends prove who they are with tickets of a key distribution centre (A04).

The package ``gssapi`` makes and checks the tickets; it needs ``barnabas[gssapi]`` and the system's Kerberos libraries.
An exchange has two parts::

    client                                     server
    AP-REQ: ticket for kafka/host    ───▶      checks it with its keytab
                                     ◀───      AP-REP: proves that it could read the ticket
    (empty)                          ───▶
                                     ◀───      wrapped: the security layers that it offers
    wrapped: no layer, and a name    ───▶      authenticated
                                     ◀───      (empty)

As in Apache Kafka, there is no security layer: TLS encrypts, if anything does. The name that a client asks to act under
is ignored, also as there: kafka-python sends that of the service. The principal of a broker's user is the short name
that ``sasl.kerberos.principal.to.local.rules`` make of the authenticated Kerberos principal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Final

from barnabas.common.errors import IllegalSaslStateError, InvalidConfigurationError, SaslAuthenticationError
from barnabas.common.extras import extra
from barnabas.security.sasl.mechanism import Exchange, Progress, SaslExchangeError, ServerExchange

GSSAPI: Final = "GSSAPI"
MAX_TOKEN: Final = 1 << 16
_NO_LAYER: Final = 1
_OFFER: Final = bytes([_NO_LAYER, 0, 0, 0])
"""No security layer, and so no buffer."""


class _State(Enum):
    CONTEXT = "tokens of the context"
    EMPTY = "an empty token"
    LAYER = "the choice of a security layer"
    CONFIRMATION = "an empty token that confirms the choice"
    COMPLETE = "nothing"
    FAILED = "nothing, it has failed"


class _Event(Enum):
    STEP = "token of the context"
    ESTABLISHED = "last token of the context"
    OFFER = "offer of security layers"
    CHOICE = "choice of a security layer"
    CONFIRMED = "confirmation"
    FAILURE = "failure"


_SERVER: Final[Mapping[_State, Mapping[_Event, _State]]] = {
    _State.CONTEXT: {
        _Event.STEP: _State.CONTEXT,
        _Event.ESTABLISHED: _State.EMPTY,
        _Event.OFFER: _State.LAYER,
        _Event.FAILURE: _State.FAILED,
    },
    _State.EMPTY: {_Event.OFFER: _State.LAYER, _Event.FAILURE: _State.FAILED},
    _State.LAYER: {_Event.CHOICE: _State.COMPLETE, _Event.FAILURE: _State.FAILED},
    _State.COMPLETE: {},
    _State.FAILED: {},
}
_CLIENT: Final[Mapping[_State, Mapping[_Event, _State]]] = {
    _State.CONTEXT: {
        _Event.STEP: _State.CONTEXT,
        _Event.ESTABLISHED: _State.LAYER,
        _Event.FAILURE: _State.FAILED,
    },
    _State.LAYER: {_Event.CHOICE: _State.CONFIRMATION, _Event.FAILURE: _State.FAILED},
    _State.CONFIRMATION: {_Event.CONFIRMED: _State.COMPLETE, _Event.FAILURE: _State.FAILED},
    _State.COMPLETE: {},
    _State.FAILED: {},
}

Context = Any
"""A ``gssapi.SecurityContext``."""


def _library() -> Any:
    with extra("gssapi", "SASL mechanism GSSAPI"):
        import gssapi
    return gssapi


# -- server


class KerberosAcceptor:
    """The keys of a service in a keytab, with which it accepts clients."""

    def __init__(self, principal: str, keytab: str | None, names: KerberosNames) -> None:
        """Raises `InvalidConfigurationError` if the keytab has no key of the principal."""
        gssapi = _library()
        self._gssapi = gssapi
        self._names = names
        try:
            self._credentials = gssapi.Credentials(
                name=gssapi.Name(principal, gssapi.NameType.kerberos_principal),
                usage="accept",
                store={} if keytab is None else {"keytab": keytab},
            )
        except gssapi.exceptions.GSSError as error:
            raise InvalidConfigurationError(f"GSSAPI cannot use the keys of {principal} in {keytab}: {error}") from None

    def context(self) -> Context:
        return self._gssapi.SecurityContext(creds=self._credentials, usage="accept")

    def short_name(self, principal: str) -> str:
        return self._names.short_name(principal)


class GssapiServer(ServerExchange[_State, _Event]):
    """The server's end."""

    mechanism = GSSAPI

    def __init__(self, acceptor: KerberosAcceptor) -> None:
        super().__init__(Progress(_SERVER, _State.CONTEXT, _State.COMPLETE))
        self._acceptor = acceptor
        self._context = acceptor.context()

    def evaluate(self, token: bytes) -> bytes:
        self._progress.check(_Event.FAILURE)
        try:
            return self._evaluate(token)
        except Exception as error:  # noqa: BLE001 - the library raises many kinds for bad tokens
            self._progress.move(_Event.FAILURE)
            raise _for_log(error) from None

    def _evaluate(self, token: bytes) -> bytes:
        _check_size(token)
        if self._progress.state is _State.CONTEXT:
            return self._continue(token)
        if self._progress.state is _State.EMPTY:
            if token:
                raise SaslExchangeError(f"expected an empty token, got {len(token)} bytes")
            return self._offer()
        layer = _unwrapped(self._context, token)
        if layer != _NO_LAYER:
            raise SaslExchangeError(f"the client chose the security layer {layer}, which was not offered")
        self._authorization_id = self._acceptor.short_name(str(self._context.initiator_name))
        self._progress.move(_Event.CHOICE)
        return b""

    def _continue(self, token: bytes) -> bytes:
        response: bytes | None = self._context.step(token)
        if not self._context.complete:
            self._progress.move(_Event.STEP)
            return response or b""
        if not response:  # the client has not asked for a proof of the server
            return self._offer()
        self._progress.move(_Event.ESTABLISHED)
        return response

    def _offer(self) -> bytes:
        wrapped: bytes = self._context.wrap(_OFFER, False).message
        self._progress.move(_Event.OFFER)
        return wrapped


# -- client


class KerberosLogin:
    """The credentials of a client: a keytab, or tickets in a cache that somebody else renews."""

    def __init__(
        self, service: str, *, principal: str | None = None, keytab: str | None = None, ticket_cache: str | None = None
    ) -> None:
        self._gssapi = _library()
        self._service = service
        self._principal = principal
        self._store: dict[str, str] = {}
        if keytab is not None:
            self._store = {"client_keytab": keytab, "ccache": f"MEMORY:barnabas-{id(self):x}"}
        elif ticket_cache is not None:
            self._store = {"ccache": ticket_cache}

    def context(self, host: str) -> Context:
        """Begins a context with the service of a host. It asks the key distribution centre for a ticket."""
        gssapi = self._gssapi
        name = None
        if self._principal is not None:
            name = gssapi.Name(self._principal, gssapi.NameType.kerberos_principal)
        credentials = gssapi.Credentials(name=name, usage="initiate", store=self._store or None)
        return gssapi.SecurityContext(
            name=gssapi.Name(f"{self._service}@{host}", gssapi.NameType.hostbased_service),
            creds=credentials,
            usage="initiate",
            mech=gssapi.MechType.kerberos,
            flags=gssapi.RequirementFlag.mutual_authentication,
        )


class GssapiClient(Exchange[_State, _Event]):
    """The client's end. Its first token may wait for the key distribution centre."""

    mechanism = GSSAPI

    def __init__(self, context: Callable[[], Context]) -> None:
        super().__init__(Progress(_CLIENT, _State.CONTEXT, _State.COMPLETE))
        self._begin = context
        self._context: Context = None

    def initial_response(self) -> bytes:
        try:
            self._context = self._begin()
            token: bytes = self._context.step()
        except Exception as error:  # noqa: BLE001 - the library raises many kinds for bad tokens
            self._progress.move(_Event.FAILURE)
            raise SaslAuthenticationError(f"GSSAPI: no ticket for the broker: {error}") from None
        return token

    def evaluate(self, challenge: bytes) -> bytes | None:
        self._progress.check(_Event.FAILURE)
        try:
            return self._evaluate(challenge)
        except Exception as error:  # noqa: BLE001 - the library raises many kinds for bad tokens
            self._progress.move(_Event.FAILURE)
            raise _for_log(error) from None

    def _evaluate(self, challenge: bytes) -> bytes | None:
        _check_size(challenge)
        if self._progress.state is _State.CONTEXT:
            response: bytes | None = self._context.step(challenge)
            self._progress.move(_Event.ESTABLISHED if self._context.complete else _Event.STEP)
            return response or b""
        if self._progress.state is _State.CONFIRMATION:
            if challenge:
                raise SaslExchangeError(f"the server sent {len(challenge)} bytes after the end of the exchange")
            self._progress.move(_Event.CONFIRMED)
            return None
        layers = _unwrapped(self._context, challenge)
        if not layers & _NO_LAYER:
            raise SaslExchangeError("the server demands a security layer, which is not supported")
        chosen: bytes = self._context.wrap(_OFFER, False).message
        self._progress.move(_Event.CHOICE)
        return chosen


def _check_size(token: bytes) -> None:
    if len(token) > MAX_TOKEN:
        raise SaslExchangeError(f"a GSSAPI token has {len(token)} bytes, more than the maximum of {MAX_TOKEN}")


def _unwrapped(context: Context, token: bytes) -> int:
    """Returns the security layers of a wrapped message."""
    data: bytes = context.unwrap(token).message
    if len(data) < len(_OFFER):
        raise SaslExchangeError(f"the security layer message has {len(data)} bytes instead of at least {len(_OFFER)}")
    return data[0]


def _for_log(error: Exception) -> Exception:
    """Returns the error to raise: those of the library are for the log of this side only."""
    if isinstance(error, SaslExchangeError | IllegalSaslStateError):
        return error
    return SaslExchangeError(f"GSSAPI: {error}")


# -- names


class KerberosNames:
    """Maps Kerberos principals to short names, by ``sasl.kerberos.principal.to.local.rules``.

    ``DEFAULT`` takes the first part of principals of the default realm, which is that of the broker's own principal.
    ``RULE:[n:format](pattern)s/from/to/g/L`` is for principals with n parts: the format, with $0 for the realm and $1
    and so on for the parts, must match the pattern, and then is edited. ``g`` replaces every match, ``L`` and ``U``
    change the case.
    """

    _PRINCIPAL: Final = re.compile(r"([^/@]+)(?:/([^/@]+))?@([^/@]+)")
    _RULE: Final = re.compile(r"RULE:\[(\d*):([^\]]*)\](?:\(([^)]*)\))?(?:s/([^/]*)/([^/]*)/(g)?)?/?([LU])?", re.DOTALL)

    def __init__(self, default_realm: str, rules: Sequence[str] = ("DEFAULT",)) -> None:
        """Raises `InvalidConfigurationError` for a rule that cannot be parsed."""
        self._realm = default_realm
        self._rules: list[re.Match[str] | None] = []
        """None stands for DEFAULT."""
        for rule in rules:
            match = self._RULE.fullmatch(rule.strip())
            if match is None and rule.strip() != "DEFAULT":
                raise InvalidConfigurationError(f"sasl.kerberos.principal.to.local.rules has an invalid rule: {rule}")
            self._rules.append(match)

    def short_name(self, principal: str) -> str:
        """Raises `SaslExchangeError` if no rule matches."""
        parsed = self._PRINCIPAL.fullmatch(principal)
        if parsed is None:
            raise SaslExchangeError(f"{principal} is not a Kerberos principal of the form name/host@REALM")
        first, second, realm = parsed.groups()
        parts = [realm, first] if second is None else [realm, first, second]
        for rule in self._rules:
            name = self._default(parts) if rule is None else _apply(rule, parts)
            if name is not None:
                return name
        raise SaslExchangeError(f"no rule of sasl.kerberos.principal.to.local.rules applies to {principal}")

    def _default(self, parts: list[str]) -> str | None:
        return parts[1] if parts[0] == self._realm else None


def _apply(rule: re.Match[str], parts: list[str]) -> str | None:
    count, form, pattern, before, after, everywhere, case = rule.groups()
    if int(count or 0) != len(parts) - 1:
        return None
    text = re.sub(r"\$(\d)", lambda match: parts[int(match[1])] if int(match[1]) < len(parts) else "", form)
    if pattern is not None and re.fullmatch(pattern, text) is None:
        return None
    if before is not None:
        text = re.sub(before, re.sub(r"\$(\d)", r"\\\1", after), text, count=0 if everywhere else 1)
    if "/" in text or "@" in text:
        raise SaslExchangeError(
            f"a rule of sasl.kerberos.principal.to.local.rules makes {text}, which is not a short name"
        )
    return text.lower() if case == "L" else text.upper() if case == "U" else text
