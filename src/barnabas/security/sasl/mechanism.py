"""The interfaces of SASL mechanisms, and the state that both ends of an exchange keep.

A mechanism is a conversation of opaque tokens. The client speaks first::

    client                                      server
    initial_response()        ── token ──▶      evaluate(token)
    evaluate(challenge)       ◀─ challenge ──   ... until both are complete

Both ends raise three kinds of errors:

=========================== ===================================================================================
`SaslAuthenticationError`   the peer failed, and the message may be sent to it
`SaslExchangeError`         the peer failed; the message says why and is only for the log of this side. A server
                            sends a general message instead, because the reason may reveal whether a user exists.
`IllegalSaslStateError`     a token arrived in a state in which none is expected
=========================== ===================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, Generic, Protocol, TypeVar

from barnabas.common.errors import BarnabasError, IllegalSaslStateError

CREDENTIAL_EXPIRY_MS: Final = "credential.expiry.ms"
"""In `SaslServer.negotiated`: when the credential expires, in milliseconds since 1970; absent if it does not."""
TOKEN_AUTH: Final = "tokenauth"  # noqa: S105 - a name
"""In `SaslServer.negotiated`: whether the client used a delegation token."""
TOKEN_ID: Final = "token.id"  # noqa: S105 - a name
"""In `SaslServer.negotiated`: the id of that token."""


class SaslExchangeError(BarnabasError):
    """The exchange failed. The message is for the log of this side, not for the peer."""


class SaslServer(Protocol):
    """The server's end of one exchange."""

    mechanism: str

    def evaluate(self, token: bytes) -> bytes:
        """Takes a token of the client and returns the challenge, or the last token of the server, which may be empty.

        Raises `SaslAuthenticationError`, `SaslExchangeError` or `IllegalSaslStateError`.
        """
        ...

    @property
    def complete(self) -> bool:
        """Whether the client is authenticated."""
        ...

    @property
    def authorization_id(self) -> str:
        """The name of the authenticated client; raises `IllegalSaslStateError` before the exchange is complete."""
        ...

    @property
    def negotiated(self) -> Mapping[str, object]:
        """What the exchange has settled besides the name, and the extensions of the client."""
        ...


class SaslClient(Protocol):
    """The client's end of one exchange."""

    mechanism: str

    def initial_response(self) -> bytes:
        """Returns the first token."""
        ...

    def evaluate(self, challenge: bytes) -> bytes | None:
        """Takes a challenge and returns the next token; None if there is nothing more to send."""
        ...

    @property
    def complete(self) -> bool:
        """Whether the server is satisfied and, if the mechanism authenticates it too, is who it claims to be."""
        ...


State = TypeVar("State", bound=Enum)
Event = TypeVar("Event", bound=Enum)


class Progress(Generic[State, Event]):
    """The state of an exchange. It changes only along the transitions of a table.

    The table is a mapping from each state to the events that it allows and the states that they lead to. An event that
    is not in the table raises `IllegalSaslStateError` and changes nothing.
    """

    __slots__ = ("_complete", "_table", "state")

    def __init__(self, table: Mapping[State, Mapping[Event, State]], initial: State, complete: State) -> None:
        self._table = table
        self._complete = complete
        self.state = initial

    @property
    def is_complete(self) -> bool:
        return self.state is self._complete

    def allows(self, event: Event) -> bool:
        return event in self._table[self.state]

    def check(self, event: Event) -> None:
        """Raises `IllegalSaslStateError` if the state does not allow an event."""
        if event not in self._table[self.state]:
            raise IllegalSaslStateError(f"Unexpected {event.value} in SASL state {self.state.name}")

    def move(self, event: Event) -> None:
        self.check(event)
        self.state = self._table[self.state][event]

    def __repr__(self) -> str:
        return f"Progress({self.state.name})"


class Exchange(Generic[State, Event]):
    """One end of an exchange."""

    mechanism: str

    def __init__(self, progress: Progress[State, Event]) -> None:
        self._progress = progress

    @property
    def complete(self) -> bool:
        return self._progress.is_complete

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.mechanism}, {self._progress.state.name})"


class ServerExchange(Exchange[State, Event]):
    """The server's end, with what it learns about the client."""

    def __init__(self, progress: Progress[State, Event]) -> None:
        super().__init__(progress)
        self._authorization_id = ""
        self._negotiated: Mapping[str, object] = {}

    @property
    def authorization_id(self) -> str:
        if not self.complete:
            raise IllegalSaslStateError("Authentication exchange has not completed")
        return self._authorization_id

    @property
    def negotiated(self) -> Mapping[str, object]:
        return self._negotiated
