"""The short ways of Produce: the same bytes, and the same objects, as those of the generated codecs."""

from __future__ import annotations

import os
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from barnabas.common.errors import ProtocolError
from barnabas.protocol.compiler.decoding import compile_decoder
from barnabas.protocol.compiler.encoding import compile_encoder
from barnabas.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

try:
    from barnabas.protocol._produce_codec import RequestEncoder, ResponseDecoder
except ImportError:
    pytest.skip("the accelerators are not built", allow_module_level=True)

VERSIONS = range(3, 14)
FLEXIBLE = 9


class Taken:
    """A codec that counts what was left to it."""

    def __init__(self, codec: Callable[..., Any]) -> None:
        self.codec = codec
        self.count = 0

    def __call__(self, *args: Any) -> Any:
        self.count += 1
        return self.codec(*args)


def encoders(version: int) -> tuple[Any, Taken]:
    generated = Taken(compile_encoder(ProduceRequest, version))
    return RequestEncoder(ProduceRequest, TopicProduceData, PartitionProduceData, version, generated), generated


def decoders(version: int) -> tuple[Any, Taken]:
    generated = Taken(compile_decoder(ProduceResponse, version))
    return ResponseDecoder(
        ProduceResponse, TopicProduceResponse, PartitionProduceResponse, version, generated
    ), generated


def written(encode: Callable[..., Any], request: ProduceRequest) -> bytes | type[Exception]:
    parts: list[Any] = []
    try:
        encode(request, parts.append)
    except Exception as error:  # noqa: BLE001 - whatever the generated one raises
        return type(error)
    return b"".join(parts)


def plain(random: Random, partitions: int) -> ProduceRequest:
    sizes = [0, 1, 126, 127, 128, 16_382, 16_383, 70_000]
    rows = [
        PartitionProduceData(
            index=random.choice([0, 1, 127, 2**31 - 1, -1]),
            records=random.choice([bytes, bytearray, memoryview])(random.randbytes(random.choice(sizes))),
        )
        for _ in range(partitions)
    ]
    name = random.choice(["t", "", "ü" * 20, "n" * 249, "x" * 300])
    topic = TopicProduceData(name=name, topic_id=random.randbytes(16), partition_data=rows)  # type: ignore[arg-type]
    return ProduceRequest(
        acks=random.choice([-1, 0, 1, 2**15 - 1]),
        timeout_ms=random.choice([0, 30_000, 2**31 - 1, -5]),
        topic_data=[topic],
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_plain_requests(version: int) -> None:
    encode, generated = encoders(version)
    for seed in range(60):
        random = Random(seed)
        request = plain(random, random.choice([0, 1, 1, 1, 2, 6, 126, 127, 130]))
        assert written(encode, request) == written(generated.codec, request)
        parts: list[Any] = []
        encode(request, parts.append)
        for row in request.topic_data[0].partition_data:
            assert any(part is row.records for part in parts), "records are passed on, not copied"
    assert generated.count == (0 if version >= FLEXIBLE else 120)


def odd(request: ProduceRequest) -> list[Callable[[], object]]:
    """Changes that make a request another one."""
    (topic,) = request.topic_data
    row = topic.partition_data[0]

    def put(owner: Any, name: str, value: Any) -> Callable[[], object]:
        return lambda: setattr(owner, name, value)

    return [
        put(request, "transactional_id", "id"),
        put(request, "transactional_id", ""),
        put(request, "unknown_tagged_fields", {7: b"x"}),
        put(topic, "unknown_tagged_fields", {7: b"x"}),
        put(row, "unknown_tagged_fields", {7: b"x"}),
        put(request, "topic_data", []),
        put(request, "topic_data", [topic, topic]),
        put(request, "topic_data", None),
        put(request, "topic_data", (topic,)),
        put(topic, "partition_data", None),
        put(topic, "topic_id", b"short"),
        put(topic, "topic_id", None),
        put(topic, "name", "x" * 301),
        put(topic, "name", "\ud800"),
        put(topic, "name", None),
        put(row, "records", None),
        put(row, "records", memoryview(b"abcdefgh").cast("i")),
        put(row, "records", 7),
        put(row, "index", 2**31),
        put(row, "index", None),
        put(request, "acks", 2**15),
        put(request, "acks", "all"),
        put(request, "timeout_ms", -(2**31) - 1),
        lambda: delattr(row, "index"),
        lambda: delattr(request, "acks"),
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_other_requests_are_left_to_the_generated_one(version: int) -> None:
    encode, generated = encoders(version)
    count = len(odd(plain(Random(1), 2)))
    for number in range(count):
        request = plain(Random(number), 2)
        odd(request)[number]()
        assert written(encode, request) == written(generated.codec, request), number
    subclass = type("Subclass", (ProduceRequest,), {})
    assert isinstance(written(encode, subclass()), bytes)
    assert generated.count > 0


def answer(random: Random, *, usual: bool) -> ProduceResponse:
    def number(bits: int) -> int:
        return random.choice([0, 1, -1, (1 << bits - 1) - 1, -(1 << bits - 1), random.getrandbits(bits - 1)])

    def row() -> PartitionProduceResponse:
        made = PartitionProduceResponse(
            index=number(32),
            error_code=number(16),
            base_offset=number(64),
            log_append_time_ms=number(64),
            log_start_offset=number(64),
        )
        if not usual:
            dice = random.randrange(5)
            if dice == 0:
                made.record_errors = [
                    BatchIndexAndErrorMessage(batch_index=3, batch_index_error_message=random.choice([None, "no"]))
                ]
            elif dice == 1:
                made.error_message = random.choice(["", "sorry"])
            elif dice == 2:
                made.current_leader = LeaderIdAndEpoch(leader_id=1, leader_epoch=2)
            elif dice == 3:
                made.unknown_tagged_fields = {9: b"new"}
        return made

    made = ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=random.choice(["t", "", "ü" * 80]),
                topic_id=random.randbytes(16),  # type: ignore[arg-type]
                partition_responses=[row() for _ in range(random.choice([0, 1, 1, 2, 6, 130]))],
            )
            for _ in range(random.choice([0, 1, 1, 1, 2]))
        ],
        throttle_time_ms=number(32),
    )
    if not usual and random.random() < 0.3:
        made.node_endpoints = [NodeEndpoint(node_id=1, host="h", port=2)]
    return made


def outcome(decode: Callable[..., Any], data: Any, start: int, end: int) -> Any:
    try:
        return decode(data, start, end)
    except Exception as error:  # noqa: BLE001 - whatever the generated one raises
        return type(error)


def whole(version: int, usual: bool, seed: int) -> bytes:
    random = Random(seed)
    response = answer(random, usual=usual)
    if version < 10:
        response.node_endpoints = []
        for topic in response.responses:
            for row in topic.partition_responses:
                row.current_leader = None
    if version < FLEXIBLE:
        for topic in response.responses:
            for row in topic.partition_responses:
                row.unknown_tagged_fields = None
    return response.encode(version)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("usual", [True, False])
def test_responses(version: int, usual: bool) -> None:
    decode, generated = decoders(version)
    for seed in range(40):
        data = b"<<" + whole(version, usual, seed) + b">>"
        for kind in (bytes, bytearray, memoryview):
            found = decode(kind(data), 2, len(data) - 2)
            assert found == generated.codec(data, 2, len(data) - 2)
            assert found[1] == len(data) - 2
            assert repr(found) == repr(generated.codec(data, 2, len(data) - 2))
    if version < FLEXIBLE:
        assert generated.count == 120
    else:
        assert (generated.count == 0) is usual


@pytest.mark.parametrize("version", [9, 12, 13])
def test_damaged_responses(version: int) -> None:
    decode, generated = decoders(version)
    random = Random(version)
    for seed in range(40):
        data = whole(version, True, seed)[:300]
        for _ in range(30):
            broken = bytearray(data)
            for _ in range(random.randint(1, 3)):
                if broken:
                    broken[random.randrange(len(broken))] = random.choice(
                        [0, 1, 2, 127, 128, 255, random.getrandbits(8)]
                    )
            end = random.randint(0, len(broken))
            assert outcome(decode, broken, 0, end) == outcome(generated.codec, broken, 0, end)


def test_they_are_used_unless_told_otherwise() -> None:
    compiled = os.environ.get("BARNABAS_PURE") != "1"
    assert isinstance(ProduceRequest.encoder(13), RequestEncoder) is compiled
    assert isinstance(ProduceResponse.decoder(13), ResponseDecoder) is compiled


def test_what_is_wrong_is_explained() -> None:
    ProduceRequest.encoder(13)
    request = plain(Random(1), 1)
    request.acks = 2**15
    with pytest.raises(ProtocolError, match="acks"):
        request.encode(13)
    ProduceResponse.decoder(13)
    with pytest.raises(ProtocolError, match="ProduceResponse v13"):
        ProduceResponse.decode(whole(13, True, 3)[:-1], 13)
