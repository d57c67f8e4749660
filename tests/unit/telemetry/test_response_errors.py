"""Errors found in answers that were sent."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from barnabas.common.errors import Errors
from barnabas.network.reactor.send import FileRegion
from barnabas.network.server.response import SendResponse
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.framing import LENGTH_SIZE
from barnabas.protocol.message import Response
from barnabas.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from barnabas.protocol.messages.envelope import EnvelopeResponse
from barnabas.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from barnabas.protocol.messages.heartbeat import HeartbeatResponse
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.telemetry.response_errors import errors_in_frame


def errors(response: Response, version: int, **options: Any) -> dict[str, int] | None:
    return errors_in_frame(response.api_key, version, response.frame_parts(version, 7), **options)


@pytest.mark.parametrize("version", [0, 4])
def test_an_error_at_the_top(version: int) -> None:
    assert errors(HeartbeatResponse(), version) == {}
    assert errors(HeartbeatResponse(error_code=Errors.ILLEGAL_GENERATION), version) == {"ILLEGAL_GENERATION": 1}


@pytest.mark.parametrize("version", [1, 7])
def test_errors_further_down_are_counted(version: int) -> None:
    codes = (0, Errors.NOT_LEADER_OR_FOLLOWER, Errors.NOT_LEADER_OR_FOLLOWER, Errors.UNKNOWN_TOPIC_OR_PARTITION)
    partitions = [ListOffsetsPartitionResponse(error_code=code) for code in codes]
    response = ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=partitions)])
    assert errors(response, version) == {"NOT_LEADER_OR_FOLLOWER": 2, "UNKNOWN_TOPIC_OR_PARTITION": 1}


@pytest.mark.parametrize("version", [4, 11, 12, 18])
@pytest.mark.parametrize("count", [1, 126, 127, 16_382, 16_383, 2_000_000])
def test_records_that_are_in_files_are_left_out(version: int, count: int) -> None:
    codes = (0, Errors.OFFSET_OUT_OF_RANGE, 0)
    partitions = [
        PartitionData(partition_index=number, error_code=code, records=b"" if code else FileRegion(0, 0, count))
        for number, code in enumerate(codes)
    ]
    response = FetchResponse(responses=[FetchableTopicResponse(partitions=partitions)])
    assert errors(response, version) == {"OFFSET_OUT_OF_RANGE": 1}


def test_the_response_inside_an_envelope_counts() -> None:
    inner = CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_code=Errors.TOPIC_ALREADY_EXISTS)])
    frame = b"".join(inner.frame_parts(7, 9))[LENGTH_SIZE:]
    pieces = EnvelopeResponse(response_data=frame).frame_parts(0, 7)
    assert errors_in_frame(ApiKey.CREATE_TOPICS, 7, pieces, envelope_version=0) == {"TOPIC_ALREADY_EXISTS": 1}
    refused = EnvelopeResponse(error_code=Errors.NOT_CONTROLLER).frame_parts(0, 7)
    assert errors_in_frame(ApiKey.CREATE_TOPICS, 7, refused, envelope_version=0) == {"NOT_CONTROLLER": 1}


def test_what_cannot_be_read_is_not_known() -> None:
    assert errors_in_frame(ApiKey.HEARTBEAT, 4, [b"\0\0\0\1"]) is None


class Slow:
    """A transport that takes a few bytes at a time."""

    send_whole: Any = None
    push: Any = None

    def __init__(self, step: int) -> None:
        self._step = step

    def send(self, data: Any) -> int:
        return min(self._step, len(data))

    def send_more(self, data: Any) -> int:
        return self.send(data)

    def sendmsg(self, buffers: Any) -> int:
        return min(self._step, sum(map(len, buffers)))

    def send_file(self, _fd: int, _position: int, count: int) -> int:
        return min(self._step, count)


def sent(pieces: list[Any], step: int) -> SendResponse:
    response = SendResponse(pieces, None)
    while response.remaining:
        response.write_to(Slow(step))
    return response


def test_the_pieces_of_a_response_are_known_after_it_was_sent() -> None:
    assert sent([b"abcdef"], 100).whole_pieces() == [b"abcdef"]
    assert sent([b"abcdef"], 2).whole_pieces() == [b"abcdef"]
    assert sent([b"abc", b"def"], 2).whole_pieces() == [b"abcdef"]
    large = [bytes(70_000), b"end"]
    assert sent(large, 30_000).whole_pieces() == large


def test_of_a_file_that_went_out_in_several_goes_they_are_not(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(bytes(100_000))
    fd = os.open(tmp_path / "f", os.O_RDONLY)
    try:
        whole = sent([b"ab", FileRegion(fd, 0, 100_000), b"c"], 100_000).whole_pieces()
        assert whole is not None
        assert [len(piece) for piece in whole] == [2, 100_000, 1]
        assert sent([b"ab", FileRegion(fd, 0, 100_000), b"c"], 30_000).whole_pieces() is None
        assert sent([b"ab", FileRegion(fd, 0, 100), b"c"], 30).whole_pieces() == [b"ab" + bytes(100) + b"c"]
    finally:
        os.close(fd)
