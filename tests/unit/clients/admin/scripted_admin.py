"""An admin client on a cluster in memory: no sockets, no thread, and time that moves when the client waits."""

from __future__ import annotations

import socket
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from random import Random
from typing import Any, TypeVar

from barnabas.clients.admin import KafkaAdminClient
from barnabas.clients.admin.internals.operation import Operation
from barnabas.clients.testing import Handled, InMemorySelector, ScriptedCluster
from barnabas.network.client.host_resolver import ResolvedAddress
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.message import Response

T = TypeVar("T")


class ScriptedAdmin:
    """Runs operations one turn at a time."""

    def __init__(self, cluster: ScriptedCluster, **settings: Any) -> None:
        self.cluster = cluster
        selector = InMemorySelector(cluster)
        cluster.selectors.append(selector)
        self.admin = KafkaAdminClient(
            bootstrap_servers=[f"{node.host}:{node.port}" for node in cluster.nodes.values()],
            clock=cluster.clock,
            selector=selector,
            resolver=_resolve,
            random=Random(0),
            start_thread=False,
            **settings,
        )

    def start(self, run: Callable[[Operation], Coroutine[Any, None, T]], timeout_ms: int | None = None) -> Future[T]:
        admin = self.admin if timeout_ms is None else self.admin.with_timeout(timeout_ms)
        return admin.submit(run)

    def run(self, run: Callable[[Operation], Coroutine[Any, None, T]], timeout_ms: int | None = None) -> T:
        """The result of an operation."""
        return self.finish(self.start(run, timeout_ms))

    def finish(self, future: Future[T], max_turns: int = 2_000) -> T:
        for _ in range(max_turns):
            if future.done():
                return future.result()
            self.admin.core.runnable.run_once()
        raise AssertionError(f"still not done after {max_turns} turns")

    def answer(self, api_key: ApiKey, *answers: Response | Callable[[Handled], Response]) -> None:
        """The responses to the next requests of a kind, in order."""
        for one in answers:
            self.cluster.on_next(api_key, _always(one) if isinstance(one, Response) else one)

    def count(self, api_key: ApiKey) -> int:
        return len(self.cluster.requests(api_key))

    def asked_nodes(self, api_key: ApiKey) -> list[int]:
        return [handled.node_id for handled in self.cluster.handled if handled.header.api_key is api_key]


def _resolve(host: str) -> Sequence[ResolvedAddress]:
    return [ResolvedAddress(socket.AF_INET, host)]


def _always(response: Response) -> Callable[[Handled], Response]:
    return lambda _handled: response
