"""One connection: requests from any split of bytes, buffers that grow with what arrives, a pool that may refuse."""

from __future__ import annotations

import itertools
import random
import struct
import tracemalloc
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas._kernels import is_compiled
from barnabas._kernels.channel_state import (
    FIRST_ALLOCATION,
    GROWING,
    GROWN,
    LARGE,
    MOST_SPARES,
    PIECE,
    READ_AHEAD,
    ROOMY,
    SPARES_FOR,
    UNSEEN_ALLOCATION,
    WHOLE_ALLOCATION,
    with_room_to_grow,
)
from barnabas.common.errors import AuthenticationError
from barnabas.network.reactor.channel import (
    ANONYMOUS,
    ChannelState,
    InvalidReceiveError,
    KafkaChannel,
    is_ready,
    prepare,
    write,
)
from barnabas.network.reactor.memory_pool import UNBOUNDED, MemoryPool, SimpleMemoryPool
from barnabas.network.reactor.poller import WRITE
from barnabas.network.reactor.send import NetworkSend
from barnabas.network.reactor.spare_buffers import SpareBuffers
from barnabas.records.columns.arrow import decode_batches, encode_batch
from network_fixtures import ChunkTransport

MAX_SIZE = 3 << 20


def framed(*payloads: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(payload)) + payload for payload in payloads)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted({place % (len(data) + 1) for place in places}), len(data)]
    return [data[start:stop] for start, stop in itertools.pairwise(edges) if start < stop]


def make(transport: ChunkTransport, pool: MemoryPool = UNBOUNDED, max_size: int = MAX_SIZE) -> KafkaChannel:
    return KafkaChannel("c", transport, max_size, pool, ANONYMOUS)


def pool_of(size: int = MAX_SIZE) -> SimpleMemoryPool:
    return SimpleMemoryPool(size, size)


def read(channel: KafkaChannel) -> bytes | None:
    payload = channel.read()
    return None if payload is None else bytes(payload)


def read_all(channel: KafkaChannel, attempts: int, requests: list[bytes] | None = None) -> list[bytes]:
    """Reads that often, as a selector would: whenever something has arrived or is left over."""
    requests = [] if requests is None else requests
    for _ in range(attempts):
        payload = read(channel)
        if payload is not None:
            requests.append(payload)
    return requests


# ---------------------------------------------------------------------------------------------------- N06

PAYLOADS = st.lists(st.one_of(st.binary(max_size=60), st.sampled_from([b"", b"y" * 300])), max_size=6)


@pytest.mark.mechanism("N06")
@given(PAYLOADS, st.lists(st.integers(0, 2000), max_size=12), st.booleans())
def test_requests_come_out_of_any_split_of_their_bytes(payloads: list[bytes], places: list[int], bounded: bool) -> None:
    data = framed(*payloads)
    transport = ChunkTransport(cut(data, places))
    pool = pool_of() if bounded else UNBOUNDED
    channel = make(transport, pool)
    assert read_all(channel, 2 * len(transport.chunks) + 3 * len(payloads) + 2) == payloads
    assert channel.bytes_received == len(data)
    assert not channel.has_bytes_buffered
    if bounded:
        assert pool.available == pool.size - sum(map(len, payloads)), "what was handed out is not back yet"


@pytest.mark.mechanism("N06")
@pytest.mark.parametrize("bounded", [False, True], ids=["unbounded", "bounded"])
@pytest.mark.parametrize("size", [FIRST_ALLOCATION - 1, FIRST_ALLOCATION, FIRST_ALLOCATION + 1, MAX_SIZE, READ_AHEAD])
def test_a_large_request_is_put_together_from_what_arrives(size: int, bounded: bool) -> None:
    payload = bytes(range(251)) * (size // 251) + b"\7" * (size % 251)
    data = framed(payload, b"after")
    transport = ChunkTransport([data[start : start + 300_001] for start in range(0, len(data), 300_001)])
    channel = make(transport, pool_of(2 * MAX_SIZE) if bounded else UNBOUNDED)
    assert read_all(channel, 40) == [payload, b"after"]


@pytest.mark.mechanism("N06")
def test_of_a_large_request_a_good_part_is_waited_for_at_once() -> None:
    data = framed(bytes(2 * PIECE))
    transport = ChunkTransport([data[:PIECE], data[PIECE : PIECE + 1000], data[PIECE + 1000 :]])
    channel = make(transport, max_size=2 * PIECE)
    waited_for = []
    while (payload := channel.read()) is None:
        waited_for.append(transport.expected)
    assert waited_for == [PIECE, len(data) - PIECE - 1000]
    assert transport.expected == 1, "the next request may be a small one"
    assert len(payload) == 2 * PIECE


class PlainChunks(ChunkTransport):
    """One of which a short read says that there is no more, as of a socket; counts the reads."""

    reads_all = True

    def __init__(self, chunks: list[bytes]) -> None:
        super().__init__(chunks)
        self.reads = 0

    def _part(self, size: int) -> bytes:
        self.reads += 1
        self._blocked_next = False
        return super()._part(size)


@pytest.mark.mechanism("N06")
@pytest.mark.parametrize("is_client", [True, False])
def test_nothing_is_read_behind_a_short_read_of_a_large_request(is_client: bool) -> None:
    payload = random.Random(1).randbytes(5 * LARGE)
    data = framed(payload)
    lengths = (READ_AHEAD, 70_000, 1, LARGE, len(data))
    edges = [0, *itertools.accumulate(lengths)]
    transport = PlainChunks([data[start:stop] for start, stop in itertools.pairwise(edges)])
    channel = make(transport)
    channel.spares = SpareBuffers() if is_client else None
    received, waits = None, 0
    while received is None:
        received = channel.read()
        if received is None:
            waits += 1
            assert transport.expected == min(len(data) - channel.bytes_received, PIECE)
    assert received == payload
    assert transport.expected == 1
    if is_client:  # a server's buffer grows, and what fills it is no short read
        assert (transport.reads, waits) == (len(lengths), len(lengths) - 2)


@pytest.mark.mechanism("N06")
def test_a_small_request_is_waited_for_as_usual() -> None:
    data = framed(bytes(LARGE - 1))
    transport = ChunkTransport([data[:100], data[100:]])
    channel = make(transport)
    assert channel.read() is None
    assert transport.expected == 1


def large(fill: bytes, size: int = LARGE) -> list[bytes]:
    data = framed(fill * size)
    return [data[:READ_AHEAD], data[READ_AHEAD:]]


def split(data: bytes) -> list[bytes]:
    return [data[:READ_AHEAD], data[READ_AHEAD:]] if len(data) > READ_AHEAD else [data]


def receive(channel: KafkaChannel, transport: ChunkTransport, chunks: list[bytes]) -> memoryview:
    transport.chunks += chunks
    while (payload := channel.read()) is None:
        assert transport.chunks
    return payload


def test_a_large_buffer_is_used_again_when_nobody_looks_at_it_any_more() -> None:
    transport = ChunkTransport()
    channel = make(transport)
    channel.spares = SpareBuffers()
    first = receive(channel, transport, large(b"a", LARGE + 500))
    second = receive(channel, transport, large(b"b"))
    assert bytes(first) == b"a" * (LARGE + 500), "it is still looked at"
    assert second.obj is not first.obj
    freed, kept = first.obj, first[5:10]
    first.release()
    third = receive(channel, transport, large(b"c"))
    assert third.obj is not freed, "there is a part of it left"
    assert bytes(kept) == b"aaaaa"
    kept.release()
    fourth = receive(channel, transport, large(b"d"))
    assert fourth.obj is freed
    assert fourth == b"d" * LARGE, "and nothing of what was there before"
    assert (bytes(second), bytes(third)) == (b"b" * LARGE, b"c" * LARGE)
    fourth.release()
    longer = receive(channel, transport, large(b"e", 3 * LARGE))
    assert longer.obj is not freed, "it does not fit"
    assert longer == b"e" * (3 * LARGE)
    assert receive(channel, transport, large(b"f", LARGE + 600)).obj is freed, "there was some room to spare"


def test_the_buffer_that_was_let_go_of_last_is_used_first() -> None:
    transport = ChunkTransport()
    channel = make(transport)
    channel.spares = SpareBuffers()
    held = [receive(channel, transport, large(b"%d" % number)) for number in range(3)]
    buffers = [view.obj for view in held]
    for view in held:
        view.release()
    for fill in (b"x", b"y", b"z"):
        assert receive(channel, transport, large(fill)).obj is buffers[-1]


def test_a_small_part_of_a_large_buffer_is_not_used() -> None:
    transport = ChunkTransport()
    channel = make(transport, max_size=1 << 24)
    channel.spares = SpareBuffers()
    buffer = receive(channel, transport, large(b"a", 2 * ROOMY * LARGE)).obj
    assert isinstance(buffer, bytearray)
    assert len(buffer) >= 2 * ROOMY * LARGE
    small = receive(channel, transport, large(b"b", LARGE))
    assert small.obj is not buffer, "who keeps it would keep all of that"
    assert isinstance(small.obj, bytearray)
    assert len(small.obj) < 2 * LARGE
    assert receive(channel, transport, large(b"c", 9 * LARGE)).obj is buffer


def test_large_responses_may_become_larger() -> None:
    """Memory that the first one has touched is there for the next one, which is twice as large."""
    transport = ChunkTransport()
    channel = make(transport, max_size=1 << 24)
    channel.spares = SpareBuffers()
    buffer = receive(channel, transport, large(b"a", GROWING)).obj
    assert receive(channel, transport, large(b"b", 2 * GROWING)).obj is buffer
    assert receive(channel, transport, large(b"c", GROWN)).obj is buffer
    assert with_room_to_grow(GROWING - 1) < 2 * GROWING
    assert with_room_to_grow(2 * GROWN) >= 2 * GROWN


def test_a_client_gets_a_buffer_for_the_whole_response_at_once_and_a_server_does_not() -> None:
    size = 5 * FIRST_ALLOCATION
    data = framed(bytes(size))
    for is_client in (True, False):
        transport = ChunkTransport([data[:READ_AHEAD]])
        channel = make(transport, max_size=size)
        channel.spares = SpareBuffers() if is_client else None
        assert channel.read() is None
        assert channel._payload is not None
        assert (len(channel._payload) >= size) is is_client
        first = channel._payload
        assert receive(channel, transport, [data[READ_AHEAD:]]) == bytes(size)
        assert not channel.spares or channel.spares == [first]


def test_the_buffer_of_a_huge_response_is_not_kept() -> None:
    size = WHOLE_ALLOCATION + 1
    transport = ChunkTransport()
    channel = make(transport, max_size=size)
    channel.spares = SpareBuffers()
    assert len(receive(channel, transport, split(struct.pack(">i", size) + bytes(size)))) == size
    assert channel.spares == []


@pytest.mark.parametrize("seed", range(4))
def test_what_is_looked_at_is_never_received_into(seed: int) -> None:
    """Answers of all sizes, held for as long as it pleases, whole or in parts."""
    source = random.Random(seed)
    transport = ChunkTransport()
    channel = make(transport, max_size=1 << 24)
    channel.spares = SpareBuffers()
    held: list[tuple[memoryview, bytes]] = []
    for _ in range(40):
        size = source.choice((7, 40_000, LARGE - 1, LARGE, LARGE + 999, 2 * LARGE, 3 * LARGE, 9 * LARGE))
        payload = source.randbytes(97) * (size // 97) + bytes(size % 97)
        view = receive(channel, transport, split(framed(payload)))
        assert bytes(view) == payload
        if source.random() < 0.6:
            first, last = sorted((source.randrange(size), source.randrange(size)))
            held.append((view[first : last + 1], payload[first : last + 1]))
        del view
        while len(held) > source.randrange(1, 8):
            held.pop(source.randrange(len(held)))
        assert all(bytes(kept) == expected for kept, expected in held)


def test_a_table_of_views_keeps_its_buffer_from_being_used_again() -> None:
    table = pa.table({"value": pa.array([b"%05d" % number * 200 for number in range(400)])})
    data = bytes(encode_batch(values=table.column("value"), timestamps=0))
    chunks = [framed(data)[:READ_AHEAD], framed(data)[READ_AHEAD:]]
    transport = ChunkTransport()
    channel = make(transport)
    channel.spares = SpareBuffers()
    payload = receive(channel, transport, list(chunks))
    buffer = payload.obj
    views = decode_batches(payload, binary_type="binary_view")
    payload.release()
    row = views.slice(399)
    assert [receive(channel, transport, large(b"x", len(data))).obj is buffer for _ in range(3)] == [False] * 3
    assert views.column("value").cast(pa.binary()).to_pylist() == table.column("value").to_pylist()
    del views
    assert receive(channel, transport, large(b"y", len(data))).obj is not buffer
    assert row.column("value").to_pylist() == [b"00399" * 200]
    del row
    assert buffer in channel.spares, "and now it may"
    held = [receive(channel, transport, large(b"z", len(data)))]
    while held[-1].obj is not buffer:
        assert buffer in channel.spares
        held.append(receive(channel, transport, large(b"z", len(data))))


def test_a_few_buffers_are_kept_and_none_once_requests_are_small() -> None:
    transport = ChunkTransport()
    channel = make(transport)
    channel.spares = SpareBuffers()
    views = [receive(channel, transport, large(b"a")) for _ in range(MOST_SPARES + 2)]
    assert channel.spares == [view.obj for view in views[-MOST_SPARES:]]
    for count in range(SPARES_FOR):
        assert len(channel.spares) == MOST_SPARES, f"after {count} small ones"
        assert bytes(receive(channel, transport, [framed(b"small")])) == b"small"
    assert channel.spares == []
    receive(channel, transport, large(b"b"))
    for _ in range(2):
        for _ in range(SPARES_FOR - 1):
            receive(channel, transport, [framed(b"small")])
        assert len(channel.spares) == 1
        receive(channel, transport, large(b"c"))


@pytest.mark.mechanism("N06")
@pytest.mark.parametrize("seed", range(6))
def test_large_requests_among_small_ones_come_out_of_any_split_of_their_bytes(seed: int) -> None:
    source = random.Random(seed)
    sizes = [source.choice((0, 9, 40_000, LARGE - 1, LARGE, LARGE + 70_000, FIRST_ALLOCATION + 9)) for _ in range(14)]
    payloads = [source.randbytes(size) for size in sizes]
    data, chunks = framed(*payloads), []
    while data:
        size = source.choice((1, 3, 5, 1000, 32_767, 32_768, 90_000, 300_000, 2_000_000))
        chunks.append(data[:size])
        data = data[size:]
    total = sum(map(len, chunks))
    transport = ChunkTransport(chunks)
    channel = make(transport)
    requests: list[bytes] = []
    while transport.chunks or channel.has_bytes_buffered:
        payload = channel.read()
        if payload is not None:
            assert not payload.readonly or len(payload) < LARGE, "offsets are written into it"
            requests.append(bytes(payload))
    assert requests == payloads
    assert channel.bytes_received == total


@pytest.mark.mechanism("N06")
@pytest.mark.skipif(not is_compiled("reactor"), reason="the twin does not guess the size of the next request")
def test_behind_a_large_request_the_next_one_is_received_where_it_stays() -> None:
    transport = ChunkTransport()
    channel = make(transport)
    receive(channel, transport, large(b"a", 2 * LARGE))
    data = framed(b"b" * (2 * LARGE))
    transport.chunks.append(data[:100_000])
    while transport.chunks:
        assert channel.read() is None
    buffer = channel._payload
    assert buffer is not None
    assert len(buffer) > len(data), "it need not be moved"
    assert receive(channel, transport, [data[100_000:]]) == b"b" * (2 * LARGE)
    # Of the next one there is too little to be sure.
    transport.chunks.append(data[:1000])
    while transport.chunks:
        assert channel.read() is None
    assert len(channel._payload or b"") <= UNSEEN_ALLOCATION
    assert receive(channel, transport, [data[1000:]]) == b"b" * (2 * LARGE)
    assert bytes(receive(channel, transport, [framed(b"small")])) == b"small"
    assert channel._likely == 0, "and no more than usual for the next one"  # type: ignore[attr-defined]


@pytest.mark.mechanism("N06")
def test_a_length_that_cannot_be_is_refused_behind_a_large_request() -> None:
    transport = ChunkTransport()
    channel = make(transport)
    receive(channel, transport, large(b"a"))
    with pytest.raises(InvalidReceiveError, match="a request of -1 bytes"):
        receive(channel, transport, [b"\xff" * 40_000])


def test_a_server_keeps_no_buffers() -> None:
    transport = ChunkTransport()
    channel = make(transport)
    receive(channel, transport, large(b"a"))
    assert channel.spares is None


@pytest.mark.mechanism("N06")
@pytest.mark.parametrize("bounded", [False, True], ids=["unbounded", "bounded"])
@pytest.mark.parametrize("size", [-1, -(2**31), MAX_SIZE + 1, 2**31 - 1])
def test_a_length_that_cannot_be_is_refused(size: int, bounded: bool) -> None:
    prefix = struct.pack(">i", size)
    for chunks in ([prefix + b"rest"], [prefix[:1], prefix[1:]], [framed(b"good") + prefix]):
        channel = make(ChunkTransport(chunks), pool_of() if bounded else UNBOUNDED)
        with pytest.raises(InvalidReceiveError, match=f"a request of {size} bytes from c") as caught:
            read_all(channel, 6)
        assert caught.value.size == size


@pytest.mark.mechanism("N06")
@pytest.mark.parametrize("bounded", [False, True], ids=["unbounded", "bounded"])
def test_the_largest_and_the_smallest_request_are_allowed(bounded: bool) -> None:
    channel = make(ChunkTransport([framed(b"", b"12345")]), pool_of(10) if bounded else UNBOUNDED, max_size=5)
    assert read_all(channel, 4) == [b"", b"12345"]


@pytest.mark.mechanism("N06")
@pytest.mark.parametrize("bounded", [False, True], ids=["unbounded", "bounded"])
def test_a_claim_of_a_hundred_megabytes_allocates_what_has_arrived(bounded: bool) -> None:
    size = 100 << 20
    channel = make(
        ChunkTransport([struct.pack(">i", size) + b"ten bytes!"]), pool_of(size) if bounded else UNBOUNDED, size
    )
    tracemalloc.start()
    try:
        assert read_all(channel, 3) == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert channel.bytes_received == 14
    assert peak < FIRST_ALLOCATION + READ_AHEAD + 100_000


@pytest.mark.mechanism("N06")
def test_the_buffer_grows_no_faster_than_twice_what_has_arrived() -> None:
    size = 64 << 20
    chunk = bytes(1 << 18)
    transport = ChunkTransport([struct.pack(">i", size), *[chunk] * 20])
    channel = make(transport, max_size=size)
    tracemalloc.start()
    try:
        while transport.chunks:
            assert channel.read() is None
        current, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert current < 2 * 20 * len(chunk) + FIRST_ALLOCATION


@pytest.mark.mechanism("N06")
@pytest.mark.parametrize("bounded", [False, True], ids=["unbounded", "bounded"])
@pytest.mark.parametrize("data", [b"", b"\0\0", b"\0\0\0\5ab", framed(b"whole")])
def test_the_end_of_the_stream_is_told_after_all_that_came_before_it(data: bytes, bounded: bool) -> None:
    transport = ChunkTransport([data] if data else [])
    transport.ended = True
    channel = make(transport, pool_of() if bounded else UNBOUNDED)
    requests: list[bytes] = []
    with pytest.raises(EOFError):
        read_all(channel, 6, requests)
    assert requests == ([b"whole"] if data.endswith(b"whole") else [])


@pytest.mark.mechanism("N06")
def test_pipelined_requests_cost_one_read_and_no_copy() -> None:
    data = framed(b"one", b"two", b"three")
    transport = ChunkTransport([data])
    channel = make(transport)
    views = []
    while (view := channel.read()) is not None:
        views.append(view)
        assert not transport.chunks, "the first read has taken everything"
    assert [bytes(view) for view in views] == [b"one", b"two", b"three"]
    assert {id(view.obj) for view in views} == {id(views[0].obj)}


# ---------------------------------------------------------------------------------------------------- N07


@pytest.mark.mechanism("N07")
def test_with_a_bounded_pool_nothing_is_read_that_was_not_granted() -> None:
    pool = pool_of(10)
    transport = ChunkTransport([framed(b"12345678", b"abc", b"de")])
    channel = make(transport, pool, max_size=10)
    assert read(channel) == b"12345678"
    assert transport.chunks == [framed(b"abc", b"de")], "no reading ahead"
    assert read(channel) == b"abc", "two bytes were left, and it may overdraw"
    assert pool.available == -1
    for _ in range(3):
        assert channel.read() is None
        assert channel.out_of_memory
    assert transport.chunks == [b"de"], "only its length was read"
    pool.release(8)
    channel.out_of_memory = False
    assert read(channel) == b"de"
    assert not channel.out_of_memory
    pool.release(3)
    pool.release(2)
    assert pool.available == 10


@pytest.mark.mechanism("N07")
@pytest.mark.parametrize(
    ("chunks", "reads"),
    [
        ([b"\0\0\0\5"], 1),
        ([b"\0\0\0\5ab"], 3),
        ([b"\0\0"], 1),
        ([framed(b"12345"), b"\0\0\0\5ab"], 5),
    ],
)
def test_what_was_granted_for_a_request_that_never_completes_is_given_back_once(
    chunks: list[bytes], reads: int
) -> None:
    pool = pool_of(10)
    channel = make(ChunkTransport(chunks), pool, max_size=10)
    for _ in range(reads):
        payload = channel.read()
        if payload is not None:
            pool.release(len(payload))
    for _ in range(2):
        channel.abandon_receive()
        assert pool.available == 10


@pytest.mark.mechanism("N07")
def test_a_request_that_was_refused_memory_has_none_to_give_back() -> None:
    pool = pool_of(4)
    channel = make(ChunkTransport([framed(b"1234", b"ab")]), pool, max_size=4)
    assert read(channel) == b"1234"
    assert channel.read() is None
    channel.abandon_receive()
    assert pool.available == 0
    pool.release(4)


# ---------------------------------------------------------------------------------------------------- N10, N18


@pytest.mark.mechanism("N10")
def test_a_send_is_named_when_it_has_gone_out_whole() -> None:
    transport = ChunkTransport(takes=[2, 3])
    channel = make(transport)
    assert write(channel) is None
    send = channel.send = NetworkSend([b"hello"])
    assert [write(channel), channel.send] == [None, send]
    assert [write(channel), channel.send] == [send, None]
    assert transport.sent == b"hello"


class Authenticator:
    """Needs so many rounds, or fails at once."""

    principal: Any = "alice"

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    @property
    def complete(self) -> bool:
        return self.rounds == 0

    def authenticate(self, channel: KafkaChannel) -> None:
        if self.rounds < 0:
            raise AuthenticationError("no")
        self.rounds -= 1


@pytest.mark.mechanism("N18")
def test_a_channel_is_ready_when_it_knows_who_is_there() -> None:
    channel = KafkaChannel("c", ChunkTransport(), 10, UNBOUNDED, Authenticator(2))
    assert not is_ready(channel)
    prepare(channel)
    assert (is_ready(channel), channel.state) == (False, ChannelState.AUTHENTICATE)
    prepare(channel)
    assert (is_ready(channel), channel.state) == (True, ChannelState.READY)


@pytest.mark.mechanism("N18")
def test_a_failed_authentication_is_told_and_remembered() -> None:
    channel = KafkaChannel("c", ChunkTransport(), 10, UNBOUNDED, Authenticator(-1))
    with pytest.raises(AuthenticationError):
        prepare(channel)
    assert (is_ready(channel), channel.state) == (False, ChannelState.AUTHENTICATION_FAILED)


@pytest.mark.mechanism("N18")
def test_the_handshake_comes_before_the_authentication() -> None:
    steps: list[str] = []

    class Handshaking(ChunkTransport):
        @property
        def is_ready(self) -> bool:  # type: ignore[override]
            return len(steps) >= 2

        def handshake(self) -> int:
            steps.append("handshake")
            return WRITE

    transport = Handshaking()
    authenticator = Authenticator(1)
    channel = KafkaChannel("c", transport, 10, UNBOUNDED, authenticator)
    assert prepare(channel) == WRITE
    assert authenticator.rounds == 1
    prepare(channel)
    assert (authenticator.rounds, channel.state) == (0, ChannelState.READY)


def test_a_channel_says_what_it_is() -> None:
    assert repr(make(ChunkTransport())) == "KafkaChannel(c, NOT_CONNECTED, NOT_MUTED)"
