"""What the request log costs a broker.

A connection sends produce requests to a whole broker, with all that belongs to it: sockets, handler, log on disk. The
broker's log of requests is turned on and off meanwhile, as an operator would do it:

* ``off``: nobody is told of requests; what it is if nothing is configured;
* ``1 %``: one request in a hundred is written to ``__request_log``.
"""

from __future__ import annotations

import socket
import struct
import time
from typing import Final

from barnabas.embedded import EmbeddedBroker
from barnabas.protocol.framing import encode_request
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.records.builder import RecordBatchBuilder
from barnabas.telemetry.request_log import RequestLog
from benchmarks.measure import Row
from benchmarks.wire_client import PRODUCE_VERSION, WireClient

TOPIC: Final = "orders"
PIPELINED: Final = 20
REQUESTS: Final = 8_000
"""Of a round: about as many as come while the writer lets records wait for each other."""
ROUNDS: Final = 25
RATES: Final = {"off": 0.0, "1 %": 0.01}
_LENGTH: Final = struct.Struct(">i")


def run() -> list[Row]:
    with EmbeddedBroker() as broker:
        server = broker.server.broker
        assert server is not None
        assert server.telemetry is not None
        client = WireClient(broker.bootstrap_servers)
        client.create_topic(TOPIC)
        best = best_rates(server.telemetry.request_log, client.socket)
        client.close()
    case, unit = "produce with the request log", "requests/s"
    sampled = Row(case, "1 %", best["1 %"], unit, best["1 %"] / best["off"], "off", 0.97)
    return [sampled, Row(case, "off", best["off"], unit)]


def best_rates(log: RequestLog, connection: socket.socket) -> dict[str, float]:
    """Requests per second of processor time, of the best round with each rate.

    What is looked for is a difference of one or two in a hundred, and a machine that does something else besides
    differs by more than that from one round to the next: but only ever to the worse.
    """
    frames = _frame() * PIPELINED
    best = dict.fromkeys(RATES, 0.0)
    for number in range(ROUNDS + 2):
        for name, rate in RATES.items():
            log.sample_rate = rate
            started = time.process_time()
            for _ in range(REQUESTS // PIPELINED):
                connection.sendall(frames)
                _read_answers(connection)
            spent = time.process_time() - started
            if number >= 2:  # the first warm up, and have the topic made
                best[name] = max(best[name], REQUESTS / spent)
    return best


def _frame() -> bytes:
    builder = RecordBatchBuilder()
    builder.append(1_700_000_000_000, None, b"x" * 1_000)
    data = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=bytes(builder.close()))])
    return encode_request(ProduceRequest(acks=1, timeout_ms=1_000, topic_data=[data]), PRODUCE_VERSION, 1, "client")


def _read_answers(connection: socket.socket) -> None:
    """All answers are of the same size, so the first says how much there is to come."""
    data = bytearray()
    wanted = _LENGTH.size
    while len(data) < wanted:
        part = connection.recv(65_536)
        if not part:
            raise ConnectionError("the broker has closed the connection")
        data += part
        if len(data) >= _LENGTH.size:
            wanted = PIPELINED * (_LENGTH.size + _LENGTH.unpack_from(data)[0])
