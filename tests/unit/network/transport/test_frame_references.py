"""Messages that do not go through a socket: what is read is what would have come."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from barnabas import _kernels
from barnabas._kernels.channel_state import LARGE
from barnabas._kernels.pure import sockets as pure_sockets
from barnabas.network.reactor.channel import ANONYMOUS, InvalidReceiveError, KafkaChannel
from barnabas.network.reactor.channel_factory import plaintext
from barnabas.network.reactor.memory_pool import UNBOUNDED
from barnabas.network.reactor.send import FileRegion, NetworkSend
from barnabas.network.reactor.spare_buffers import SpareBuffers
from barnabas.network.transport.local import frame_references, shared_memory
from barnabas.network.transport.local.frame_references import (
    HEAD,
    LEAST_BYTES_PER_FILE,
    MARK,
    MOST_BYTES,
    MOST_FILES,
    is_same_user,
)
from barnabas.network.transport.local.layer import LocalTransportLayer
from barnabas.network.transport.local.shared_memory import (
    HEAD_ROOM,
    LEAST_BYTES,
    TAIL_ROOM,
    SharedMemory,
    address_of,
    memory_of,
)
from barnabas.network.transport.local.unread_message import UnreadFile

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has sockets and memory like that")

MOST = 1 << 24
SIZE = struct.Struct(">i")


@pytest.fixture(params=["compiled", "pure"])
def transports(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[LocalTransportLayer, LocalTransportLayer]]:
    """Two ends of a local socket on which references were agreed on."""
    if request.param == "pure":
        monkeypatch.setattr(_kernels.sockets, "SocketIo", pure_sockets.SocketIo)
    elif not _kernels.is_compiled("sockets"):
        pytest.skip("not built")
    ends = socket.socketpair(socket.AF_UNIX)
    made = []
    for end in ends:
        end.setblocking(False)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        layer, _ = plaintext("c", end)
        assert isinstance(layer, LocalTransportLayer)
        layer.refer()
        made.append(layer)
    yield made[0], made[1]
    for layer in made:
        layer.close()


def channel_on(layer: Any, *, limit: int = MOST, keeps: bool = False) -> KafkaChannel:
    channel = KafkaChannel("c", layer, limit, UNBOUNDED, ANONYMOUS)
    if keeps:
        channel.spares = SpareBuffers()
    return channel


@pytest.fixture
def log(tmp_path: Path) -> Iterator[tuple[int, bytes]]:
    """An open file, and what is in it."""
    content = random.Random(7).randbytes(3 * LARGE + 17)
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(content)
    fd = os.open(path, os.O_RDONLY)
    yield fd, content
    os.close(fd)


def message(*pieces: Any) -> list[Any]:
    """With the length in front."""
    return [SIZE.pack(sum(map(len, pieces))) + bytes(pieces[0]), *pieces[1:]]


def read(reader: KafkaChannel) -> bytes | None:
    received = reader.read()
    return None if received is None else bytes(received)


def open_files() -> set[str]:
    return {file.name for file in Path("/proc/self/fd").iterdir()}


def references_seen(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    seen: list[bytes] = []
    follow = frame_references.FrameReferences.follow

    def noting(self: Any, reference: memoryview, buffer_for: Any, most: int) -> memoryview:
        seen.append(bytes(reference))
        return follow(self, reference, buffer_for, most)

    monkeypatch.setattr(frame_references.FrameReferences, "follow", noting)
    return seen


# -- files


def test_records_come_out_of_the_file(
    transports: tuple[LocalTransportLayer, LocalTransportLayer],
    log: tuple[int, bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As they would have come through the socket, between the bytes that do, and not a file stays open."""
    sender, receiver = transports
    fd, content = log
    seen = references_seen(monkeypatch)
    reader = channel_on(receiver, keeps=True)
    chance = random.Random(3)
    before = open_files()
    for _ in range(30):
        pieces: list[Any] = [chance.randbytes(chance.randrange(5, 90))]
        expected = pieces[0]
        for _ in range(chance.randrange(1, 4)):
            position = chance.randrange(LARGE)
            count = chance.randrange(LARGE // 2, LARGE)
            between = chance.randbytes(chance.randrange(1, 50))
            pieces += [FileRegion(fd, position, count), between]
            expected += content[position : position + count] + between
        send = NetworkSend(message(*pieces))
        size = send.size
        assert send.write_to(sender) == size == len(expected) + 4
        assert not send.remaining
        assert read(reader) == expected
    assert len(seen) == 30
    assert open_files() == before


def test_what_was_read_is_in_memory_that_is_used_again(
    transports: tuple[LocalTransportLayer, LocalTransportLayer], log: tuple[int, bytes]
) -> None:
    sender, receiver = transports
    fd, content = log
    reader = channel_on(receiver, keeps=True)
    addresses = set()
    for start in range(4):
        NetworkSend(message(b"head", FileRegion(fd, start, LARGE))).write_to(sender)
        got = reader.read()
        assert got is not None
        assert got[4:] == content[start : start + LARGE]
        addresses.add(address_of(got))
        del got
    assert len(addresses) == 1


def test_it_may_arrive_in_parts(
    transports: tuple[LocalTransportLayer, LocalTransportLayer], log: tuple[int, bytes]
) -> None:
    """A reference that is cut anywhere is put together again, with its file, and with messages around it."""
    sender, receiver = transports
    fd, content = log
    wire: list[tuple[bytes, list[int]]] = []

    def tap(data: bytes, files: list[int]) -> int:
        wire.append((data, files))
        return len(data)

    assert frame_references.FrameReferences(tap).send(message(b"head", FileRegion(fd, 5, LARGE)), LARGE + 8)
    ((data, _),) = wire
    small = SIZE.pack(3) + b"abc"
    for cut in range(1, len(data)):
        reader = channel_on(receiver)
        sender.socket.send(small)
        socket.send_fds(sender.socket, [data[:cut]], [fd])
        received: list[Any] = [reader.read(), reader.read()]
        sender.socket.send(data[cut:] + small)
        while received[-1] is None:
            received[-1] = reader.read()
        assert received == [b"abc", b"head" + content[5 : 5 + LARGE]]
        assert read(reader) == b"abc"


def test_descriptors_of_the_log_are_for_reading_only(
    transports: tuple[LocalTransportLayer, LocalTransportLayer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log's own descriptor is for writing, too."""
    sender, receiver = transports
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(bytes(LARGE))
    modes: list[int] = []
    read_from = UnreadFile.read

    def noting(self: Any, buffer: memoryview, start: int) -> None:
        modes.append(fcntl.fcntl(self.fileno(), fcntl.F_GETFL) & os.O_ACCMODE)
        read_from(self, buffer, start)

    monkeypatch.setattr(UnreadFile, "read", noting)
    fd = os.open(path, os.O_RDWR)
    path.unlink()  # a segment may be deleted while it is sent
    before = open_files()
    try:
        NetworkSend(message(b"head", FileRegion(fd, 0, LARGE))).write_to(sender)
        assert read(channel_on(receiver)) == b"head" + bytes(LARGE)
        assert open_files() == before
    finally:
        os.close(fd)
    assert modes == [os.O_RDONLY]


def test_a_file_that_cannot_be_opened_again_goes_through_the_socket(
    transports: tuple[LocalTransportLayer, LocalTransportLayer],
    log: tuple[int, bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sender, receiver = transports
    fd, content = log
    seen = references_seen(monkeypatch)

    def fail(_fd: int) -> int:
        raise FileNotFoundError("/proc is not mounted")

    monkeypatch.setattr(frame_references, "_reopened", fail)
    send = NetworkSend(message(b"head", FileRegion(fd, 5, LARGE)))
    reader = channel_on(receiver)
    received = None
    while received is None:
        send.write_to(sender)
        received = read(reader)
    assert received == b"head" + content[5 : 5 + LARGE]
    assert not seen


def test_descriptors_that_nobody_asked_for_are_bounded(
    transports: tuple[LocalTransportLayer, LocalTransportLayer], log: tuple[int, bytes]
) -> None:
    """They come with ordinary messages, which are never followed to a file."""
    sender, receiver = transports
    fd, _ = log
    reader = channel_on(receiver)
    small = SIZE.pack(3) + b"abc"
    before = len(open_files())
    for _ in range(MOST_FILES // 5):
        socket.send_fds(sender.socket, [small], [fd] * 5)
        assert read(reader) == b"abc"
    socket.send_fds(sender.socket, [small], [fd] * 5)
    with pytest.raises(OSError, match="files have come, and at most 64 are expected"):
        reader.read()
    assert len(open_files()) <= before + MOST_FILES
    receiver.close()
    assert len(open_files()) == before - 1, "the socket itself, too"


def test_a_broker_expects_fewer_of_them(log: tuple[int, bytes]) -> None:
    fd, _ = log
    ends = socket.socketpair(socket.AF_UNIX)
    for end in ends:
        end.setblocking(False)
    layer, _ = plaintext("c", ends[1])
    assert isinstance(layer, LocalTransportLayer)
    layer.refer(most_files=2)
    socket.send_fds(ends[0], [SIZE.pack(1) + b"x"], [fd] * 3)
    before = open_files()
    with pytest.raises(OSError, match="3 files have come, and at most 2 are expected"):
        layer.recv(100)
    assert open_files() == before
    layer.close()
    ends[0].close()


@pytest.mark.parametrize("how", ["recv", "recv_into"])
@pytest.mark.parametrize("is_compiled", [True, False])
def test_descriptors_are_closed_where_no_references_were_agreed_on(
    how: str, is_compiled: bool, log: tuple[int, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_compiled:
        monkeypatch.setattr(_kernels.sockets, "SocketIo", pure_sockets.SocketIo)
    fd, _ = log
    ends = socket.socketpair(socket.AF_UNIX)
    layer, _ = plaintext("c", ends[1])
    before = open_files()
    socket.send_fds(ends[0], [b"abc"], [fd] * 9)
    if how == "recv":
        assert layer.recv(3) == b"abc"
    else:
        assert layer.recv_into(bytearray(3)) == 3
    assert open_files() == before
    layer.close()
    ends[0].close()


def test_several_at_once(transports: tuple[LocalTransportLayer, LocalTransportLayer], log: tuple[int, bytes]) -> None:
    sender, receiver = transports
    fd, content = log
    for start in range(5):
        NetworkSend(message(b"head", FileRegion(fd, start, LARGE))).write_to(sender)
        NetworkSend([SIZE.pack(1) + b"x"]).write_to(sender)
    reader = channel_on(receiver)
    for start in range(5):
        assert read(reader) == b"head" + content[start : start + LARGE]
        assert read(reader) == b"x"
    with pytest.raises(BlockingIOError):
        receiver.recv(1)


def test_a_full_socket_is_tried_again(
    transports: tuple[LocalTransportLayer, LocalTransportLayer], log: tuple[int, bytes]
) -> None:
    sender, receiver = transports
    fd, content = log
    filled = 0
    with suppress(BlockingIOError):
        while True:
            filled += sender.send(SIZE.pack(60_000) + bytes(60_000))
    send = NetworkSend(message(b"head", FileRegion(fd, 0, LARGE)))
    assert send.write_to(sender) == 0
    assert send.remaining
    reader = channel_on(receiver)
    for _ in range(filled // 60_004):
        got = reader.read()
        while got is None:
            got = reader.read()
        assert len(got) == 60_000
    if filled % 60_004:  # the last one was taken in part
        assert reader.read() is None
        sender.send(bytes(60_004 - filled % 60_004))
        while reader.read() is None:
            pass
    assert send.write_to(sender) == send.size
    assert read(reader) == b"head" + content[:LARGE]


@pytest.mark.parametrize("why", ["small", "many files", "much beside"])
def test_what_is_not_worth_a_reference_goes_through_the_socket(
    why: str,
    transports: tuple[LocalTransportLayer, LocalTransportLayer],
    log: tuple[int, bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sender, receiver = transports
    fd, content = log
    seen = references_seen(monkeypatch)
    pieces: list[Any] = [b"head"]
    if why == "small":
        pieces.append(FileRegion(fd, 0, LEAST_BYTES - 100))
    elif why == "many files":
        pieces += [FileRegion(fd, 0, LEAST_BYTES_PER_FILE - 100) for _ in range(MOST_FILES // 8)]
    else:
        pieces += [FileRegion(fd, 0, LARGE), bytes(MOST_BYTES)]
    expected = b"".join(content[p.position : p.position + p.count] if isinstance(p, FileRegion) else p for p in pieces)
    send = NetworkSend(message(*pieces))
    reader = channel_on(receiver)
    received: Any = None
    while received is None:
        if send.remaining:
            send.write_to(sender)
        received = reader.read()
    assert received == expected
    assert not seen


def test_a_file_that_shrank(transports: tuple[LocalTransportLayer, LocalTransportLayer], tmp_path: Path) -> None:
    """The connection ends, as it would if the broker had found out while sending."""
    sender, receiver = transports
    path = tmp_path / "x"
    path.write_bytes(bytes(LARGE - 1))
    before = open_files()
    with path.open("rb") as file:
        NetworkSend(message(b"head", FileRegion(file.fileno(), 0, LARGE))).write_to(sender)
        with pytest.raises(EOFError, match="shrank"):
            channel_on(receiver).read()
    assert open_files() == before


def test_a_message_that_is_too_large_is_refused(
    transports: tuple[LocalTransportLayer, LocalTransportLayer], log: tuple[int, bytes]
) -> None:
    sender, receiver = transports
    NetworkSend(message(b"head", FileRegion(log[0], 0, LARGE))).write_to(sender)
    with pytest.raises(InvalidReceiveError):
        channel_on(receiver, limit=LARGE).read()


def test_files_that_nobody_asked_for_are_closed(
    transports: tuple[LocalTransportLayer, LocalTransportLayer], log: tuple[int, bytes]
) -> None:
    sender, receiver = transports
    before = open_files()
    NetworkSend(message(b"head", FileRegion(log[0], 0, LARGE))).write_to(sender)
    receiver.recv(100)
    assert open_files() != before
    assert receiver.references is not None
    receiver.references.close()
    assert open_files() == before


# -- memory


@pytest.fixture
def memory() -> Iterator[SharedMemory]:
    made = SharedMemory(LARGE, 3)
    yield made
    made.retire()


def test_a_batch_is_copied_from_where_it_is(
    memory: SharedMemory, transports: tuple[LocalTransportLayer, LocalTransportLayer], monkeypatch: pytest.MonkeyPatch
) -> None:
    sender, receiver = transports
    seen = references_seen(monkeypatch)
    writer = channel_on(receiver)
    before: set[str] = set()
    for number in range(20):
        batch = memory.take(LARGE - number)
        assert batch is not None
        batch[:] = bytes([number]) * len(batch)
        send = NetworkSend(message(b"the head of a request", batch, b"its end"))
        assert send.write_to(sender) == send.size
        got: Any = writer.read()
        assert got == b"the head of a request" + bytes([number]) * (LARGE - number) + b"its end"
        got[21:24] = b"new"  # a broker writes its offsets there
        assert bytes(batch[:3]) == bytes([number]) * 3
        batch[:] = b"?" * len(batch)  # a client that changes what has been checked
        assert bytes(got[24:-7]) == bytes([number]) * (LARGE - number - 3)
        memory.give(batch)
        if number == 0:
            before = open_files()  # one is for the mapping, and stays as long as that
    assert len(seen) == 20
    assert all(len(reference) < 32 for reference in seen)
    assert open_files() == before


def test_the_buffer_of_a_batch_is_used_again_when_nobody_looks_at_it(
    memory: SharedMemory, transports: tuple[LocalTransportLayer, LocalTransportLayer]
) -> None:
    sender, receiver = transports
    reader = channel_on(receiver)
    batch = memory.take(LARGE)
    assert batch is not None

    def pass_on(number: int) -> memoryview:
        batch[:] = bytes([number]) * LARGE
        NetworkSend(message(b"head", batch)).write_to(sender)
        got = reader.read()
        assert got is not None
        return got

    first = pass_on(1)
    address = address_of(first)
    second = pass_on(2)
    assert address_of(second) != address
    assert first == b"head" + bytes([1]) * LARGE, "somebody still looks at it"
    address = address_of(second)
    del second
    assert address_of(pass_on(3)) == address


def test_slots_are_taken_and_given(memory: SharedMemory) -> None:
    slots = [memory.take(LARGE) for _ in range(3)]
    assert memory.take(LARGE) is None
    assert None not in slots
    addresses = sorted(address_of(slot) for slot in slots)
    assert all(b - a >= LARGE + HEAD_ROOM + TAIL_ROOM for a, b in pairwise(addresses))
    middle = slots[1]
    assert middle is not None
    memory.give(middle)
    again = memory.take(LEAST_BYTES)
    assert again is not None
    assert address_of(again) == address_of(middle)
    assert memory.take(LARGE) is None


def test_what_does_not_fit_is_not_given_out(memory: SharedMemory) -> None:
    assert memory.take(LEAST_BYTES - 1) is None
    assert memory.take(LARGE + 2 * shared_memory.PAGE) is None
    memory.give(memoryview(bytearray(LARGE)))  # which is not of it
    assert [memory.take(LARGE) is None for _ in range(4)] == [False, False, False, True]


@pytest.mark.parametrize(("head", "tail"), [(HEAD_ROOM + 1, 1), (1, TAIL_ROOM + 1)])
def test_without_room_around_it_it_goes_through_the_socket(
    memory: SharedMemory, head: int, tail: int, transports: tuple[LocalTransportLayer, LocalTransportLayer]
) -> None:
    sender, receiver = transports
    batch = memory.take(LARGE)
    assert batch is not None
    batch[:] = bytes(LARGE)
    pieces = message(b"h" * head, batch, b"t" * tail)
    assert sender.references is not None
    assert not sender.references.send(pieces, sum(map(len, pieces)))
    with pytest.raises(BlockingIOError):
        receiver.recv(1)


def test_the_end_of_a_connection_retires_what_it_knew(
    memory: SharedMemory, transports: tuple[LocalTransportLayer, LocalTransportLayer]
) -> None:
    """The other end may have the request in a queue still, and look at it at any time."""
    sender, receiver = transports
    batch = memory.take(LARGE)
    assert batch is not None
    assert memory_of(batch) is memory
    batch[:] = b"a" * LARGE
    NetworkSend(message(b"head", batch)).write_to(sender)
    kept: Any = channel_on(receiver).read()
    sender.close()
    assert memory.retired
    assert memory_of(batch) is None
    memory.give(batch)
    assert memory.take(LARGE) is None
    del batch
    assert kept == b"head" + b"a" * LARGE


def test_memory_that_was_told_to_nobody_is_not_retired(
    memory: SharedMemory, transports: tuple[LocalTransportLayer, LocalTransportLayer]
) -> None:
    transports[0].close()
    assert not memory.retired


def test_a_retired_one_is_not_referred_to(
    memory: SharedMemory, transports: tuple[LocalTransportLayer, LocalTransportLayer]
) -> None:
    sender, _ = transports
    batch = memory.take(LARGE)
    assert batch is not None
    memory.retire()
    assert sender.references is not None
    assert not sender.references.send(message(b"head", batch), LARGE + 8)


def test_another_memory_on_the_same_connection(
    transports: tuple[LocalTransportLayer, LocalTransportLayer],
) -> None:
    sender, receiver = transports
    reader = channel_on(receiver)
    for number in range(5):
        memory = SharedMemory(LARGE, 1)
        batch = memory.take(LARGE)
        assert batch is not None
        batch[:] = bytes([number]) * LARGE
        NetworkSend(message(b"head", batch)).write_to(sender)
        assert read(reader) == b"head" + bytes([number]) * LARGE
        memory.retire()


# -- what is wrong


def wrong(reference: bytes, mark: int = MARK) -> bytes:
    return HEAD.pack(mark, len(reference)) + reference


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        (wrong(b"\x09"), ValueError, "kind 9"),
        (wrong(b"\x01\0\0"), ValueError, "cannot be read"),
        (wrong(struct.pack(">bIqi", 1, 7, 0, 10)), OSError, "without its file"),
        (wrong(struct.pack(">bii", 2, 10, 1) + struct.pack(">iqi", -1, 0, 10)), OSError, "without its file"),
        (wrong(struct.pack(">bii", 2, 10, 1) + struct.pack(">i", 11) + bytes(11)), ValueError, "11 bytes at 0"),
        (wrong(struct.pack(">bii", 2, 10, 1) + struct.pack(">i", -5)), ValueError, "-5 bytes"),
        (wrong(struct.pack(">bii", 2, 10, 1) + struct.pack(">i", 9) + bytes(9)), ValueError, "where 10 were"),
        (wrong(struct.pack(">bii", 2, -1, 0)), InvalidReceiveError, "-1 bytes"),
        (HEAD.pack(MARK, 0), InvalidReceiveError, "0 bytes"),
        (HEAD.pack(MARK, MOST_BYTES + 1), InvalidReceiveError, "bytes"),
        (HEAD.pack(-1, 5), InvalidReceiveError, "-1 bytes"),
        (HEAD.pack(-3, 5), InvalidReceiveError, "-3 bytes"),
    ],
)
def test_a_reference_that_cannot_be_ends_the_connection(
    data: bytes,
    error: type[Exception],
    words: str,
    transports: tuple[LocalTransportLayer, LocalTransportLayer],
) -> None:
    sender, receiver = transports
    sender.socket.send(data)
    with pytest.raises(error, match=words):
        channel_on(receiver).read()


def test_memory_that_could_be_cut_short_is_refused(
    transports: tuple[LocalTransportLayer, LocalTransportLayer],
) -> None:
    """Whoever looked at it then would be killed by the system."""
    sender, receiver = transports
    fd = os.memfd_create("x", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, 4096)
    fcntl.fcntl(fd, 1033, 0x0004)  # it cannot grow, which is not enough
    socket.send_fds(sender.socket, [wrong(struct.pack(">bIqi", 1, 7, 0, 10))], [fd])
    os.close(fd)
    with pytest.raises(ValueError, match="taken away"):
        channel_on(receiver).read()


@pytest.mark.parametrize(("position", "size"), [(-1, 10), (0, LARGE * 8), (LARGE * 8, 1), (4, -1)])
def test_what_is_outside_of_the_memory_is_refused(
    position: int, size: int, memory: SharedMemory, transports: tuple[LocalTransportLayer, LocalTransportLayer]
) -> None:
    sender, receiver = transports
    socket.send_fds(sender.socket, [wrong(struct.pack(">bIqi", 1, 7, position, size))], [memory.fileno()])
    with pytest.raises(ValueError, match=r"bytes at"):
        channel_on(receiver).read()


def test_nobody_has_to_follow_who_has_not_agreed() -> None:
    with_us, with_them = socket.socketpair(socket.AF_UNIX)
    with with_us, with_them:
        with_us.setblocking(False)
        layer, _ = plaintext("c", with_us)
        assert layer.special_frame is None
        with_them.send(wrong(struct.pack(">bii", 2, 10, 1)))
        with pytest.raises(InvalidReceiveError, match="-2 bytes"):
            channel_on(layer).read()


# -- who may


def test_only_processes_of_the_same_user(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = socket.socketpair(socket.AF_UNIX)
    with ends[0], ends[1]:
        assert is_same_user(ends[0])
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
        assert not is_same_user(ends[0])
    with socket.socket(socket.AF_INET) as tcp:
        assert not is_same_user(tcp)


def test_many_files_in_one_message(
    transports: tuple[LocalTransportLayer, LocalTransportLayer], log: tuple[int, bytes]
) -> None:
    sender, receiver = transports
    before = open_files()
    pieces: list[Any] = [b"head"]
    for start in range(8):
        pieces += [FileRegion(log[0], start, LARGE), b"-"]
    NetworkSend(message(*pieces)).write_to(sender)
    assert len(channel_on(receiver).read() or b"") == 4 + 8 * (LARGE + 1)
    assert open_files() == before
