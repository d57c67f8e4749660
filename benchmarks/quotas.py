"""What quotas cost those who have none.

The produce handler takes one request after the other, with everything around it but the sockets and the log: decoding,
authorization, the answer and its metrics. It is built in three ways:

* ``no managers``: with the stand-ins that know no quota;
* ``no quota``: with the managers of a broker, and nothing configured;
* ``a quota``: with a limit for the client that is far away, so that every request is measured.

The difference between the first two is smaller than what a machine differs from one second to the next. So what has to
be reached is in the number of instructions that the interpreter executes for a request, which is always the same; the
rates are there to see that it is no illusion.
"""

from __future__ import annotations

import gc
import sys
from collections import deque
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

from barnabas.broker.handlers.produce import ProduceHandler
from barnabas.common.clock import SYSTEM_CLOCK
from barnabas.common.errors import Errors
from barnabas.common.identifiers import Uuid
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.delta import MetadataDelta
from barnabas.metadata.image import EMPTY_IMAGE
from barnabas.metadata.provenance import MetadataProvenance
from barnabas.metrics.registry import Metrics
from barnabas.metrics.yammer.registry import MetricsRegistry
from barnabas.network.reactor.memory_pool import UNBOUNDED
from barnabas.network.server.endpoint import Endpoint, SecurityProtocol
from barnabas.network.server.plane import ConnectionContext
from barnabas.network.server.response import AnyResponse
from barnabas.protocol.framing import encode_request
from barnabas.protocol.headers import parse_request_header
from barnabas.protocol.internal.metadata import PartitionRecord, TopicRecord
from barnabas.protocol.message import Buffer
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.quota.config import QuotaConfig
from barnabas.quota.quota_entity import DEFAULT, QuotaEntity
from barnabas.quota.quota_factory import QuotaManagers
from barnabas.records.builder import RecordBatchBuilder
from barnabas.replica.fetch.fetch_session import TopicIdPartition
from barnabas.replica.results import ProduceCallback, ProduceResult
from barnabas.security.auth_helper import AuthHelper
from barnabas.server.request import Request
from barnabas.server.request_channel import RequestChannel
from barnabas.server.request_handler_helper import RequestHandlerHelper
from barnabas.server.request_local import RequestLocal
from barnabas.server.request_metrics import RequestTimes
from barnabas.server.throttling import NO_QUOTAS
from barnabas.server.throttling import QuotaManagers as AnyQuotas
from benchmarks.measure import Row, rates

REQUESTS = 500
ROUNDS = 61
TOPIC_ID = Uuid(bytes(15) + b"t")
VERSION = 13


class Drain:
    """A processor that takes answers and forgets them."""

    id = 0
    endpoint = Endpoint("PLAINTEXT", port=0)
    response_queue_size = 0

    def __init__(self) -> None:
        self._responses: deque[AnyResponse] = deque(maxlen=1)

    def enqueue_response(self, response: AnyResponse) -> bool:
        self._responses.append(response)
        return False

    def wakeup(self) -> None:
        """Nobody sleeps."""


class Appends:
    """A log that has everything at once."""

    def append_records(
        self,
        timeout_ms: int,  # noqa: ARG002 - the interface
        required_acks: int,  # noqa: ARG002
        entries: Mapping[TopicIdPartition, Buffer],
        callback: ProduceCallback,
        **_options: Any,
    ) -> None:
        callback({partition: ProduceResult(Errors.NONE, 1, -1, 0) for partition in entries})


class Broker:
    """A produce handler with those quotas."""

    def __init__(self, quotas: AnyQuotas) -> None:
        self._times = RequestTimes(MetricsRegistry(SYSTEM_CLOCK), SYSTEM_CLOCK)
        self._channel = RequestChannel(500, SYSTEM_CLOCK, self._times)
        self._channel.add_processor(Drain())
        helper = RequestHandlerHelper(self._channel, SYSTEM_CLOCK, quotas)
        cache = MetadataCache()
        delta = MetadataDelta(EMPTY_IMAGE)
        delta.replay(TopicRecord(name="t", topic_id=TOPIC_ID))
        delta.replay(PartitionRecord(topic_id=TOPIC_ID, partition_id=0, replicas=[1], isr=[1], leader=1))
        cache.set_image(delta.apply(MetadataProvenance(1, 1, 0, True)))
        self._handler = ProduceHandler(helper, AuthHelper(None), cache, Appends(), SYSTEM_CLOCK)
        self._local = RequestLocal(self._channel.send_callback)
        self._context = ConnectionContext("c", "127.0.0.1", "PLAINTEXT", SecurityProtocol.PLAINTEXT, False)
        self._frame = memoryview(_frame())

    def handle(self) -> int:
        """One request."""
        now, frame = SYSTEM_CLOCK.nanoseconds, self._frame
        request = Request(0, self._context, parse_request_header(frame), frame, UNBOUNDED, now(), self._times)
        request.request_dequeue_time_ns = now()
        self._handler.produce(request, self._local)
        return 1

    def __call__(self) -> int:
        return sum(self.handle() for _ in range(REQUESTS))


def _frame() -> bytes:
    builder = RecordBatchBuilder()
    builder.append(SYSTEM_CLOCK.milliseconds(), None, b"x" * 1_000)
    data = TopicProduceData(topic_id=TOPIC_ID, partition_data=[PartitionProduceData(index=0, records=builder.close())])
    return encode_request(ProduceRequest(acks=1, timeout_ms=1_000, topic_data=[data]), VERSION, 1, "client")[4:]


def instructions(work: Callable[[], int]) -> int:
    """How many instructions of the interpreter a piece of work takes."""
    count = 0

    def on_event(frame: FrameType, event: str, _argument: object) -> Callable[..., Any]:
        nonlocal count
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        count += event == "opcode"
        return on_event

    before = sys.gettrace()
    sys.settrace(on_event)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def run() -> list[Row]:
    def managers() -> QuotaManagers:
        return QuotaManagers.instantiate(QuotaConfig(), Metrics(), SYSTEM_CLOCK)

    without, with_quota = managers(), managers()
    for manager in (with_quota.produce, with_quota.request):
        manager.update_quota(QuotaEntity(None, DEFAULT), 1e15)
    contenders = {"no quota": Broker(without), "no managers": Broker(NO_QUOTAS), "a quota": Broker(with_quota)}
    gc.disable()  # or one contender pays for the garbage of another
    try:
        measured = rates(dict(contenders), ROUNDS)
        counted = {name: instructions(broker.handle) for name, broker in contenders.items()}
    finally:
        gc.enable()
        without.shutdown()
        with_quota.shutdown()
    case = "instructions for a produce request"
    rows = [Row(case, name, count, "instructions") for name, count in counted.items() if name != "no quota"]
    ratio = counted["no managers"] / counted["no quota"]
    ours = Row(case, "no quota", counted["no quota"], "instructions", ratio, "no managers", 0.98)
    return [ours, *rows, *(Row("produce handler", name, rate, "requests/s") for name, rate in measured.items())]
