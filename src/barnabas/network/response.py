"""Responses: what a handler may tell the processor to do with a request.

Three kinds end a request, and each request gets exactly one of those: a response, no response (a produce with acks=0),
or the end of its connection. Two start and end the muting of a throttled client and go along with the first three. The
last one drops a connection whose response has been sent but is not read.
"""

from __future__ import annotations

from enum import IntEnum, auto
from typing import Any, Protocol

from barnabas.network.send import NetworkSend


class ResponseKind(IntEnum):
    SEND = auto()
    NO_OP = auto()
    CLOSE_CONNECTION = auto()
    START_THROTTLING = auto()
    END_THROTTLING = auto()
    DROP_CONNECTION = auto()


SEND = ResponseKind.SEND
NO_OP = ResponseKind.NO_OP
CLOSE_CONNECTION = ResponseKind.CLOSE_CONNECTION
START_THROTTLING = ResponseKind.START_THROTTLING
END_THROTTLING = ResponseKind.END_THROTTLING
DROP_CONNECTION = ResponseKind.DROP_CONNECTION


class PendingRequest(Protocol):
    """What the network layer needs to know of a request that it has handed over."""

    connection_id: str
    processor_id: int
    response_dequeue_time_ns: int

    def complete(self, network_thread_time_ns: int, response: AnyResponse) -> None:
        """The last byte is out, or there is none: the time to write the request's timeline into the metrics."""
        ...


class NetworkResponse:
    """A response without bytes on its way from a handler to the processor that owns the connection."""

    __slots__ = ("kind", "request")

    def __init__(self, kind: ResponseKind, request: Any) -> None:
        self.kind = kind
        self.request = request

    def __repr__(self) -> str:
        return f"NetworkResponse({self.kind.name}, {self.request!r})"


class SendResponse(NetworkSend):
    """An answer: the response and what is to be sent, in one object, because there is one for every request."""

    __slots__ = ()

    kind = SEND

    def whole_pieces(self) -> list[Any] | None:
        """The pieces of the answer, also when they have been sent; None if that cannot be told any more.

        Of a buffer that went out in several goes the rest is kept as a view of the whole. Of a part of a file only the
        rest is known.
        """
        if len(self._pieces) == 1 and type(self._pieces[0]) is bytes:
            return self._pieces
        pieces: list[Any] = [piece.obj if isinstance(piece, memoryview) else piece for piece in self._pieces]
        return pieces if sum(map(len, pieces)) == self.size else None

    def __repr__(self) -> str:
        return f"SendResponse({self.size - self.remaining} of {self.size} bytes sent, {self.request!r})"


AnyResponse = NetworkResponse | SendResponse
