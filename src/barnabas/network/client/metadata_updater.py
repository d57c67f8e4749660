"""The metadata updater: the interface between a network client and the owner of the metadata."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from barnabas.common.errors import ApiError, AuthenticationError
from barnabas.network.client.client_request import ClientRequest, RequestBuilder
from barnabas.network.client.inflight import FOREVER
from barnabas.network.client.least_loaded_node import LeastLoadedNode
from barnabas.network.client.node import Node
from barnabas.protocol.message import Request, Response


class MetadataClient(Protocol):
    """The network client as a metadata updater sees it."""

    @property
    def default_request_timeout_ms(self) -> int: ...

    @property
    def reconnect_backoff_ms(self) -> int: ...

    def least_loaded_node(self, now: int) -> LeastLoadedNode: ...

    def send_metadata_request(
        self, node: Node, make_request: Callable[[], Request | RequestBuilder], now: int
    ) -> int: ...


class MetadataUpdater(Protocol):
    """Keeps the list of nodes up to date through the client it is plugged into.

    The client calls all methods from its own thread. It reports a failed Metadata request through
    :meth:`handle_failed_request`, a lost connection through :meth:`handle_server_disconnect`, and a lost connection
    with a Metadata request in flight through both.
    """

    @property
    def cluster_id(self) -> str | None:
        """The id of the cluster.

        It lets a node of another cluster, at a reassigned address, reject the client (KIP-1242).
        """
        return None

    @property
    def can_rebootstrap(self) -> bool:
        """``metadata.recovery.strategy=rebootstrap`` (KIP-899)."""
        return False

    def fetch_nodes(self) -> Sequence[Node]: ...

    def is_update_due(self, now: int) -> bool:
        """Whether a Metadata request must be sent before anything else."""
        ...

    def maybe_update(self, client: MetadataClient, now: int) -> int:
        """Sends a Metadata request if it is due; returns the milliseconds until the next call is needed."""
        ...

    def handle_server_disconnect(
        self, now: int, node_id: str, authentication_error: AuthenticationError | None
    ) -> None: ...

    def handle_failed_request(self, now: int, error: ApiError | None) -> None:
        """Reports that a Metadata request gets no response; ``error`` says why, if retrying is useless."""
        ...

    def handle_completed_metadata_response(self, request: ClientRequest, now: int, response: Response) -> None: ...

    def needs_rebootstrap(self, now: int) -> bool:  # noqa: ARG002 - this one never does
        """Whether the known nodes have been unusable for so long that the client should forget them (KIP-1102)."""
        return False

    def rebootstrap(self, now: int) -> None:
        """Forgets all nodes but the bootstrap servers. The client has closed all connections before."""
        ...

    def close(self) -> None: ...


class ManualMetadataUpdater(MetadataUpdater):
    """Holds nodes set by its owner: a broker that talks to the controllers, a test."""

    def __init__(self, nodes: Sequence[Node] = ()) -> None:
        self._nodes = list(nodes)

    def set_nodes(self, nodes: Sequence[Node]) -> None:
        self._nodes = list(nodes)

    def fetch_nodes(self) -> Sequence[Node]:
        return self._nodes

    def is_update_due(self, now: int) -> bool:  # noqa: ARG002 - never
        return False

    def maybe_update(self, client: MetadataClient, now: int) -> int:  # noqa: ARG002 - nothing to do
        return FOREVER

    def handle_server_disconnect(
        self, now: int, node_id: str, authentication_error: AuthenticationError | None
    ) -> None: ...

    def handle_failed_request(self, now: int, error: ApiError | None) -> None: ...

    def handle_completed_metadata_response(self, request: ClientRequest, now: int, response: Response) -> None: ...

    def rebootstrap(self, now: int) -> None: ...

    def close(self) -> None: ...
