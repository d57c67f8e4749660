"""Any bytes at all give a value or one ProtocolError, and nothing is allocated on the word of a length prefix."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.common.errors import ProtocolError, UnsupportedVersionError
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.codec.interpreter import interpret_decode
from barnabas.protocol.framing import FrameReader, encode_request
from barnabas.protocol.headers import parse_request_header
from barnabas.protocol.message import Message
from oracles.messages import all_messages, message_values, versions_of
from oracles.mutations import mutate

MESSAGES = list(all_messages().values())
TARGETS = [(cls, version) for cls in MESSAGES for version in versions_of(cls)]


def survives(cls: type[Message], version: int, data: bytes) -> None:
    """The compiled decoder and the interpreter agree on whether the bytes mean anything, and on what."""
    try:
        value = cls.decode_from(data, version)
    except ProtocolError as error:
        assert f"{cls.__name__} v{version}" in str(error)  # noqa: PT017 - an error is one of two good outcomes
        assert "malformed" not in str(error), "the interpreter could not say what was wrong"  # noqa: PT017
        with pytest.raises(ProtocolError):
            interpret_decode(cls, version, data)
    else:
        assert interpret_decode(cls, version, data) == value


def mutation_round(seed: int, cases: int) -> None:
    chance = random.Random(seed)
    for _ in range(cases):
        cls, version = chance.choice(TARGETS)
        *_, message = message_values(cls, version, chance.randint(1, 4))
        survives(cls, version, mutate(message.encode(version), chance))


@pytest.mark.parametrize("seed", range(4))
def test_mutated_messages(seed: int) -> None:
    mutation_round(seed, 750)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(100, 164))
def test_mutated_messages_at_length(seed: int, record_property: Callable[[str, object], None]) -> None:
    mutation_round(seed, 1_600)
    record_property("fuzz_cases", 1_600)


@settings(max_examples=400, deadline=None)
@given(target=st.sampled_from(TARGETS), data=st.binary(max_size=300))
def test_arbitrary_bytes(target: tuple[type[Message], int], data: bytes) -> None:
    survives(*target, data)


@settings(max_examples=400, deadline=None)
@given(data=st.binary(max_size=200))
def test_arbitrary_headers(data: bytes) -> None:
    try:
        header = parse_request_header(data)
    except (ProtocolError, UnsupportedVersionError):
        return
    assert header.body_start <= len(data)


@settings(max_examples=200, deadline=None)
@given(chunks=st.lists(st.binary(max_size=40), max_size=20))
def test_arbitrary_streams(chunks: list[bytes]) -> None:
    reader = FrameReader(max_frame_size=64)
    total = sum(map(len, chunks))
    try:
        frames = [frame for chunk in chunks for frame in reader.feed(chunk)]
    except ProtocolError:
        return
    assert sum(len(frame) + 4 for frame in frames) + reader.buffered == total


@pytest.mark.parametrize("count", [b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x08", b"\xfe\xff\xff\xff\x07"])
@pytest.mark.parametrize(
    ("api_key", "version", "before"),
    [(ApiKey.METADATA, 12, 0), (ApiKey.PRODUCE, 9, 7), (ApiKey.DELETE_TOPICS, 6, 0), (ApiKey.CREATE_TOPICS, 7, 0)],
)
def test_a_lying_count_allocates_nothing(api_key: ApiKey, version: int, before: int, count: bytes) -> None:
    """A frame of a dozen bytes that promises a billion elements is what takes other implementations down."""
    data = b"\0" * before + count + b"\0" * 8
    api_key.request.decoder(version)  # compile outside of the measurement
    with pytest.raises(ProtocolError):
        api_key.request.decode(data, version)
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            api_key.request.decode(data, version)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 * 1024


def test_the_error_says_what_and_where() -> None:
    request = ApiKey.METADATA.request
    data = bytearray(encode_request(request(), 12, 7, "me"))
    assert data
    with pytest.raises(
        ProtocolError,
        match="MetadataRequest v12, topics: an array of 119 elements needs at least 2142 bytes, "
        "1 are left, at byte 1 of 2",
    ):
        request.decode(b"\x78\x00", 12)
    with pytest.raises(ProtocolError, match=r"MetadataRequest v12, topics\[0\]\.name: a string that is not UTF-8"):
        request.decode(b"\x02" + bytes(16) + b"\x02\xff" + b"\0" + b"\0\0\0\0\0", 12)
