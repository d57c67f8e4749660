"""Produce messages in every version of the API table: the generated codecs agree with the interpreter."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from barnabas.common.errors import ProtocolError
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.codec.interpreter import interpret_decode, interpret_encode
from barnabas.protocol.message import TooManyEntriesError
from barnabas.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

VERSIONS = range(ApiKey.PRODUCE.versions.lowest, ApiKey.PRODUCE.versions.highest + 1)
SIZES = [0, 1, 126, 127, 128, 16_382, 16_383, 16_384, 70_000]
"""Around the lengths whose varints take one, two and three bytes."""
COUNTS = [0, 1, 1, 2, 6, 126, 127, 130]
RECORD_ERRORS = 8


def request_of(random: Random, partitions: int) -> ProduceRequest:
    rows = [
        PartitionProduceData(
            index=random.choice([0, 1, 127, 2**31 - 1, -1]),
            records=random.choice([bytes, bytearray, memoryview])(random.randbytes(random.choice(SIZES))),
        )
        for _ in range(partitions)
    ]
    name = random.choice(["t", "", "ü" * 20, "n" * 249, "x" * 300])
    topic = TopicProduceData(name=name, topic_id=random.randbytes(16), partition_data=rows)  # type: ignore[arg-type]
    return ProduceRequest(
        transactional_id=random.choice([None, "", "payments"]),
        acks=random.choice([-1, 0, 1, 2**15 - 1]),
        timeout_ms=random.choice([0, 30_000, 2**31 - 1, -5]),
        topic_data=[topic] * random.choice([1, 1, 2]),
    )


def response_of(random: Random, partitions: int, version: int) -> ProduceResponse:
    def numbers() -> dict[str, Any]:
        return {
            "index": random.randrange(-1, 1000),
            "error_code": random.choice([0, 0, 0, 6, -1]),
            "base_offset": random.choice([-1, 0, 2**40, 2**63 - 1]),
        }

    rows = [PartitionProduceResponse(**numbers()) for _ in range(partitions)]
    if version >= RECORD_ERRORS and rows:
        rows[-1].error_message = random.choice([None, "", "x" * 200])
        rows[-1].record_errors = [BatchIndexAndErrorMessage(batch_index=3)] * random.choice([0, 1, 130])
    topic = TopicProduceResponse(name="t" * random.choice([1, 127, 128]), partition_responses=rows)
    return ProduceResponse(responses=[topic], throttle_time_ms=random.choice([0, 7]))


@pytest.mark.parametrize("version", VERSIONS)
def test_requests(version: int) -> None:
    for seed in range(60):
        random = Random(seed)
        request = request_of(random, random.choice(COUNTS))
        parts = ProduceRequest.encoder(version)(request, None)
        for topic in request.topic_data:
            for row in topic.partition_data:
                assert any(part is row.records for part in parts), "records are passed on, not copied"
        encoded = b"".join(parts)
        assert encoded == interpret_encode(request, version)
        assert ProduceRequest.decoder(version)(encoded, 0, len(encoded)) == interpret_decode(
            ProduceRequest, version, encoded
        )


@pytest.mark.parametrize("version", VERSIONS)
def test_responses(version: int) -> None:
    for seed in range(60):
        random = Random(seed)
        response = response_of(random, random.choice(COUNTS), version)
        encoded = b"".join(ProduceResponse.encoder(version)(response, None))
        assert encoded == interpret_encode(response, version)
        assert ProduceResponse.decoder(version)(encoded, 0, len(encoded)) == interpret_decode(
            ProduceResponse, version, encoded
        )


@pytest.mark.parametrize("version", VERSIONS)
def test_whatever_is_cut_off_is_a_protocol_error(version: int) -> None:
    encoded = request_of(Random(3), 3).encode(version)
    for end in [*range(100), len(encoded) - 1]:
        with pytest.raises(ProtocolError):
            ProduceRequest.decode(encoded[:end], version)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_reader_of_a_request_limits_its_entries(version: int) -> None:
    """For the interpreter of the first messages, and for the generated decoder."""
    topic = TopicProduceData(partition_data=[PartitionProduceData(index=number) for number in range(9)])
    encoded = ProduceRequest(topic_data=[topic]).encode(version)
    for _ in range(5):
        body, end = ProduceRequest.decode_from(encoded, version, 0, None, 10)
        assert (len(body.topic_data[0].partition_data), end) == (9, len(encoded))
        with pytest.raises(TooManyEntriesError):
            ProduceRequest.decode_from(encoded, version, 0, None, 9)
