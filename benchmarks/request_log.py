"""What the request log costs a broker.

A connection sends produce requests to a whole broker, with all that belongs to it: sockets, handler, log on disk. The
broker's log of requests is turned on and off meanwhile, as an operator would do it:

* ``off``: nobody is told of requests; what it is if nothing is configured;
* ``1 %``: one request in a hundred is written to ``__request_log``.

What is looked for is a difference of one in a hundred or less, and a machine that does something else besides differs
by ten from one second to the next. So both take turns in slices of some tenth of a second, in changing order. What a
round of such slices takes is the sum of its slices, each of them the median of that slice in all rounds: what somebody
else did in the middle of a few slices does not count. What was taken is written at the end of each round, on a thread
of the broker and while requests go on, so that it falls into a slice with the log on. That is twice as often as a
broker does it by itself, which is once a second.

The work itself is told in instructions of the interpreter, which are always the same number.
"""

from __future__ import annotations

import socket
import statistics
import struct
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from barnabas.broker.node.node_telemetry import NodeTelemetry
from barnabas.common.scheduler import Scheduler
from barnabas.embedded import EmbeddedBroker
from barnabas.protocol.framing import encode_request
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.records.builder import RecordBatchBuilder
from barnabas.telemetry.request_log import RequestLog
from benchmarks.measure import Row
from benchmarks.quotas import instructions
from benchmarks.wire_client import PRODUCE_VERSION, WireClient

TOPIC: Final = "orders"
PIPELINED: Final = 20
REQUESTS: Final = 1_600
"""Of a slice."""
SLICES: Final = 5
"""Of a round, with the log on and as many without."""
ROUNDS: Final = 25
WARM_UP: Final = 1
"""The first round has the topic made."""
RATES: Final = {"off": 0.0, "1 %": 0.01}
WRITE_AT: Final = 0.5
"""The part of the last slice after which what was taken is written."""
_LENGTH: Final = struct.Struct(">i")


def run() -> list[Row]:
    with EmbeddedBroker() as broker:
        server = broker.server.broker
        assert server is not None
        telemetry = server.telemetry
        assert telemetry is not None
        client = WireClient(broker.bootstrap_servers)
        client.create_topic(TOPIC)
        rounds = Rounds(telemetry, server.scheduler, client.socket)
        rounds.run()
        counted = count_instructions(telemetry.request_log, rounds.one_request)
        client.close()
    rows = []
    for case, seconds, target in (
        ("produce with the request log, by processor time", rounds.cpu_seconds, 0.97),
        ("produce with the request log, by the clock", rounds.wall_seconds, None),
    ):
        off, on = seconds["off"].median, seconds["1 %"].median
        rows.append(Row(case, "1 %", SLICES * REQUESTS / on, "requests/s", off / on, "off", target))
        rows.append(Row(case, "off", SLICES * REQUESTS / off, "requests/s"))
    case = "instructions for a request on its way out"
    return [*rows, *(Row(case, name, count, "instructions") for name, count in counted.items())]


class Took:
    """What the slices of all rounds took."""

    def __init__(self) -> None:
        self.slices: list[list[float]] = [[] for _ in range(SLICES)]

    @property
    def median(self) -> float:
        return sum(statistics.median(seconds) for seconds in self.slices)


class Rounds:
    """Rounds in turns, and what they took."""

    def __init__(self, telemetry: NodeTelemetry, scheduler: Scheduler, connection: socket.socket) -> None:
        self._telemetry = telemetry
        self._scheduler = scheduler
        self._connection = connection
        self._frame = _frame()
        self._frames = self._frame * PIPELINED
        self.cpu_seconds = {name: Took() for name in RATES}
        self.wall_seconds = {name: Took() for name in RATES}

    def run(self) -> None:
        for number in range(WARM_UP + ROUNDS):
            self._round(is_counted=number >= WARM_UP)

    def _round(self, *, is_counted: bool) -> None:
        for number in range(SLICES):
            for name in list(RATES) if number % 2 else reversed(RATES):
                write = RATES[name] > 0 and number == SLICES - 1
                cpu, wall = self._slice(RATES[name], write=write)
                if is_counted:
                    self.cpu_seconds[name].slices[number].append(cpu)
                    self.wall_seconds[name].slices[number].append(wall)

    def _slice(self, rate: float, *, write: bool) -> tuple[float, float]:
        self._telemetry.request_log.sample_rate = rate
        written = threading.Event()

        def flush() -> None:
            self._telemetry.flush()
            written.set()

        cpu, wall = time.process_time(), time.perf_counter()
        self._send(int(REQUESTS * WRITE_AT))
        if write:
            self._scheduler.schedule("write", flush)
        self._send(REQUESTS - int(REQUESTS * WRITE_AT))
        if write:
            written.wait()
        return time.process_time() - cpu, time.perf_counter() - wall

    def _send(self, requests: int) -> None:
        for _ in range(requests // PIPELINED):
            self._connection.sendall(self._frames)
            _read_answers(self._connection, PIPELINED)

    def one_request(self) -> None:
        self._connection.sendall(self._frame)
        _read_answers(self._connection, 1)


def count_instructions(log: RequestLog, send: Callable[[], object]) -> dict[str, int]:
    """What the recorder of the metrics does, without the log, passing over a request, and taking one."""
    times: Any = log._times
    ended: list[tuple[Any, ...]] = []
    times.listener, times.untold = lambda *arguments: ended.append(arguments), 0
    send()
    request, response, _ = ended[0]
    counted = {}
    for name, rate, untold in (("off", 0.0, 0), ("1 %, passed over", 0.01, 1), ("1 %, taken", 0.01, 0)):
        log.sample_rate = rate
        times.untold = untold
        counted[name] = instructions(lambda: times.record(request, response) or 0)
    log.sample_rate = 0.0
    return counted


def _frame() -> bytes:
    builder = RecordBatchBuilder()
    builder.append(1_700_000_000_000, None, b"x" * 1_000)
    data = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=bytes(builder.close()))])
    return encode_request(ProduceRequest(acks=1, timeout_ms=1_000, topic_data=[data]), PRODUCE_VERSION, 1, "client")


def _read_answers(connection: socket.socket, answers: int) -> None:
    """All answers are of the same size, so the first says how much there is to come."""
    data = bytearray()
    wanted = _LENGTH.size
    while len(data) < wanted:
        part = connection.recv(65_536)
        if not part:
            raise ConnectionError("the broker has closed the connection")
        data += part
        if len(data) >= _LENGTH.size:
            wanted = answers * (_LENGTH.size + _LENGTH.unpack_from(data)[0])
