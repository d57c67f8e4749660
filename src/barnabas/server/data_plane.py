"""The data plane: passes requests from processors to handlers.

The best policy depends on the interpreter. Under the global interpreter lock, two threads never run Python at the same
time. Passing a request to another thread then gains no parallelism and costs two thread switches, which is more than
most requests cost themselves. Without that lock the opposite holds.

``queue``
    The documented policy: every request goes through the request channel to the handler pool.
``direct``
    A processor handles a request inline if the API's handler is short and never blocks, and if no earlier request is
    queued. Everything else goes to the pool.

Muting, ordering, bounds, quotas, callbacks and the timeline are the same in both.

**The cost of a request is bounded before it runs.** All connections share the network thread, and one request can
cause a second of work. So each API has a size in bytes up to which its requests are *light*
(`barnabas.server.dispatch.ApiDispatcher.light_bytes`). A larger request goes to the bulk lane of the request channel,
in both policies. A handler that finds more work than the size suggests, such as records that decompress to a thousand
times their size, moves the request to the bulk lane itself (`RequestLocal.hand_over`).
"""

from __future__ import annotations

import sys
import threading
from enum import StrEnum

from barnabas.common.clock import Clock
from barnabas.common.errors import InvalidRequestError, UnsupportedVersionError
from barnabas.common.placement import Placement, anywhere, on_one_core
from barnabas.network.reactor.memory_pool import MemoryPool
from barnabas.network.server.plane import ConnectionContext, ProcessorHandle
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.headers import ParsedHeader
from barnabas.protocol.versions import VersionRange
from barnabas.server.api_version_manager import ApiVersionManager
from barnabas.server.dispatch import LIGHT_BYTES, RequestRunner
from barnabas.server.request import Request
from barnabas.server.request_channel import RequestChannel


class HandOff(StrEnum):
    """The policies for passing requests to handlers."""

    QUEUE = "queue"
    DIRECT = "direct"

    @classmethod
    def default(cls) -> HandOff:
        """Returns ``direct`` under the global interpreter lock, ``queue`` without it."""
        is_gil_enabled = getattr(sys, "_is_gil_enabled", None)
        return cls.DIRECT if is_gil_enabled is None or is_gil_enabled() else cls.QUEUE

    def default_placement(self) -> Placement:
        """Returns the default CPU placement of the request threads.

        With ``queue`` and the global interpreter lock, they are pinned to one core, because they only take turns. On a
        two-core machine that reached 0.40 of a bare loop's throughput, against 0.24 to 0.29 when spread by the kernel.
        """
        return on_one_core() if self is HandOff.QUEUE and HandOff.default() is HandOff.DIRECT else anywhere

    @property
    def default_network_threads(self) -> int:
        """Kafka's 3, or 1 for ``direct``: more threads would only compete for the interpreter lock."""
        return 1 if self is HandOff.DIRECT else 3


class DataPlane:
    """Creates requests for processors and submits them to handlers."""

    def __init__(
        self,
        channel: RequestChannel,
        runner: RequestRunner,
        versions: ApiVersionManager,
        clock: Clock,
        hand_off: HandOff | None = None,
    ) -> None:
        self.channel = channel
        self.hand_off = HandOff.default() if hand_off is None else hand_off
        self._runner = runner
        self._light_bytes = runner.apis.light_bytes
        self._inline = {api_key: self._light_bytes.get(api_key, LIGHT_BYTES) for api_key in runner.apis.inline_apis}
        self._times = channel.times
        self._locals = threading.local()
        self._versions = versions.enabled_apis
        self._served = frozenset(
            (api_key, version)
            for api_key, (lowest, highest) in self._versions.items()
            for version in range(lowest, highest + 1)
        )
        self.thread_started = runner.placement
        self.add_processor = channel.add_processor
        self.remove_processor = channel.remove_processor
        self.submit = self._submit_direct if self.hand_off is HandOff.DIRECT else self._submit_queued
        self._now = clock.nanoseconds

    def new_request(
        self,
        processor_id: int,
        context: ConnectionContext,
        header: ParsedHeader,
        payload: memoryview,
        pool: MemoryPool,
        received_ns: int,
    ) -> Request:
        if header[:2] not in self._served:
            self._check_served(header, self._versions.get(header.api_key))
        return Request(processor_id, context, header, payload, pool, received_ns, self._times)

    @staticmethod
    def _check_served(header: ParsedHeader, served: VersionRange | None) -> None:
        """Rejects an API or version that is not served; any ApiVersions version passes (errors are sent as v0)."""
        if served is None:
            raise InvalidRequestError(f"{header.api_key.title} is not enabled on this listener")
        if header.api_key is not ApiKey.API_VERSIONS:
            raise UnsupportedVersionError(
                f"{header.api_key.title} v{header.api_version}; versions {served} are served here"
            )

    def _submit_direct(self, requests: list[Request]) -> None:
        """Handles inline requests on this thread, in order, and queues the others for the pool.

        The requests of one list belong to different connections, so they may overtake each other. They must not
        overtake requests that were queued earlier.
        """
        inline = self._inline
        channel = self.channel
        if channel.requests or channel.callbacks:
            self._submit_queued(requests)
            return
        local = getattr(self._locals, "value", None)
        if local is None:
            local = self._locals.value = self._runner.new_local(inline=True)
        run = self._runner.run
        queued: list[Request] = []
        for request in requests:
            if request.size <= inline.get(request.api_key, -1):
                run(request, local)
            else:
                queued.append(request)
        if queued:
            self._submit_queued(queued)

    def _submit_queued(self, requests: list[Request]) -> None:
        """Sends bulk requests to the bulk lane and all others to the request queue."""
        light_bytes = self._light_bytes
        bulk = [request for request in requests if request.size > light_bytes.get(request.api_key, LIGHT_BYTES)]
        if bulk:
            self.channel.send_bulk(bulk)
            requests = [request for request in requests if request not in bulk]
        if requests:
            self.channel.send_requests(requests)


__all__ = ["DataPlane", "HandOff", "ProcessorHandle"]
