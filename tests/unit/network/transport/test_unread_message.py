"""Messages whose files are left to who wants what is in them: nothing is missing, and no file stays open."""

from __future__ import annotations

import os
import random
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from benchmarks.waiting import until

from barnabas import _kernels
from barnabas._kernels.pure import sockets as pure_sockets
from barnabas.network.client.client_request import ClientResponse
from barnabas.network.reactor.channel import ANONYMOUS, InvalidReceiveError, KafkaChannel
from barnabas.network.reactor.channel_factory import plaintext
from barnabas.network.reactor.memory_pool import UNBOUNDED
from barnabas.network.reactor.send import FileRegion, NetworkSend
from barnabas.network.reactor.spare_buffers import SpareBuffers
from barnabas.network.transport.local.frame_references import HEAD, MARK
from barnabas.network.transport.local.layer import LocalTransportLayer
from barnabas.network.transport.local.offer import say_references
from barnabas.network.transport.local.shared_memory import address_of
from barnabas.network.transport.local.unread_message import (
    LEAST_BYTES,
    MOST_FILES,
    MOST_MESSAGES,
    ROOM,
    FileReading,
    UnreadFile,
    UnreadMessage,
    UnreadMessages,
    unread_file_of,
)
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from barnabas.server.request import Request
from barnabas.server.request_local import RequestLocal
from network_fixtures import Policy, serving
from unit.network.client.client_doubles import all_versions
from unit.network.transport.test_local_socket import Broker, Real, client_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has sockets like that")

SIZE = struct.Struct(">i")
LIMIT_S = 60
HEAD_BYTES = b"head"
PLACE = slice(len(HEAD_BYTES), len(HEAD_BYTES) + LEAST_BYTES)
"""Where the file is in most of the messages here."""


class Log(NamedTuple):
    """An open file, and what is in it."""

    path: Path
    fd: int
    content: bytes

    def region(self, position: int = 0, count: int = LEAST_BYTES) -> FileRegion:
        return FileRegion(self.fd, position, count)

    def left_open(self) -> int:
        """How many descriptors of it there are besides its own."""
        return descriptors_of(self.path) - 1

    def has_left_open(self, count: int) -> bool:
        return self.left_open() == count


class Line:
    """Two ends of a local socket on which references were agreed on. One of them may leave files unread."""

    def __init__(self) -> None:
        self.reading = FileReading()
        self.reading.left = True
        with_us, with_them = socket.socketpair(socket.AF_UNIX)
        with_us.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        self.sender, self.receiver = self._layer(with_us), self._layer(with_them)
        self.sender.refer()
        self.receiver.refer(self.reading)
        self.channel = self.reader()

    @staticmethod
    def _layer(end: socket.socket) -> LocalTransportLayer:
        end.setblocking(False)
        layer, _ = plaintext("c", end)
        assert isinstance(layer, LocalTransportLayer)
        return layer

    def reader(self, limit: int = 1 << 25) -> KafkaChannel:
        channel = KafkaChannel("c", self.receiver, limit, UNBOUNDED, ANONYMOUS)
        channel.spares = SpareBuffers()  # as a client's
        return channel

    def send(self, *pieces: Any) -> None:
        send = NetworkSend([SIZE.pack(sum(map(len, pieces))) + bytes(pieces[0]), *pieces[1:]])
        send.write_to(self.sender)
        assert not send.remaining

    def pass_on(self, *pieces: Any) -> memoryview:
        self.send(*pieces)
        received = self.channel.read()
        assert isinstance(received, memoryview)
        return received

    def close(self) -> None:
        self.sender.close()
        self.receiver.close()


@pytest.fixture(params=["compiled", "pure"])
def line(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Line]:
    if request.param == "pure":
        monkeypatch.setattr(_kernels.sockets, "SocketIo", pure_sockets.SocketIo)
    elif not _kernels.is_compiled("sockets"):
        pytest.skip("not built")
    made = Line()
    yield made
    made.close()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    content = random.Random(7).randbytes(3 * LEAST_BYTES + 17)
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(content)
    fd = os.open(path, os.O_RDONLY)
    yield Log(path, fd, content)
    os.close(fd)


def descriptors_of(path: Path) -> int:
    found = 0
    for file in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # that of the directory itself, which is closed by now
            found += file.readlink() == path
    return found


def fill(part: memoryview) -> None:
    """Reads the file of this part, which may have been anything before."""
    file = unread_file_of(part)
    assert file is not None
    part[:] = bytes(len(part))
    file.read(part, 0)


# -- what is left


def test_with_its_files_read_it_is_the_message(line: Line, log: Log) -> None:
    """The bytes between the files are there at once, and each file is where its place is."""
    chance = random.Random(3)
    for _ in range(10):
        pieces: list[Any] = [chance.randbytes(chance.randrange(5, 90))]
        expected = pieces[0]
        places = []
        for _ in range(chance.randrange(1, 4)):
            position = chance.randrange(LEAST_BYTES)
            count = chance.randrange(LEAST_BYTES, 2 * LEAST_BYTES)
            between = chance.randbytes(chance.randrange(1, 50))
            pieces += [log.region(position, count), between]
            places.append(slice(len(expected), len(expected) + count))
            expected += log.content[position : position + count] + between
        got = line.pass_on(*pieces)
        assert len(got) == len(expected)
        at = 0
        for place in places:
            assert got[at : place.start] == expected[at : place.start]
            at = place.stop
        assert got[at:] == expected[at:]
        assert log.left_open() == len(places)
        for place in reversed(places):  # in any order
            fill(got[place])
        assert got == expected
        assert log.left_open() == 0


def test_a_file_says_where_it_is(line: Line, log: Log) -> None:
    """Who has it may read any part of it, to anywhere."""
    got = line.pass_on(HEAD_BYTES, log.region(11))
    file = unread_file_of(got[PLACE])
    assert file is not None
    assert (file.position, file.start, file.size) == (11, PLACE.start, LEAST_BYTES)
    assert os.path.samestat(os.fstat(file.fileno()), os.fstat(log.fd))
    elsewhere = memoryview(bytearray(100))
    file.read(elsewhere, 1000)
    assert elsewhere == log.content[1011:1111]


def test_a_small_file_is_read_at_once(line: Line, log: Log) -> None:
    small = slice(PLACE.stop, PLACE.stop + LEAST_BYTES - 1)
    got = line.pass_on(HEAD_BYTES, log.region(5), log.region(9, LEAST_BYTES - 1))
    assert log.left_open() == 1
    assert unread_file_of(got[small]) is None
    assert got[small] == log.content[9 : 9 + LEAST_BYTES - 1]
    fill(got[PLACE])
    assert got == HEAD_BYTES + log.content[5 : 5 + LEAST_BYTES] + log.content[9 : 9 + LEAST_BYTES - 1]


def test_a_small_message_is_read_at_once(line: Line, log: Log) -> None:
    """Into the channel's own memory: what is smaller than one file that would be left has none."""
    count = LEAST_BYTES - len(HEAD_BYTES) - 1
    got = line.pass_on(HEAD_BYTES, log.region(2, count))
    assert type(got.obj) is not UnreadMessage
    assert got == HEAD_BYTES + log.content[2 : 2 + count]
    assert log.left_open() == 0


def test_of_many_files_the_first_ones_are_left(line: Line, log: Log) -> None:
    count = MOST_FILES + 2
    got = line.pass_on(HEAD_BYTES, *(log.region(number) for number in range(count)))
    assert log.left_open() == MOST_FILES
    for number in range(count):
        start = PLACE.start + number * LEAST_BYTES
        part = got[start : start + LEAST_BYTES]
        if number < MOST_FILES:
            fill(part)
        else:
            assert unread_file_of(part) is None
        assert part == log.content[number : number + LEAST_BYTES]
    assert log.left_open() == 0


def test_who_would_not_have_them_left_gets_them(line: Line, log: Log) -> None:
    """From one message to the next."""
    for number, left in enumerate([False, True, False, False, True]):
        line.reading.left = left
        got = line.pass_on(HEAD_BYTES, log.region(number))
        assert log.left_open() == left
        if left:
            fill(got[PLACE])
        assert unread_file_of(got[PLACE]) is None
        assert got == HEAD_BYTES + log.content[number : number + LEAST_BYTES]


def test_nobody_has_them_left_unasked() -> None:
    assert not FileReading().left


def test_a_message_that_is_larger_than_most(line: Line, tmp_path: Path) -> None:
    path = tmp_path / "large.log"
    count = ROOM + LEAST_BYTES
    with path.open("w+b") as file:
        file.truncate(count)
        file.seek(count - 4)
        file.write(b"last")
        file.flush()
        for _ in range(2):
            got = line.pass_on(HEAD_BYTES, FileRegion(file.fileno(), 0, count), b"tail")
            assert len(got) == count + 8
            assert got[:4] == HEAD_BYTES
            assert bytes(got[-4:]) == b"tail"
            unread = unread_file_of(got[4:-4])
            assert unread is not None
            unread.read(got[-104:-4], count - 100)
            assert got[-104:] == bytes(96) + b"last" + b"tail"
            del got, unread
        assert descriptors_of(path) == 1


# -- whose file it is


def test_a_part_that_is_not_the_place_of_a_file_has_none(line: Line, log: Log) -> None:
    got = line.pass_on(HEAD_BYTES, log.region(), b"tail")
    start, stop = PLACE.start, PLACE.stop
    for part in (
        got,
        got[:start],
        got[stop:],
        got[start : stop - 1],
        got[start : stop + 1],
        got[start + 1 : stop],
        got[start - 1 : stop],
        got[start - 1 : stop - 1],
        got[start + 1 : stop + 1],
    ):
        assert unread_file_of(part) is None
    assert unread_file_of(got[PLACE]) is not None


def test_what_is_not_of_such_a_message_has_no_file(line: Line, log: Log) -> None:
    got = line.pass_on(HEAD_BYTES, log.region())
    other = bytearray(len(got))
    for thing in (None, b"", bytes(LEAST_BYTES), bytes(got[PLACE]), other, memoryview(other)[PLACE], got.obj, 7):
        assert unread_file_of(thing) is None
    assert unread_file_of(memoryview(bytes(len(got)))[PLACE]) is None
    assert unread_file_of(got[PLACE]) is not None


def test_an_empty_part_has_no_file(line: Line, log: Log) -> None:
    """A broker's answer has such for partitions with an error."""
    got = line.pass_on(HEAD_BYTES, log.region(), b"tail")
    assert unread_file_of(got[PLACE.start : PLACE.start]) is None
    assert unread_file_of(got[len(got) :]) is None


def test_a_file_is_handed_out_once(line: Line, log: Log) -> None:
    got = line.pass_on(HEAD_BYTES, log.region(1), log.region(2))
    second = slice(PLACE.stop, PLACE.stop + LEAST_BYTES)
    for place in (PLACE, second):
        first = unread_file_of(got[place])
        assert first is not None
        assert unread_file_of(got[place]) is None


# -- how long it stays open


def test_a_file_is_closed_when_nobody_has_it(line: Line, log: Log) -> None:
    got = line.pass_on(HEAD_BYTES, log.region())
    file = unread_file_of(got[PLACE])
    assert log.left_open() == 1
    del got
    line.receiver.close()
    assert log.left_open() == 1, "it belongs to who has taken it"
    del file
    assert log.left_open() == 0


def test_a_file_can_be_closed_before(line: Line, log: Log) -> None:
    got = line.pass_on(HEAD_BYTES, log.region())
    file = unread_file_of(got[PLACE])
    assert file is not None
    fd = file.fileno()
    file.close()
    assert file.fileno() == -1
    assert log.left_open() == 0
    other = os.dup(log.fd)
    try:
        assert other == fd
        file.close()
        del file
        assert log.left_open() == 1, "that is another one by now"
    finally:
        os.close(other)


def test_files_that_nobody_took_are_closed_when_the_message_is_used_again(line: Line, log: Log) -> None:
    for _ in range(2 * MOST_MESSAGES):
        line.pass_on(HEAD_BYTES, log.region(1), log.region(2))
        assert log.left_open() == 2
    line.pass_on(HEAD_BYTES, log.region(0, LEAST_BYTES - 1), log.region(0, LEAST_BYTES - 1))
    assert log.left_open() == 0


@pytest.mark.parametrize("what", ["references", "transport"])
def test_files_that_nobody_took_are_closed_with_the_connection(what: str, line: Line, log: Log) -> None:
    """With all the messages that it had, but for one that somebody has still, who may go on reading."""
    held = line.pass_on(HEAD_BYTES, log.region(3))
    others = [line.pass_on(HEAD_BYTES, log.region()) for _ in range(2)]
    assert log.left_open() == 3
    del others
    if what == "transport":
        line.receiver.close()
    else:
        assert line.receiver.references is not None
        line.receiver.references.close()
    assert log.left_open() == 1
    fill(held[PLACE])
    assert held == HEAD_BYTES + log.content[3 : 3 + LEAST_BYTES]
    assert log.left_open() == 0


# -- memory that is used again


def test_memory_that_nobody_looks_at_is_used_again(line: Line, log: Log) -> None:
    addresses = set()
    for number in range(2 * MOST_MESSAGES):
        got = line.pass_on(HEAD_BYTES, log.region(number, LEAST_BYTES + number))
        fill(got[4:])
        assert got[4:] == log.content[number : 2 * number + LEAST_BYTES]
        addresses.add(address_of(got))
        del got
    assert len(addresses) == 1


def test_memory_that_somebody_looks_at_is_not_used_again(line: Line, log: Log) -> None:
    """However small the part is that is kept, and however many there are."""
    kept = []
    for number in range(2 * MOST_MESSAGES):
        got = line.pass_on(bytes([number]) * 4, log.region(number))
        fill(got[PLACE])
        kept.append((got[2:7], address_of(got)))
        del got
    assert len({address for _, address in kept}) == 2 * MOST_MESSAGES
    for number, (part, _) in enumerate(kept):
        assert part == bytes([number]) * 2 + log.content[number : number + 3]


def test_a_former_file_is_not_one_of_the_next_message(line: Line, log: Log) -> None:
    """Its place is there in the next one too, with something else in it."""
    former = address_of(line.pass_on(HEAD_BYTES, log.region()))
    content = log.content[: LEAST_BYTES - 1]
    got = line.pass_on(HEAD_BYTES, log.region(0, LEAST_BYTES - 1), log.region(0, LEAST_BYTES - 1))
    assert address_of(got) == former
    assert unread_file_of(got[PLACE]) is None
    assert got == HEAD_BYTES + content + content


def test_a_message_has_room_for_what_was_asked() -> None:
    messages = UnreadMessages()
    for size in (1, ROOM, ROOM + 1, 4 * ROOM + 1):
        assert len(messages.take(size)) >= size


def test_one_that_is_large_enough_is_used_again() -> None:
    messages = UnreadMessages()
    small = messages.take(ROOM)
    large = messages.take(ROOM + 1)
    assert large is not small
    for _ in range(2):
        assert messages.take(ROOM + 1) is large
        with memoryview(large)[:1]:
            assert messages.take(ROOM) is small
    with memoryview(small)[:1]:
        assert messages.take(1) is large


def test_only_the_last_few_are_kept() -> None:
    messages = UnreadMessages()
    made = []
    views = []
    for _ in range(MOST_MESSAGES + 1):
        made.append(messages.take(1))
        views.append(memoryview(made[-1])[:1])
    for view in views:
        view.release()
    taken = []
    for _ in range(MOST_MESSAGES):
        taken.append(messages.take(1))
        views.append(memoryview(taken[-1])[:1])
    assert {id(message) for message in taken} == {id(message) for message in made[1:]}
    assert messages.take(1) is not made[0]


# -- what is wrong


def test_a_message_that_is_too_large_is_refused(line: Line, log: Log) -> None:
    line.send(HEAD_BYTES, log.region())
    with pytest.raises(InvalidReceiveError, match=str(LEAST_BYTES + 4)):
        line.reader(limit=LEAST_BYTES + 3).read()
    line.receiver.close()  # as the selector does then
    assert log.left_open() == 0


def test_one_that_is_as_large_as_it_may_be_is_not(line: Line, log: Log) -> None:
    line.channel = line.reader(limit=LEAST_BYTES + 4)
    got = line.pass_on(HEAD_BYTES, log.region())
    fill(got[PLACE])
    assert got == HEAD_BYTES + log.content[:LEAST_BYTES]


def test_what_is_left_counts_as_received(line: Line, log: Log) -> None:
    """Quotas and metrics go by the size of the message, whoever reads it."""
    received = []
    for left in (False, True):
        line.reading.left = left
        line.channel = line.reader()
        line.pass_on(HEAD_BYTES, log.region())
        received.append(line.channel.bytes_received)
    assert received[0] == received[1] > LEAST_BYTES


@pytest.mark.parametrize("remaining", [0, 1, LEAST_BYTES - 1])
def test_a_file_that_shrank_is_found_out_by_who_reads_it(remaining: int, line: Line, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(bytes(LEAST_BYTES))
    with path.open("rb") as file:
        got = line.pass_on(HEAD_BYTES, FileRegion(file.fileno(), 0, LEAST_BYTES))
    os.truncate(path, remaining)
    unread = unread_file_of(got[PLACE])
    assert unread is not None
    with pytest.raises(EOFError, match="shrank"):
        unread.read(got[PLACE], 0)
    unread.read(got[PLACE][:remaining], 0)
    del unread
    assert descriptors_of(path) == 0


def test_a_small_file_that_shrank_ends_the_connection(line: Line, log: Log, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(bytes(LEAST_BYTES - 2))
    with path.open("rb") as file:
        line.send(HEAD_BYTES, log.region(), FileRegion(file.fileno(), 0, LEAST_BYTES - 1))
    with pytest.raises(EOFError, match="shrank"):
        line.channel.read()
    assert descriptors_of(path) == 0
    line.receiver.close()
    assert log.left_open() == 0


@pytest.mark.parametrize(
    ("size", "counts"),
    [
        (LEAST_BYTES, [LEAST_BYTES + 1]),
        (LEAST_BYTES, [-1]),
        (LEAST_BYTES, [LEAST_BYTES + 5, -5]),
        (LEAST_BYTES, [LEAST_BYTES, 1]),
        (LEAST_BYTES + 1, [LEAST_BYTES]),
    ],
)
def test_a_reference_that_cannot_be_leaves_no_file(size: int, counts: list[int], line: Line, log: Log) -> None:
    reference = struct.pack(">bii", 2, size, len(counts))
    for count in counts:
        reference += struct.pack(">iqi", -1, 0, count)
    socket.send_fds(line.sender.socket, [HEAD.pack(MARK, len(reference)) + reference], [log.fd] * len(counts))
    with pytest.raises(ValueError, match="bytes"):
        line.channel.read()
    line.receiver.close()
    assert log.left_open() == 0


def test_a_file_that_is_closed_cannot_be_read(log: Log) -> None:
    file = UnreadFile(os.dup(log.fd), 0, 0, 10)
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.read(memoryview(bytearray(10)), 0)


# -- a client


class LogBroker(Broker):
    """Agrees on references, and answers every fetch with a part of a log."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self.log = log

    def __call__(self, request: Request, local: RequestLocal) -> None:
        response: Any
        if request.api_key is ApiKey.FETCH:
            data = PartitionData(records=self.log.region(9))
            response = FetchResponse(responses=[FetchableTopicResponse(partitions=[data])])
        elif request.api_key is ApiKey.API_VERSIONS and request.context.refers:
            response = all_versions()
            say_references(response)
        else:
            super().__call__(request, local)
            return
        self.server.channel.send_parts(request, response.frame_parts(request.api_version, request.correlation_id))


def fetch(real: Real) -> memoryview:
    """The records of a response, of which nothing else is kept."""
    found: list[memoryview] = []

    def keep(response: ClientResponse) -> None:
        body = response.body
        assert isinstance(body, FetchResponse)
        records = body.responses[0].partitions[0].records
        assert isinstance(records, memoryview)
        found.append(records)

    real.client.send(real.client.new_client_request("1", FetchRequest(), real.now, callback=keep), real.now)
    real.poll_until(lambda: found)
    return found.pop()


def test_a_client_says_whether_its_files_are_left(log: Log) -> None:
    """For every response anew; and with the client all is closed."""
    script = LogBroker(log)
    with serving(Policy.DIRECT, script, local_socket_enable=True) as server:
        script.server = server
        with client_of(server) as real:
            real.make_ready()
            assert not real.client.file_reading.left
            for left in (False, True, False, True):
                real.client.file_reading.left = left
                records = fetch(real)
                # The broker closes its own when it has sent them, which may be later than they have arrived.
                until(partial(log.has_left_open, int(left)), "files left open", LIMIT_S)
                if left:
                    fill(records)
                assert records == log.content[9 : 9 + LEAST_BYTES]
            fetch(real)
            until(partial(log.has_left_open, 1), "a file left open", LIMIT_S)
            real.client.poll(0, real.now)  # the selector has the last response until then
        assert log.left_open() == 0
