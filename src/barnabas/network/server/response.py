"""Responses: a handler's instructions to the processor about a request.

Three kinds end a request, and each request gets exactly one of those: a response, no response (a produce with acks=0),
or the end of its connection. Two start and end the muting of a throttled client and accompany the first three. The last
one drops a connection whose response has been sent but is not read.
"""

from __future__ import annotations

from enum import IntEnum, auto
from typing import Any

from barnabas.network.reactor.send import NetworkSend


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


class NetworkResponse:
    """A response without bytes, from a handler to the processor that owns the connection."""

    __slots__ = ("kind", "request")

    def __init__(self, kind: ResponseKind, request: Any) -> None:
        self.kind = kind
        self.request = request

    def __repr__(self) -> str:
        return f"NetworkResponse({self.kind.name}, {self.request!r})"


class SendResponse(NetworkSend):
    """A response and its bytes in one object, because every request needs one."""

    __slots__ = ()

    kind = SEND

    def whole_pieces(self) -> list[Any] | None:
        """Returns the pieces of the response, even after they were sent; None if they are no longer known.

        The remainder of a partly sent buffer is kept as a view of the whole. Of a file region only the remainder is
        known.
        """
        if len(self._pieces) == 1 and type(self._pieces[0]) is bytes:
            return self._pieces
        pieces: list[Any] = [piece.obj if isinstance(piece, memoryview) else piece for piece in self._pieces]
        return pieces if sum(map(len, pieces)) == self.size else None

    def __repr__(self) -> str:
        return f"SendResponse({self.size - self.remaining} of {self.size} bytes sent, {self.request!r})"


AnyResponse = NetworkResponse | SendResponse
