"""Structs and messages as Python objects."""

from __future__ import annotations

import threading
from struct import error as struct_error
from typing import Any, ClassVar

import pytest

from barnabas import _kernels
from barnabas._kernels.pure import codec as pure_codec
from barnabas.common.errors import ProtocolError, UnsupportedVersionError
from barnabas.common.identifiers import ZERO_UUID, Uuid
from barnabas.protocol.codec.interpreter import interpret_decode
from barnabas.protocol.fields import array, int16, int32, records, string, struct, uuid
from barnabas.protocol.message import FEW, EncodeError, Message, Records, Request, Struct, TooManyEntriesError
from barnabas.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData


class Inner(Struct):
    number: int = int32(default=7)


class Sample(Message, versions="0-3", flexible="2+"):
    name: str = string(default="")
    added: int = int16("1+", default=-1)
    dropped: str = string("0-1", default="", ignorable=True)
    maybe: str | None = string("1+", default=None, nullable="2+")
    ids: list[int] = array("int32", default_factory=list)
    inner: Inner = struct(Inner, "3+", default_factory=Inner)
    topic_id: Uuid = uuid("3+", default=ZERO_UUID)
    data: Records | None = records("1+", default=None, nullable="1+")


def test_defaults_are_fresh() -> None:
    one, other = Sample(), Sample()
    one.ids.append(1)
    one.inner.number = 8
    assert other.ids == []
    assert other.inner == Inner(number=7)


def test_objects_have_slots_only() -> None:
    with pytest.raises(AttributeError):
        Sample().tpyo = 1  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="tpyo"):
        Sample(tpyo=1)  # type: ignore[call-arg]


def test_equality_and_repr() -> None:
    assert Sample(name="a") == Sample(name="a")
    assert Sample(name="a") != Sample(name="b")
    assert Sample(name="a", unknown_tagged_fields={5: b"x"}) != Sample(name="a")
    assert "name='a'" in repr(Sample(name="a"))
    assert "unknown_tagged_fields={5: b'x'}" in repr(Sample(unknown_tagged_fields={5: b"x"}))


def test_a_field_the_version_lacks_is_refused_or_dropped() -> None:
    """Losing a field silently changes what the request asks for; only a field declared ignorable may go."""
    with pytest.raises(UnsupportedVersionError, match=r"Sample v0 .*Sample\.added"):
        Sample(added=3).encode(0)
    with pytest.raises(UnsupportedVersionError, match=r"Sample v2 .*Sample\.inner"):
        Sample(inner=Inner(number=1)).encode(2)
    assert Sample.decode(Sample(dropped="gone").encode(2), 2).dropped == ""
    with pytest.raises(UnsupportedVersionError, match="Sample has no version 4; it has 0-3"):
        Sample().encode(4)


@pytest.mark.parametrize(
    ("broken", "version", "message"),
    [
        (Sample(name=None), 0, "Sample v0, name: must not be null in this version"),  # type: ignore[arg-type]
        (Sample(name=5), 0, "Sample v0, name: expected a string, got int"),  # type: ignore[arg-type]
        (Sample(ids=[1, 2**31]), 2, r"Sample v2, ids\[1\]: 2147483648 is not a value of type int32"),
        (Sample(added="x"), 1, "Sample v1, added: 'x' is not a value of type int16"),  # type: ignore[arg-type]
        (Sample(name="x" * 40_000), 1, "Sample v1, name: 40000 is too long for the length prefix"),
        (Sample(name="\ud800"), 2, "Sample v2, name: a string that cannot be written as UTF-8"),
        (Sample(topic_id=Uuid(b"short")), 3, "Sample v3, topic_id: a UUID has 16 bytes, not 5"),
        (Sample(inner=Sample()), 3, "Sample v3, inner"),  # type: ignore[arg-type]
        (Sample(maybe=None), 1, "Sample v1, maybe: must not be null in this version"),
    ],
)
def test_a_value_that_cannot_be_written(broken: Sample, version: int, message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        broken.encode(version)


def test_records_are_a_view_of_the_request() -> None:
    """No copy: the view shares memory with the buffer that the request came in."""
    batch = bytes(range(200))
    request = ProduceRequest(
        topic_data=[
            TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch)]),
        ]
    )
    buffer = bytearray(request.encode(9))
    decoded = ProduceRequest.decode(buffer, 9)
    view = decoded.topic_data[0].partition_data[0].records
    assert isinstance(view, memoryview)
    assert view == batch
    buffer[buffer.index(batch)] = 99
    assert view[0] == 99


def test_records_leave_as_the_object_they_are() -> None:
    class FileRegion:
        def __len__(self) -> int:
            return 1_000

    region = FileRegion()
    response = FetchResponse(responses=[])
    response.responses.append(FetchableTopicResponse(partitions=[PartitionData(records=region)]))
    parts = response.encode_parts(13)
    assert any(part is region for part in parts)
    before = b"".join(part for part in parts[: parts.index(region)])
    assert before.endswith(b"\xe9\x07")  # 1,000 + 1 as a varint


def test_trailing_bytes_are_an_error_only_when_asked() -> None:
    data = MetadataRequest(topics=[MetadataRequestTopic(name="a")]).encode(4) + b"extra"
    message, end = MetadataRequest.decode_from(data, 4)
    assert (message.topics, end) == ([MetadataRequestTopic(name="a")], len(data) - 5)
    with pytest.raises(ProtocolError, match="5 bytes left over after the message"):
        MetadataRequest.decode(data, 4)


def test_decoding_stays_inside_its_bounds() -> None:
    """A message inside a larger buffer may not read past its own end, even where bytes are there."""
    data = MetadataRequest(topics=[MetadataRequestTopic(name="topic")]).encode(12)
    with pytest.raises(ProtocolError):
        MetadataRequest.decode_from(data + bytes(100), 12, 0, len(data) - 1)


def test_a_tag_given_twice_is_refused() -> None:
    response = FetchResponse(unknown_tagged_fields={0: b"x"})
    from barnabas.protocol.messages.fetch import NodeEndpoint

    response.node_endpoints = [NodeEndpoint(node_id=1)]
    with pytest.raises(ProtocolError, match="tag 0 is given twice"):
        response.encode(16)


def test_a_codec_is_made_when_its_version_is_used() -> None:
    class Rare(Message, versions="0-1", flexible="1+"):
        name: str = string(default="")
        inner: list[Inner] = array(Inner, default_factory=list)

    assert (Rare._encoders, Rare._decoders) == ({}, {})
    data = Rare(name="once", inner=[Inner(number=5)]).encode(1)
    assert (list(Rare._encoders), list(Rare._decoders)) == ([1], [])
    assert Rare.decode(data, 1) == Rare(name="once", inner=[Inner(number=5)])
    assert (list(Rare._encoders), list(Rare._decoders)) == ([1], [1])
    with pytest.raises(UnsupportedVersionError):
        Rare().encode(2)
    with pytest.raises(UnsupportedVersionError):
        Rare.decode(b"", 2)


def test_a_frame_has_its_length_and_a_head() -> None:
    region = b"r" * 5_000
    response = FetchResponse(responses=[FetchableTopicResponse(partitions=[PartitionData(records=region)])])
    body = response.encode(13)
    parts = response.encode_parts(13, b"head")
    assert any(part is region for part in parts)
    assert b"".join(parts) == (len(body) + 4).to_bytes(4) + b"head" + body


def test_the_first_structs_are_made_as_all_others() -> None:
    class Made(Struct):
        number: int = int32(default=7)
        ids: list[int] = array("int32", default_factory=list)

    made = [Made(number=1, unknown_tagged_fields={9: b"x"}) for _ in range(FEW + 2)]
    assert all(one == made[0] for one in made)
    assert len({id(one.ids) for one in made}) == len(made)

    class Refused(Struct):
        number: int = int32(default=7)

    for _ in range(FEW + 2):
        with pytest.raises(TypeError, match="unexpected keyword argument 'wrong'"):
            Refused(wrong=1)  # type: ignore[call-arg]


def test_fields_can_be_given_by_position() -> None:
    class Placed(Struct):
        number: int = int32(default=7)
        ids: list[int] = array("int32", default_factory=list)

    class Refused(Struct):
        number: int = int32(default=7)

    refused: Any = Refused
    for _ in range(FEW + 2):
        assert Placed(1, [2]) == Placed(1, ids=[2]) == Placed(number=1, ids=[2])
        assert Placed(1).ids == []
        with pytest.raises(TypeError, match="takes from 1 to 2 positional arguments but 3 were given"):
            refused(1, 2)
        with pytest.raises(TypeError, match="got multiple values for argument 'number'"):
            refused(1, number=2)


def test_codecs_compile_once_under_many_threads() -> None:
    class Raced(Message, versions="0"):
        number: int = int32(default=0)

    found = []
    barrier = threading.Barrier(8)

    def use() -> None:
        barrier.wait()
        found.append((Raced.decoder(0), Raced.encoder(0)))

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1


# -- bounded requests


@pytest.mark.mechanism("R13")
@pytest.mark.parametrize("nested", [False, True], ids=["one array", "arrays within an array"])
def test_a_request_with_too_many_entries_is_refused_before_they_are_made(nested: bool) -> None:
    most = OffsetFetchRequest.max_entries
    each = most // 100 if nested else most
    topics = [
        OffsetFetchRequestTopics(name=str(number), partition_indexes=list(range(each)))
        for number in range(100 if nested else 1)
    ]
    body = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)]).encode(8)
    with pytest.raises(ProtocolError, match=f"more than {most} entries in one request"):
        OffsetFetchRequest.decode(body, 8)


class TaggedPart(Struct):
    declared: int = int32("1+", default=0, tag=0, tagged="1+")


class TaggedRequest(Request, versions="0-1", flexible="1+"):
    max_entries: ClassVar[int] = 10
    parts: list[TaggedPart] = array(TaggedPart, default_factory=list)


def tagged_request(parts: int, unknown_of_each: int, unknown: int = 0) -> bytes:
    def tags(count: int) -> dict[int, bytes]:
        return dict.fromkeys(range(7, 7 + count), b"")

    of_parts = [TaggedPart(declared=1, unknown_tagged_fields=tags(unknown_of_each)) for _ in range(parts)]
    return TaggedRequest(parts=of_parts, unknown_tagged_fields=tags(unknown)).encode(1)


@pytest.mark.mechanism("R13")
@pytest.mark.parametrize("codec", [pytest.param(pure_codec, id="pure"), pytest.param(_kernels.codec, id="kernel")])
def test_tagged_fields_beyond_the_declared_ones_are_entries(codec: Any) -> None:
    """An unknown tagged field takes 3 to 6 bytes on the wire and 66 in memory, and a request has up to 100 MB."""
    decode = codec.decoder(TaggedRequest, 1)
    for fitting in (tagged_request(10, 0), tagged_request(5, 1), tagged_request(1, 9), tagged_request(0, 0, 10)):
        message, end = decode(fitting, 0, len(fitting))
        assert end == len(fitting)
        assert interpret_decode(TaggedRequest, 1, fitting) == (message, end)
    for refused in (tagged_request(11, 0), tagged_request(5, 2), tagged_request(1, 10), tagged_request(0, 0, 11)):
        with pytest.raises(TooManyEntriesError):
            decode(refused, 0, len(refused))
        with pytest.raises(TooManyEntriesError, match="more than 10 entries in one request, with"):
            interpret_decode(TaggedRequest, 1, refused)


@pytest.mark.mechanism("R13")
@pytest.mark.parametrize("codec", [pytest.param(pure_codec, id="pure"), pytest.param(_kernels.codec, id="kernel")])
@pytest.mark.parametrize("version", [5, 6])
def test_a_string_of_a_request_has_as_many_bytes_as_in_older_versions(codec: Any, version: int) -> None:
    """As in Kafka. A group with a longer name could be joined, but its state could not be stored."""
    decode, encode = codec.decoder(JoinGroupRequest, version), codec.encoder(JoinGroupRequest, version)
    longest = JoinGroupRequest(group_id="\N{LATIN SMALL LETTER E WITH ACUTE}" * 16_383 + "e")
    data = b"".join(encode(longest, None))
    assert decode(data, 0, len(data)) == (longest, len(data))
    too_long = JoinGroupRequest(group_id=f"{longest.group_id}e")
    with pytest.raises((ProtocolError, struct_error)):
        encode(too_long, None)
    with pytest.raises(EncodeError, match=r"group_id: .*32768"):
        too_long.encode(version)
    if version == 6:
        data = b"\x81\x80\x02" + b"e" * 32_768 + data[3 + 32_767 :]
        with pytest.raises(ProtocolError):
            decode(data, 0, len(data))
        with pytest.raises(ProtocolError, match="group_id: a string of 32768 bytes, allowed are 32767, at byte 3"):
            JoinGroupRequest.decode(data, version)


def test_a_response_may_have_longer_strings() -> None:
    """One that was stored before requests were limited must be shown, and found in stored records."""
    topic = MetadataResponseTopic(name="t" * 40_000)
    body = MetadataResponse(topics=[topic]).encode(9)
    assert MetadataResponse.decode(body, 9).topics == [topic]


def test_a_member_cannot_name_thousands_of_protocols() -> None:
    def named(count: int) -> bytes:
        protocols = [JoinGroupRequestProtocol(name=f"p{number}") for number in range(count)]
        return JoinGroupRequest(group_id="g", protocols=protocols).encode(6)

    assert len(JoinGroupRequest.decode(named(1_000), 6).protocols) == 1_000
    with pytest.raises(ProtocolError, match="more than 1000 entries in one request"):
        JoinGroupRequest.decode(named(1_001), 6)


def test_as_many_entries_as_allowed_are_read() -> None:
    keys = [str(number) for number in range(FindCoordinatorRequest.max_entries)]
    body = FindCoordinatorRequest(coordinator_keys=keys).encode(4)
    assert FindCoordinatorRequest.decode(body, 4).coordinator_keys == keys


def test_a_response_may_have_any_number_of_entries() -> None:
    topics = [MetadataResponseTopic(name="t") for _ in range(60_000)]
    body = MetadataResponse(topics=topics).encode(9)
    assert len(MetadataResponse.decode(body, 9).topics) == 60_000
