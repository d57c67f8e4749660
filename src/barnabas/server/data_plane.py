"""The data plane: how a request gets from a processor to a handler.

That is a policy, because what is best depends on the interpreter. Under the global interpreter lock two threads never
run Python at the same time, so passing a request from one to the other buys no parallelism and costs two thread
switches, more than most requests cost themselves. Without that lock it is the other way round.

``queue``
    The documented way: every request goes through the request channel to the handler pool.
``direct``
    A processor handles a request itself, if the handler says that it is short and never waits, and if nothing is
    queued that came before. Everything else goes to the pool.

Muting, ordering, bounds, quotas, callbacks and the timeline are the same in both.
"""

from __future__ import annotations

import sys
import threading
from enum import StrEnum

from barnabas.common.clock import Clock
from barnabas.network.memory_pool import MemoryPool
from barnabas.network.plane import ConnectionContext, ProcessorHandle
from barnabas.protocol.headers import ParsedHeader
from barnabas.server.api_version_manager import ApiVersionManager
from barnabas.server.handler_pool import ApiRequestHandler, RequestRunner
from barnabas.server.request import Request
from barnabas.server.request_channel import RequestChannel
from barnabas.server.request_local import RequestLocal


class HandOff(StrEnum):
    """The two policies."""

    QUEUE = "queue"
    DIRECT = "direct"

    @classmethod
    def default(cls) -> HandOff:
        """``direct`` under the global interpreter lock, ``queue`` without it."""
        is_gil_enabled = getattr(sys, "_is_gil_enabled", None)
        return cls.DIRECT if is_gil_enabled is None or is_gil_enabled() else cls.QUEUE

    @property
    def default_network_threads(self) -> int:
        """Kafka's three, or one: more would only take the interpreter lock away from each other."""
        return 1 if self is HandOff.DIRECT else 3


class DataPlane:
    """Gives processors what they need to make requests and to have them handled."""

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
        self._apis: ApiRequestHandler = runner.apis
        self._times = channel.times
        self._locals = threading.local()
        self.is_enabled = versions.is_enabled
        self.add_processor = channel.add_processor
        self.remove_processor = channel.remove_processor
        self.submit = self._submit_direct if self.hand_off is HandOff.DIRECT else channel.send_requests
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
        return Request(processor_id, context, header, payload, pool, received_ns, self._times)

    def _submit_direct(self, requests: list[Request]) -> None:
        channel, runner = self.channel, self._runner
        queued: list[Request] = []
        for request in requests:
            if not queued and channel.is_idle and self._apis.may_run_inline(request):
                local = getattr(self._locals, "value", None)
                if local is None:
                    local = self._locals.value = RequestLocal()
                runner.run(request, local)
            else:
                queued.append(request)
        if queued:
            channel.send_requests(queued)


__all__ = ["DataPlane", "HandOff", "ProcessorHandle"]
