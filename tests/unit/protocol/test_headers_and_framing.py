"""Headers and frames."""

from __future__ import annotations

import pytest

from barnabas.common.errors import ProtocolError, UnsupportedVersionError
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.framing import FrameReader, encode_request, encode_response
from barnabas.protocol.headers import MOST_TAGS, RequestHeader, ResponseHeader, parse_request_header
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse


@pytest.mark.parametrize("version", range(14))
@pytest.mark.parametrize("client_id", ["me", "", None, "żółw"])
def test_a_request_is_found_again(version: int, client_id: str | None) -> None:
    request = MetadataRequest(topics=[])
    frame = encode_request(request, version, 77, client_id)
    (payload,) = FrameReader().feed(frame)
    header = parse_request_header(payload)
    assert header[:4] == (ApiKey.METADATA, version, 77, client_id)
    assert MetadataRequest.decode_from(payload, version, header.body_start) == (request, len(payload))


@pytest.mark.parametrize("client_id", ["me", "", None, "żółw"])
def test_a_request_begins_with_the_declared_header(client_id: str | None) -> None:
    for version in range(14):
        for correlation_id in (-(2**31), -1, 0, 2**31 - 1):
            request = MetadataRequest(topics=[])
            header = RequestHeader(
                request_api_key=ApiKey.METADATA,
                request_api_version=version,
                correlation_id=correlation_id,
                client_id=client_id,
            )
            payload = header.encode(ApiKey.METADATA.request_header_version(version)) + request.encode(version)
            frame = encode_request(request, version, correlation_id, client_id)
            assert frame == len(payload).to_bytes(4, "big") + payload


def test_the_fast_header_reader_is_the_declared_header() -> None:
    for key in ApiKey:
        for version in range(key.versions.lowest, key.versions.highest + 1):
            header = RequestHeader(
                request_api_key=key, request_api_version=version, correlation_id=-5, client_id="client"
            )
            data = header.encode(key.request_header_version(version))
            assert parse_request_header(data + b"body") == (key, version, -5, "client", len(data))


def test_tagged_fields_of_the_header_are_stepped_over() -> None:
    header = RequestHeader(
        request_api_key=3, request_api_version=12, client_id="c", unknown_tagged_fields={0: b"abc", 300: b"x" * 200}
    )
    data = header.encode(2)
    assert parse_request_header(data).body_start == len(data)


def test_a_header_has_a_limited_number_of_tagged_fields() -> None:
    """23 MB of them kept a network thread busy for 4 s."""

    def tagged(count: int) -> bytes:
        tags = dict.fromkeys(range(count), b"")
        return RequestHeader(request_api_key=3, request_api_version=12, unknown_tagged_fields=tags).encode(2)

    data = tagged(MOST_TAGS)
    assert parse_request_header(data).body_start == len(data)
    for refused in (tagged(MOST_TAGS + 1), tagged(1_000)):
        with pytest.raises(ProtocolError, match="tagged fields; at most 100 are allowed"):
            parse_request_header(refused)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "a request of 0 bytes is too short for its header"),
        (b"\0\x03\0\x04\0\0\0\x01\0", "too short"),
        (b"\0\x03\0\x04\0\0\0\x01\0\x05abc", "a client id of 5 bytes at byte 10, the request has 13"),
        (b"\0\x03\0\x04\0\0\0\x01\xff\xfeabc", "a client id of -2 bytes"),
        (b"\0\x03\0\x04\0\0\0\x01\0\x02\xc3\x28", "the client id is not UTF-8"),
        (b"\0\x03\0\x0c\0\0\0\x01\xff\xff", "broken tagged fields"),
        (b"\0\x03\0\x0c\0\0\0\x01\xff\xff\x02\0\x01", "broken tagged fields"),
    ],
)
def test_broken_headers(data: bytes, message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        parse_request_header(data)


def test_an_unknown_api_gets_no_response() -> None:
    with pytest.raises(UnsupportedVersionError, match="unknown API key 4242"):
        parse_request_header((4242).to_bytes(2) + bytes(20))


def test_a_version_from_the_future_is_still_parsed() -> None:
    """An ApiVersions request of a newer client must reach the handler, which answers it with version 0."""
    frame = encode_request(ApiVersionsRequest(client_software_name="x", client_software_version="9"), 4, 1, "c")
    data = bytearray(frame[4:])
    data[2:4] = (99).to_bytes(2)
    assert parse_request_header(data).api_version == 99


def test_response_headers() -> None:
    frame = encode_response(MetadataResponse(), 12, 9)
    (payload,) = FrameReader().feed(frame)
    header, start = ResponseHeader.decode_from(payload, 1)
    assert header.correlation_id == 9
    assert MetadataResponse.decode_from(payload, 12, start)[1] == len(payload)
    # ApiVersions keeps the old header in every version.
    (payload,) = FrameReader().feed(encode_response(ApiVersionsResponse(), 4, 9))
    _, start = ResponseHeader.decode_from(payload, 0)
    assert ApiVersionsResponse.decode_from(payload, 4, start)[1] == len(payload)


def test_the_size_of_a_response_counts_every_part() -> None:
    parts = MetadataResponse(cluster_id="x" * 300).frame_parts(12, 1)
    assert int.from_bytes(parts[0][:4]) == sum(map(len, parts)) - 4


def test_frames_byte_by_byte() -> None:
    frames = [b"", b"a", b"bc" * 100]
    stream = b"".join(len(frame).to_bytes(4) + frame for frame in frames)
    reader = FrameReader()
    got = [frame for byte in stream for frame in reader.feed(bytes((byte,)))]
    assert got == frames
    assert reader.buffered == 0


@pytest.mark.parametrize("size", [-1, 101, 2**31 - 1])
def test_a_frame_of_a_size_that_cannot_be(size: int) -> None:
    reader = FrameReader(max_frame_size=100)
    assert list(reader.feed(b"\0\0\0\x01a")) == [b"a"]
    with pytest.raises(ProtocolError, match=f"a frame of {size} bytes; allowed are 0 to 100"):
        list(reader.feed(size.to_bytes(4, signed=True)))
