"""The short way into a produce request: it finds what the codec finds, or nothing, and comes to the same answers."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.broker.handlers import produce as produce_module
from barnabas.broker.handlers.plain_produce import plain_produce as chosen
from barnabas.broker.handlers.produce import ProduceHandler
from barnabas.common.errors import ApiError, Errors, ProtocolError
from barnabas.network.response import SEND
from barnabas.protocol.framing import encode_request
from barnabas.protocol.headers import parse_request_header
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.replica.results import ProduceResult
from log_fixtures import client_batch
from network_fixtures import request_from
from unit.broker.handlers.data_bench import NOBODY, DataBench, T

try:
    from barnabas.broker.handlers._plain_produce import plain_produce
except ImportError:
    pytest.skip("the accelerators are not built", allow_module_level=True)

VERSIONS = range(3, 14)
BATCH = bytes(client_batch([b"value", b"another"]))
IDEMPOTENT = bytes(client_batch([b"value"] * 20, producer_id=7, epoch=0, sequence=5))
TRANSACTIONAL = bytes(client_batch([b"value"], producer_id=7, epoch=0, sequence=0, transactional=True))
OTHERS = [
    None,
    b"",
    BATCH[:16],
    BATCH[:23],
    BATCH[:-1],
    BATCH + b"x",
    BATCH + BATCH,
    TRANSACTIONAL,
    BATCH[:16] + b"\x01" + BATCH[17:],
    BATCH[:8] + bytes(4) + BATCH[12:],
]


def request_of(*partitions: tuple[int, bytes | None], topics: int = 1, **fields: Any) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=records) for index, records in partitions]
    return ProduceRequest(
        **{"acks": -1, "timeout_ms": 1500, **fields},
        topic_data=[TopicProduceData(name="t", topic_id=T, partition_data=data) for _ in range(topics)],
    )


def read(payload: bytes, version: int) -> Any:
    view = memoryview(payload)
    return plain_produce(view, parse_request_header(view).body_start, version)


def payload_of(body: ProduceRequest, version: int) -> bytes:
    return bytes(encode_request(body, version, 7, "test"))[4:]


def check(payload: bytes, version: int) -> bool:
    """Whether a request is plain; what is found then is what the codec finds."""
    found = read(payload, version)
    if found is None:
        return False
    view = memoryview(payload)
    body, end = ProduceRequest.decode_from(view, version, parse_request_header(view).body_start)
    assert end == len(view)
    (topic,) = body.topic_data
    data = [(partition.index, partition.records) for partition in topic.partition_data]
    assert found == (body.acks, body.timeout_ms, topic.topic_id if version >= 13 else topic.name, data)
    assert body.transactional_id is None
    return True


def test_the_compiled_one_is_used_unless_told_otherwise() -> None:
    assert (chosen is plain_produce) is (os.environ.get("BARNABAS_PURE") != "1")
    if chosen is not plain_produce:
        assert chosen(memoryview(payload_of(request_of((0, BATCH)), 13)), 0, 13) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_plain(version: int) -> None:
    flexible = version >= 9
    for count in (1, 2, 6, 126, 127, 200):
        partitions = [(index, (BATCH, IDEMPOTENT)[index % 2]) for index in range(count)]
        for acks in (-1, 0, 1, 7):
            assert (
                check(payload_of(request_of(*partitions, acks=acks, timeout_ms=2**31 - 1), version), version)
                is flexible
            )
    large = bytes(client_batch([bytes(300_000)]))
    assert check(payload_of(request_of((2**31 - 1, large), (-1, large)), version), version) is flexible
    long_name = request_of((0, BATCH))
    long_name.topic_data[0].name = "ü" * 200
    assert check(payload_of(long_name, version), version) is flexible


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_not(version: int) -> None:
    for records in OTHERS:
        assert read(payload_of(request_of((0, records)), version), version) is None
        assert read(payload_of(request_of((0, BATCH), (1, records)), version), version) is None
    for body in (
        request_of((0, BATCH), transactional_id="payments"),
        request_of((0, BATCH), transactional_id=""),
        request_of((0, BATCH), topics=2),
        request_of((0, BATCH), topics=0),
    ):
        assert read(payload_of(body, version), version) is None


@pytest.mark.parametrize("version", [9, 12, 13])
def test_whatever_is_damaged_is_left_to_the_codec_or_read_as_it_does(version: int) -> None:
    payload = payload_of(request_of((0, BATCH), (3, IDEMPOTENT)), version)
    start = parse_request_header(memoryview(payload)).body_start
    assert check(payload, version)
    for end in range(start, len(payload)):
        assert read(payload[:end], version) is None
    assert read(payload + b"\x00", version) is None
    source = random.Random(version)
    for at in range(start, len(payload)):
        damaged = bytearray(payload)
        damaged[at] ^= 1 << source.randrange(8)
        view = memoryview(bytes(damaged))
        if plain_produce(view, start, version) is not None:
            try:
                assert check(bytes(damaged), version)
            except ProtocolError as error:
                pytest.fail(f"byte {at}: {error}")
    for junk in (b"", b"\x00", b"\x00" * 8, b"\xff" * 40, bytes([0, 0, 1, 0, 0, 0, 1, 2]) + b"\xff" * 10):
        assert plain_produce(memoryview(junk), 0, version) is None
        assert plain_produce(memoryview(junk), 50, version) is None


# ------------------------------------------------------------------------------------------- the same answers


def requests() -> Iterator[ProduceRequest]:
    yield request_of((0, BATCH))
    yield request_of((0, BATCH), (1, IDEMPOTENT))
    yield request_of((1, IDEMPOTENT), (0, BATCH), acks=1)
    yield request_of((0, BATCH), (0, IDEMPOTENT))  # twice: the second one counts
    yield request_of((0, BATCH), acks=0)
    yield request_of((0, BATCH), acks=5)
    yield request_of((0, BATCH), (7, BATCH))
    yield request_of((-1, BATCH))
    yield request_of()
    for records in OTHERS:
        yield request_of((0, BATCH), (1, records))
    unknown = request_of((0, BATCH))
    unknown.topic_data[0].name, unknown.topic_data[0].topic_id = "nobody", NOBODY
    yield unknown


def outcome(bench: DataBench, body: ProduceRequest, version: int, client_id: str) -> Any:
    bench.replicas.produce_results = {"t-1": ProduceResult(Errors.NOT_LEADER_OR_FOLLOWER)}
    request = bench.request(body, version, client_id=client_id)
    handler = ProduceHandler(bench.helper, bench.auth, bench.cache, bench.replicas, bench.clock)
    try:
        bench.handle(handler, request)
    except ApiError as error:
        return repr(error)
    sent = [
        (response.kind, [bytes(piece) for piece in response._pieces] if response.kind is SEND else None)
        for response in bench.responses(request)
    ]
    replicas = bench.replicas
    return [(kind, pieces and b"".join(pieces)) for kind, pieces in sent], replicas.append_calls, replicas.appended


@pytest.mark.mechanism("R05")
@pytest.mark.parametrize("version", [8, 9, 12, 13])
@pytest.mark.parametrize("client_id", ["test", "__admin_client"])
def test_both_ways_lead_to_the_same_answers(version: int, client_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ways = []
    for way in (plain_produce, lambda *_: None):
        monkeypatch.setattr(produce_module, "plain_produce", way)
        ways.append([outcome(DataBench(), body, version, client_id) for body in requests()])
    assert ways[0] == ways[1]


@pytest.mark.mechanism("R13")
@pytest.mark.parametrize("version", [9, 13])
def test_a_request_that_waited_can_be_answered_with_an_error(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce_module, "plain_produce", plain_produce)
    bench = DataBench()
    bench.replicas.parks = True
    handler = ProduceHandler(bench.helper, bench.auth, bench.cache, bench.replicas, bench.clock)
    frame = encode_request(request_of((0, BATCH), (1, BATCH)), version, 7, "test")
    request = request_from(bytes(frame), bench.times)
    bench.handle(handler, request)
    assert request.buffer is None
    assert not bench.is_answered(request)

    def fail(*_: object) -> None:
        raise ValueError("no answer today")

    monkeypatch.setattr(handler, "_answer", fail)
    bench.replicas.complete()
    (topic,) = bench.answer(request).responses
    assert [partition.error_code for partition in topic.partition_responses] == [Errors.UNKNOWN_SERVER_ERROR] * 2
