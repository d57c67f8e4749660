"""The request plane: the destination of a processor's requests.

It is an interface because the layers above own the implementation: the request channel and its handlers on a broker, a
much smaller one in a test.
"""

from __future__ import annotations

from typing import Any, Protocol

from barnabas.common.dataclass import dataclass
from barnabas.network.reactor.memory_pool import MemoryPool
from barnabas.network.server.endpoint import Endpoint, SecurityProtocol
from barnabas.network.server.response import AnyResponse
from barnabas.network.transport.local.offer import LocalSocketOffer
from barnabas.protocol.headers import ParsedHeader


@dataclass(slots=True)
class ConnectionContext:
    """The state that all requests of one connection share."""

    connection_id: str
    client_address: str
    listener_name: str
    security_protocol: SecurityProtocol
    from_privileged_listener: bool
    principal: Any = None
    """The authenticated principal of the peer; None on a listener without authentication."""
    client_software_name: str = "unknown"
    client_software_version: str = "unknown"
    local_socket: LocalSocketOffer | None = None
    """The offer for a client of ours; None if it is on another machine, or has moved already."""
    has_produced: bool = False
    """Whether a produce request of this connection was admitted under a quota. From then on, muting it is enough."""
    refers: bool = False
    """Whether large messages are sent as references: see `barnabas.network.transport.local.frame_references`."""


class ProcessorHandle(Protocol):
    """A processor as the request plane sees it."""

    id: int
    endpoint: Endpoint

    def enqueue_response(self, response: AnyResponse) -> bool:
        """Queues a response; returns whether the processor sleeps and must be woken."""
        ...

    def wakeup(self) -> None: ...

    @property
    def response_queue_size(self) -> int: ...


class RequestPlane(Protocol):
    """Takes requests from processors."""

    def thread_started(self) -> None:
        """Called by the thread of each processor before anything else."""
        ...

    def new_request(
        self,
        processor_id: int,
        context: ConnectionContext,
        header: ParsedHeader,
        payload: memoryview,
        pool: MemoryPool,
        received_ns: int,
    ) -> Any:
        """Creates a request; raises if this listener does not serve that API in that version."""
        ...

    def submit(self, requests: list[Any]) -> None:
        """Accepts all requests of one poll. Blocks while the queue is full: that is the back-pressure."""
        ...

    def add_processor(self, processor: ProcessorHandle) -> None: ...

    def remove_processor(self, processor_id: int) -> None: ...
