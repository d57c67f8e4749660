"""A channel: one connection, what has been read of its next request, what is being sent, and whether it may be read at
all. A channel belongs to the thread of its selector, which is the only one to touch it.

**Receiving** is size-delimited, in two phases: four bytes of length, then that many bytes. The first phase reads
ahead: one ``recv`` takes whatever has arrived, and a request that is complete in it is handed out as a view, with
no further read and no copy. What follows it waits in ``ahead`` for the next call. A request that is *not*
complete gets a buffer of its own, and the rest is read straight into that. When the memory pool is bounded there
is no reading ahead: exactly the length is read, then exactly the payload, and only after the pool has granted it.

A large request is not looked at before a good part of it has arrived. Its buffer, new memory that the system has to
find and to clear page by page, costs as much as the copy into it; so a client, who gets one large answer after the
other, keeps the last few (``spares``) and receives into one that nobody has a view of any more, the last one first:
the fewer of them take turns, the more of them is in the processor's cache. A server keeps none. But behind a large
request it expects another one, and reads ahead into a buffer that has room for all of it: what has arrived by then
is where it is to stay.

**Sending** is one :class:`NetworkSend` at a time.
"""

from __future__ import annotations

from typing import Any, Protocol

from barnabas._kernels import reactor
from barnabas.network.channel_state import ChannelState, InvalidReceiveError

KafkaChannel = reactor.KafkaChannel


class Authenticator(Protocol):
    """Runs on a fresh connection until it knows who is at the other end."""

    @property
    def complete(self) -> bool: ...

    def authenticate(self, channel: KafkaChannel) -> None:
        """Goes on as far as possible without waiting; :class:`AuthenticationError` ends the connection."""
        ...

    @property
    def principal(self) -> Any: ...


class AnonymousAuthenticator:
    """For listeners that ask for nothing."""

    __slots__ = ()

    complete = True
    principal: Any = None

    def authenticate(self, channel: KafkaChannel) -> None: ...


ANONYMOUS = AnonymousAuthenticator()

__all__ = [
    "ANONYMOUS",
    "AnonymousAuthenticator",
    "Authenticator",
    "ChannelState",
    "InvalidReceiveError",
    "KafkaChannel",
]
