"""The TLS transport by itself: bytes in and out of real sockets, with the standard library's TLS on the other side."""

from __future__ import annotations

import os
import random
import select
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.common.errors import SslAuthenticationError
from barnabas.network.reactor.send import FileRegion, NetworkSend
from barnabas.network.transport import ELSEWHERE, READ, WRITE
from barnabas.network.transport.handshakes import HandshakePool, HandshakesBusyError
from barnabas.network.transport.tls import CHUNK, MAX_HANDSHAKE_BYTES, RECORD, Phase, TlsTransportLayer, _chunks
from network_fixtures import nothing_left_behind, tcp_pair
from tls_fixtures import PKI, context

WAIT_S = 60

TLS_1_2, TLS_1_3 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3


def wait_readable(transport: TlsTransportLayer) -> None:
    assert select.select([transport.fileno()], [], [], WAIT_S)[0], "nothing came"


def wait_writable(transport: TlsTransportLayer) -> None:
    assert select.select([], [transport.fileno()], [], WAIT_S)[1], "nobody reads"


def shake(transport: TlsTransportLayer) -> None:
    """Completes a handshake in this thread, as a selector would."""
    while not transport.is_ready:
        wanted = transport.handshake()
        if wanted == ELSEWHERE:
            stepped = threading.Event()
            transport.continue_elsewhere(stepped.set)
            assert stepped.wait(WAIT_S)
        elif wanted:
            readable = [transport.fileno()] if wanted & READ else []
            writable = [transport.fileno()] if wanted & WRITE else []
            assert any(select.select(readable, writable, [], WAIT_S)), "the handshake does not continue"


def shake_both(one: TlsTransportLayer, other: TlsTransportLayer) -> None:
    while not (one.is_ready and other.is_ready):
        for transport in (one, other):
            if not transport.is_ready:
                transport.handshake()


@contextmanager
def transports(
    directory: Path, *, newest: ssl.TLSVersion = TLS_1_3, buffers: int | None = None
) -> Iterator[tuple[TlsTransportLayer, TlsTransportLayer]]:
    """A server's and a client's, connected."""
    sizes: dict[str, Any] = {} if buffers is None else {"send_buffer": buffers, "receive_buffer": buffers}
    with nothing_left_behind(), tcp_pair(**sizes) as (accepted, connected):
        connected.setblocking(False)
        server = TlsTransportLayer(
            accepted, context(directory, server_side=True, identity=PKI.server_ec, newest=newest), server_side=True
        )
        client = TlsTransportLayer(
            connected,
            context(directory, server_side=False, trusted=PKI.authority),
            server_side=False,
            server_hostname="localhost",
        )
        try:
            shake_both(client, server)
            yield server, client
        finally:
            server.close()
            client.close()


def receive(transport: TlsTransportLayer, count: int, size: int = 1 << 17) -> bytes:
    data = b""
    while len(data) < count:
        try:
            part = transport.recv(min(size, count - len(data)))
        except BlockingIOError:
            assert not transport.has_bytes_buffered
            wait_readable(transport)
        else:
            assert part, "the stream ended"
            data += bytes(part)
    return data


def send_all(transport: TlsTransportLayer, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[transport.send(view) :]
        except BlockingIOError:
            wait_writable(transport)


def in_thread(function: Any) -> threading.Thread:
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread


# ---------------------------------------------------------------------------------------------------- handshake


@pytest.mark.mechanism("A01")
@pytest.mark.parametrize("newest", [TLS_1_2, TLS_1_3], ids=["1.2", "1.3"])
def test_both_versions_and_both_directions(tmp_path: Path, newest: ssl.TLSVersion) -> None:
    with transports(tmp_path, newest=newest) as (server, client):
        assert server.version == client.version == ("TLSv1.3" if newest is TLS_1_3 else "TLSv1.2")
        assert client.peer_certificate == PKI.server_ec.der
        assert server.peer_certificate is None
        send_all(client, b"hello")
        assert receive(server, 5) == b"hello"
        send_all(server, b"there")
        assert receive(client, 5) == b"there"


@pytest.mark.mechanism("A01")
def test_a_client_certificate_reaches_the_server(tmp_path: Path) -> None:
    with nothing_left_behind(), tcp_pair() as (accepted, connected):
        connected.setblocking(False)
        required = context(
            tmp_path, server_side=True, identity=PKI.server, trusted=PKI.authority, required=True
        )  # RSA: the slow one
        client_context = context(tmp_path, server_side=False, identity=PKI.client, trusted=PKI.authority)
        server = TlsTransportLayer(accepted, required, server_side=True)
        client = TlsTransportLayer(connected, client_context, server_side=False, server_hostname="127.0.0.1")
        shake_both(client, server)
        assert server.peer_certificate == PKI.client.der
        server.close()
        client.close()


@pytest.mark.mechanism("A01")
def test_half_a_client_hello_waits_for_the_rest(tmp_path: Path) -> None:
    """Byte by byte, the handshake never waits for any of them."""
    with nothing_left_behind(), tcp_pair() as (accepted, connected):
        server_context = context(tmp_path, server_side=True, identity=PKI.server_ec)
        server = TlsTransportLayer(accepted, server_context, server_side=True)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        engine = context(tmp_path, server_side=False).wrap_bio(incoming, outgoing)
        with suppress(ssl.SSLWantReadError):
            engine.do_handshake()
        hello = outgoing.read()
        for byte in hello[:-1]:
            connected.sendall(bytes([byte]))
            wait_readable(server)
            assert server.handshake() == READ
        assert not select.select([connected], [], [], 0)[0], "an answer to half a message"
        connected.sendall(hello[-1:])
        wait_readable(server)
        server.handshake()
        assert select.select([connected], [], [], WAIT_S)[0]
        server.close()


def rejected_by_both(
    directory: Path, server_context: ssl.SSLContext, client_context: ssl.SSLContext, host: str = "localhost"
) -> tuple[Exception | None, Exception | None]:
    """What each side says in the end: the server's and the client's error."""
    errors: list[Exception | None] = [None, None]
    with nothing_left_behind(), tcp_pair() as (accepted, connected):
        connected.setblocking(False)
        server = TlsTransportLayer(accepted, server_context, server_side=True)
        client = TlsTransportLayer(connected, client_context, server_side=False, server_hostname=host)

        def run(at: int, transport: TlsTransportLayer) -> None:
            try:
                shake(transport)
                receive(transport, 1)
            except Exception as error:  # noqa: BLE001 - it is what the test looks at
                errors[at] = error
            finally:
                transport.close()

        other = in_thread(partial(run, 0, server))
        run(1, client)
        other.join(WAIT_S)
    return errors[0], errors[1]


@pytest.mark.mechanism("A01")
@pytest.mark.parametrize(
    ("identity", "host", "said_by_client", "said_by_server"),
    [
        ("expired", "localhost", "certificate has expired", "expired or is not yet valid"),
        ("not_yet_valid", "localhost", "certificate is not yet valid", ""),
        ("wrong_host", "localhost", "not valid for 'localhost'", ""),
        ("wrong_host", "127.0.0.1", "IP address mismatch", ""),
        ("stranger", "localhost", "unable to get local issuer certificate", "does not trust our certificate"),
    ],
)
def test_a_client_says_why_it_rejects_a_server(
    tmp_path: Path, identity: str, host: str, said_by_client: str, said_by_server: str
) -> None:
    server_error, client_error = rejected_by_both(
        tmp_path,
        context(tmp_path, server_side=True, identity=getattr(PKI, identity)),
        context(tmp_path, server_side=False, trusted=PKI.authority),
        host,
    )
    assert isinstance(client_error, SslAuthenticationError)
    assert said_by_client in str(client_error)
    assert isinstance(server_error, SslAuthenticationError)
    assert said_by_server in str(server_error)


@pytest.mark.mechanism("A01")
@pytest.mark.parametrize("newest", [TLS_1_2, TLS_1_3], ids=["1.2", "1.3"])
@pytest.mark.parametrize(
    ("identity", "said_by_server", "said_by_client"),
    [
        (None, "the client sent no certificate", "certificate"),
        ("expired", "certificate has expired", "expired or is not yet valid"),
        ("stranger", "unable to get local issuer certificate", "does not trust our certificate"),
    ],
)
def test_a_server_says_why_it_rejects_a_client(
    tmp_path: Path, newest: ssl.TLSVersion, identity: str | None, said_by_server: str, said_by_client: str
) -> None:
    """With TLS 1.3 the client learns it only after its own handshake is complete, and it is still a failed one."""
    server_error, client_error = rejected_by_both(
        tmp_path,
        context(
            tmp_path,
            server_side=True,
            identity=PKI.server_ec,
            trusted=PKI.authority,
            required=True,
            newest=newest,
        ),
        context(
            tmp_path,
            server_side=False,
            trusted=PKI.authority,
            identity=None if identity is None else getattr(PKI, identity),
        ),
    )
    assert isinstance(server_error, SslAuthenticationError)
    assert said_by_server in str(server_error)
    assert isinstance(client_error, SslAuthenticationError)
    assert said_by_client in str(client_error)


@pytest.mark.mechanism("A01")
@pytest.mark.parametrize(
    ("first", "said"),
    [
        (
            b"\x00\x00\x00\x23\x00\x12\x00\x03\x00\x00\x00\x00\x00\x06client",
            "a plaintext Kafka request; the client must",
        ),
        (b"GET / HTTP/1.1\r\n\r\n", "an HTTP request"),
        (b"hello, castle", "text that begins with 'hello, c'"),
        (bytes(range(128, 160)), "bytes that begin with 80 81 82 83 84"),
        (b"\x16\x09\x01\x02\x00" + bytes(600), "bytes that begin with 16 09"),
    ],
    ids=["kafka", "http", "text", "bytes", "version"],
)
def test_a_client_that_does_not_speak_tls_is_recognized(tmp_path: Path, first: bytes, said: str) -> None:
    with nothing_left_behind(), tcp_pair() as (accepted, connected):
        server_context = context(tmp_path, server_side=True, identity=PKI.server_ec)
        server = TlsTransportLayer(accepted, server_context, server_side=True)
        connected.sendall(first)
        wait_readable(server)
        with pytest.raises(SslAuthenticationError, match="the listener expects TLS") as raised:
            server.handshake()
        assert said in str(raised.value)
        server.close()
        connected.settimeout(WAIT_S)
        assert connected.recv(100)[:2] == b"\x15\x03", "an alert, which our client understands"
        assert connected.recv(100) == b"", "and no reset"


def test_a_server_that_does_not_speak_tls_is_recognized(tmp_path: Path) -> None:
    with nothing_left_behind(), tcp_pair() as (connected, accepted):
        client = TlsTransportLayer(connected, context(tmp_path, server_side=False), server_side=False)
        client.handshake()
        accepted.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        wait_readable(client)
        with pytest.raises(SslAuthenticationError, match="the listener does not use TLS: it sent an HTTP response"):
            shake(client)
        client.close()


def test_a_plaintext_listener_that_hangs_up_is_suspected(tmp_path: Path) -> None:
    with nothing_left_behind(), tcp_pair() as (connected, accepted):
        client = TlsTransportLayer(connected, context(tmp_path, server_side=False), server_side=False)
        client.handshake()
        accepted.settimeout(WAIT_S)
        accepted.recv(4096)
        accepted.close()
        with pytest.raises(EOFError, match="the listener may not use TLS"):
            shake(client)
        client.close()


@pytest.mark.mechanism("A01")
def test_a_giant_certificate_is_refused_before_it_is_collected(tmp_path: Path) -> None:
    giant = PKI.authority.issue("CN=giant", padding=200_000)
    server_error, client_error = rejected_by_both(
        tmp_path,
        context(tmp_path, server_side=True, identity=PKI.server_ec, trusted=PKI.authority, required=True),
        context(tmp_path, server_side=False, identity=giant, trusted=PKI.authority),
    )
    assert isinstance(server_error, SslAuthenticationError)
    assert client_error is not None


@pytest.mark.mechanism("A01")
def test_a_handshake_without_end_is_refused(tmp_path: Path) -> None:
    """TLS allows empty handshake records and change-cipher-spec for ever; the sum is limited."""
    with nothing_left_behind(), tcp_pair() as (accepted, connected):
        server_context = context(tmp_path, server_side=True, identity=PKI.server_ec)
        server = TlsTransportLayer(accepted, server_context, server_side=True)
        # A ClientHello that announces 16 MiB, in records that never complete it.
        record = b"\x16\x03\x01\x00\x04\x01\xff\xff\xff" + b"\x16\x03\x01\x40\x00" + bytes(RECORD)
        with pytest.raises(SslAuthenticationError):  # noqa: PT012
            for _ in range(2 * MAX_HANDSHAKE_BYTES // len(record)):
                connected.sendall(record)
                wait_readable(server)
                server.handshake()
        server.close()


@pytest.mark.mechanism("A01")
def test_the_bytes_of_a_handshake_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where OpenSSL would take them: here those of a valid ClientHello."""
    monkeypatch.setattr("barnabas.network.transport.tls.MAX_HANDSHAKE_BYTES", 100)
    with nothing_left_behind(), tcp_pair() as (accepted, connected):
        server_context = context(tmp_path, server_side=True, identity=PKI.server_ec)
        server = TlsTransportLayer(accepted, server_context, server_side=True)
        connected.sendall(recorded_flights(tmp_path)[0])
        wait_readable(server)
        with pytest.raises(SslAuthenticationError, match="the peer sent more than 100 bytes"):
            server.handshake()
        server.close()


@pytest.mark.mechanism("A01")
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(first=st.binary(min_size=1, max_size=300), tls=st.booleans())
def test_no_bytes_make_a_handshake(tmp_path: Path, first: bytes, tls: bool) -> None:
    """Random bytes, as such and in a record: never ready, and no error but the declared ones."""
    if tls:
        first = b"\x16\x03\x01" + len(first).to_bytes(2) + first
    with tcp_pair() as (accepted, connected):
        server_context = context(tmp_path, server_side=True)
        server = TlsTransportLayer(accepted, server_context, server_side=True)
        connected.sendall(first)
        connected.shutdown(socket.SHUT_WR)
        with pytest.raises((SslAuthenticationError, EOFError, ConnectionError)):  # noqa: PT012
            while True:
                wait_readable(server)
                server.handshake()
        assert not server.is_ready
        server.close()


def recorded_flights(directory: Path) -> list[bytes]:
    """The flights of a client with a certificate: its hello, and its last one for one server that is gone."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    to_client = ssl.MemoryBIO()
    client = context(directory, server_side=False, identity=PKI.client).wrap_bio(to_client, outgoing)
    server_context = context(
        directory, server_side=True, identity=PKI.server_ec, trusted=PKI.authority, required=True, newest=TLS_1_2
    )
    server = server_context.wrap_bio(incoming, to_client, server_side=True)
    flights = []
    for _ in range(2):
        with suppress(ssl.SSLWantReadError):
            client.do_handshake()
        flights.append(outgoing.read())
        incoming.write(flights[-1])
        with suppress(ssl.SSLWantReadError):
            server.do_handshake()
    return flights


@pytest.mark.mechanism("A01")
@pytest.mark.parametrize("cases", [2_000, pytest.param(100_000, marks=pytest.mark.nightly)])
def test_damaged_flights_make_no_handshake(tmp_path: Path, cases: int, record_property: Any) -> None:
    """A client's messages with bytes changed, removed, inserted and repeated: no crash, no leak, and never ready."""
    chance = random.Random(cases)
    flights = recorded_flights(tmp_path)
    server_context = context(
        tmp_path, server_side=True, identity=PKI.server_ec, trusted=PKI.authority, required=True, newest=TLS_1_2
    )
    with nothing_left_behind():
        for _ in range(cases):
            one, other = socket.socketpair()
            one.setblocking(False)
            server = TlsTransportLayer(one, server_context, server_side=True)
            try:
                for flight in flights:
                    damaged = bytearray(flight)
                    for _ in range(chance.randrange(4)):
                        at = chance.randrange(len(damaged))
                        match chance.randrange(4):
                            case 0:
                                damaged[at] = chance.randrange(256)
                            case 1:
                                del damaged[at : at + chance.randrange(1, 50)]
                                damaged = damaged or bytearray(1)
                            case 2:
                                damaged[at:at] = chance.randbytes(chance.randrange(1, 50))
                            case _:
                                damaged += damaged[at:]
                    other.sendall(damaged)
                    server.handshake()
                other.close()
                for _ in range(4):
                    server.handshake()
            except (SslAuthenticationError, EOFError, ConnectionError):
                pass
            assert not server.is_ready
            server.close()
            other.close()
    record_property("fuzz_cases", cases)


# ---------------------------------------------------------------------------------------------------- receiving


@pytest.mark.mechanism("A01")
def test_what_is_left_of_a_record_is_announced(tmp_path: Path) -> None:
    with transports(tmp_path) as (server, client):
        send_all(client, b"0123456789")
        wait_readable(server)
        assert receive(server, 4, size=4) == b"0123"
        assert server.has_bytes_buffered
        assert not select.select([server.fileno()], [], [], 0)[0], "no poller would tell"
        assert receive(server, 6, size=4) == b"456789"
        with pytest.raises(BlockingIOError):
            server.recv(10)
        assert not server.has_bytes_buffered


@pytest.mark.mechanism("A01")
def test_half_a_record_is_not_announced(tmp_path: Path) -> None:
    """A selector reads announced bytes without waiting: it would spin until the other half comes."""
    with tcp_pair() as (accepted, connected):
        server_context = context(tmp_path, server_side=True, identity=PKI.server_ec)
        server = TlsTransportLayer(accepted, server_context, server_side=True)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        engine = context(tmp_path, server_side=False).wrap_bio(incoming, outgoing)
        connected.settimeout(WAIT_S)
        while not server.is_ready:
            try:
                engine.do_handshake()
                incomplete = False
            except ssl.SSLWantReadError:
                incomplete = True
            connected.sendall(outgoing.read())
            shaking = in_thread(partial(shake, server)) if not incomplete else None
            if shaking is None:
                wait_readable(server)
                server.handshake()
                incoming.write(connected.recv(1 << 16))
            else:
                shaking.join(WAIT_S)
        engine.write(b"a whole record")
        engine.write(b"and another")
        whole = outgoing.read()
        connected.sendall(whole[:-1])
        assert receive(server, 14) == b"a whole record"
        with pytest.raises(BlockingIOError):  # noqa: PT012
            while True:
                server.recv(100)
        assert not server.has_bytes_buffered
        connected.sendall(whole[-1:])
        assert receive(server, 11) == b"and another"
        server.close()


@pytest.mark.parametrize("size", [1, 3, 1000, RECORD, RECORD + 1, 1 << 17])
def test_reads_of_any_size(tmp_path: Path, size: int) -> None:
    data = os.urandom(min(300 * size, 3 * CHUNK + 7))
    with transports(tmp_path) as (server, client):
        sender = in_thread(partial(send_all, client, data))
        assert receive(server, len(data), size) == data
        sender.join(WAIT_S)
        received = bytearray(len(data))
        view = memoryview(received)
        sender = in_thread(partial(send_all, client, data))
        while view:
            try:
                view = view[server.recv_into(view[:size]) :]
            except BlockingIOError:
                assert not server.has_bytes_buffered
                wait_readable(server)
        sender.join(WAIT_S)
        assert received == data


@pytest.mark.mechanism("A01")
def test_the_end_is_told_from_a_truncation(tmp_path: Path) -> None:
    with transports(tmp_path) as (server, client):
        send_all(client, b"last words")
        client.close()
        assert receive(server, 10) == b"last words"
        wait_readable(server)
        assert server.recv(10) == b""
        assert server.recv_into(bytearray(10)) == 0
    with transports(tmp_path) as (server, client):
        send_all(client, b"last words")
        client.socket.shutdown(socket.SHUT_WR)
        assert receive(server, 10) == b"last words"
        with pytest.raises(EOFError, match="truncated"):
            server.recv(10)


@pytest.mark.mechanism("A01")
@pytest.mark.parametrize("left", [False, True], ids=["peer-there", "peer-left"])
def test_close_notify_goes_to_a_peer_that_may_read_it(tmp_path: Path, left: bool) -> None:
    """One that ended the stream without close_notify has left: its close costs the close of a socket and no more."""
    with transports(tmp_path) as (server, client):
        send_all(server, b"first")  # after the session ticket
        assert receive(client, 5) == b"first"
        if left:
            client.socket.shutdown(socket.SHUT_WR)
            wait_readable(server)
            with pytest.raises(EOFError):
                server.recv(10)
        server.close()
        wait_readable(client)
        if left:
            assert client.socket.recv(100) == b""
        else:
            assert client.recv(100) == b""  # the end, and no truncation


def test_a_damaged_record_ends_the_connection_after_what_came_before(tmp_path: Path) -> None:
    with transports(tmp_path) as (server, client):
        client._write(b"intact")
        whole = client._take()
        client._write(b"damaged")
        damaged = bytearray(client._take())
        damaged[-1] ^= 1
        client.socket.sendall(whole + damaged)
        assert receive(server, 6) == b"intact"
        with pytest.raises(ConnectionAbortedError, match="damaged record"):
            receive(server, 1)


@pytest.mark.mechanism("A01")
def test_renegotiation_is_refused(tmp_path: Path) -> None:
    """With TLS 1.2, by ``openssl s_client``, which renegotiates on an R."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl")
    server_context = context(tmp_path, server_side=True, identity=PKI.server_ec, newest=TLS_1_2)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        program = subprocess.Popen(
            [openssl, "s_client", "-tls1_2", "-connect", f"127.0.0.1:{listening.getsockname()[1]}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert program.stdin is not None
        accepted, _ = listening.accept()
        accepted.setblocking(False)
        server = TlsTransportLayer(accepted, server_context, server_side=True)
        try:
            shake(server)
            program.stdin.write(b"before\n")
            program.stdin.flush()
            assert receive(server, 7) == b"before\n"
            program.stdin.write(b"R\n")
            program.stdin.flush()
            with suppress(EOFError, ConnectionError):
                receive(server, 1)
        finally:
            server.close()
            said = program.communicate(timeout=WAIT_S)[0].decode()
    assert "RENEGOTIATING" in said
    assert "no renegotiation" in said.lower()


# ---------------------------------------------------------------------------------------------------- sending


@pytest.mark.mechanism("A01")
def test_a_write_counts_when_its_last_byte_is_out(tmp_path: Path) -> None:
    """Otherwise the selector would stop watching for writability with ciphertext left over."""
    with transports(tmp_path, buffers=4096) as (server, client):
        data = os.urandom(5 * CHUNK + 11)
        send = NetworkSend([data])
        received = bytearray()
        while send.remaining:
            send.write_to(server)
            with suppress(BlockingIOError):
                received += client.recv(1 << 16)
        assert server._rest is None
        assert not server._unreported
        received += receive(client, len(data) - len(received))
        assert received == data


def test_nothing_is_sent_before_the_handshake_is_complete(tmp_path: Path) -> None:
    with tcp_pair() as (connected, accepted):
        client = TlsTransportLayer(connected, context(tmp_path, server_side=False), server_side=False)
        for send in (client.send, client.send_more, lambda data: client.sendmsg([data])):
            with pytest.raises(BlockingIOError, match="handshake is not complete"):
                send(b"too early")
        with pytest.raises(BlockingIOError, match="handshake is not complete"):
            client.send_file(0, 0, 10)
        assert not select.select([accepted], [], [], 0)[0]
        client.close()


@pytest.mark.parametrize("newest", [TLS_1_2, TLS_1_3], ids=["1.2", "1.3"])
def test_pieces_and_files_arrive_in_order(tmp_path: Path, newest: ssl.TLSVersion) -> None:
    path = tmp_path / "00000000000000000000.log"
    contents = os.urandom(3 * CHUNK + 100)
    path.write_bytes(contents)
    with path.open("rb") as file, transports(tmp_path, newest=newest, buffers=8192) as (server, client):
        fd = file.fileno()
        pieces: list[Any] = [
            b"head",
            FileRegion(fd, 10, 2 * CHUNK),
            b"between",
            FileRegion(fd, 0, 3 * CHUNK + 100),
            os.urandom(3000),
            bytearray(os.urandom(2 * CHUNK)),
            memoryview(os.urandom(20_000)),
        ]
        expected = b"".join(
            contents[piece.position : piece.position + piece.count] if isinstance(piece, FileRegion) else bytes(piece)
            for piece in pieces
        )
        send = NetworkSend(pieces)

        def write() -> None:
            while send.remaining:
                if not send.write_to(server):
                    wait_writable(server)

        writer = in_thread(write)
        assert receive(client, len(expected)) == expected
        writer.join(WAIT_S)
        assert not send.remaining


def test_a_file_that_shrank_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "short"
    path.write_bytes(bytes(1000))
    with path.open("rb") as file, transports(tmp_path) as (server, _):
        assert server.send_file(file.fileno(), 0, 5000) == 1000
        assert server.send_file(file.fileno(), 1000, 4000) == 0


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(st.one_of(st.integers(0, 40), st.integers(CHUNK - 2, CHUNK + 2), st.integers(1, 3 * CHUNK))), st.data())
def test_chunks_are_the_pieces(sizes: list[int], data: st.DataObject) -> None:
    pieces = [os.urandom(size) for size in sizes]
    whole = b"".join(pieces)
    skip = data.draw(st.integers(0, len(whole)))
    chunks = [bytes(chunk) for chunk in _chunks(pieces, skip)]
    assert b"".join(chunks) == whole[skip:]
    assert all(0 < len(chunk) <= CHUNK for chunk in chunks if len(chunks) > 1)


# ---------------------------------------------------------------------------------------------------- elsewhere


@pytest.mark.mechanism("A01")
def test_a_step_runs_in_the_pool_and_touches_no_socket(tmp_path: Path) -> None:
    ran: list[str] = []
    with nothing_left_behind(), tcp_pair() as (accepted, connected):
        pool = HandshakePool(1, "shaker")
        server_context = context(tmp_path, server_side=True, identity=PKI.server)
        server = TlsTransportLayer(accepted, server_context, server_side=True, handshakes=pool)
        run_engine = server._engine.do_handshake
        client_context = context(tmp_path, server_side=False, trusted=PKI.authority)

        def connect() -> None:
            client_context.wrap_socket(connected, server_hostname="localhost").close()

        client = in_thread(connect)

        class Engine:
            def __getattr__(self, name: str) -> Any:
                return getattr(engine, name)

            def do_handshake(self) -> None:
                ran.append(threading.current_thread().name)
                run_engine()

        engine, server._engine = server._engine, Engine()  # type: ignore[assignment]
        shake(server)
        client.join(WAIT_S)
        assert set(ran) == {"shaker-0"}
        server.close()
        pool.close()


@pytest.mark.mechanism("A01")
def test_a_connection_may_be_closed_during_its_step(tmp_path: Path) -> None:
    with nothing_left_behind(), tcp_pair() as (accepted, connected):
        pool = HandshakePool(1)
        hold, held = threading.Event(), threading.Event()

        def occupy() -> None:
            held.set()
            assert hold.wait(WAIT_S)

        pool.submit(occupy)
        assert held.wait(WAIT_S)
        server_context = context(tmp_path, server_side=True, identity=PKI.server)
        server = TlsTransportLayer(accepted, server_context, server_side=True, handshakes=pool)
        connected.sendall(b"\x16\x03\x01")
        wait_readable(server)
        assert server.handshake() == ELSEWHERE
        server.continue_elsewhere(lambda: None)
        assert server.handshake() == 0, "nothing to do here while it runs there"
        server.close()
        hold.set()
        pool.close()
        assert server._phase is Phase.CLOSED


@pytest.mark.mechanism("A01")
def test_the_queue_of_steps_is_bounded() -> None:
    pool = HandshakePool(1, capacity=2)
    hold, held = threading.Event(), threading.Event()

    def occupy() -> None:
        held.set()
        assert hold.wait(WAIT_S)

    order: list[int] = []
    pool.submit(occupy)
    assert held.wait(WAIT_S)
    pool.submit(partial(order.append, 1))
    pool.submit(partial(order.append, 2))
    with pytest.raises(HandshakesBusyError, match="2 TLS handshakes are waiting"):
        pool.submit(partial(order.append, 3))
    hold.set()
    pool.close()
    assert order == [1, 2]
    with pytest.raises(HandshakesBusyError, match="stopped"):
        pool.submit(occupy)
    pool.close()


def test_a_pool_without_work_has_no_threads_and_an_error_ends_none(caplog: pytest.LogCaptureFixture) -> None:
    with nothing_left_behind():
        pool = HandshakePool(1)
        assert not pool._threads
        done = threading.Event()
        pool.submit(lambda: 1 // 0)  # type: ignore[arg-type]
        pool.submit(done.set)
        assert done.wait(WAIT_S)
        pool.close()
    assert "failed unexpectedly" in caplog.text
    with pytest.raises(ValueError, match="at least 1 thread"):
        HandshakePool(0)


def test_a_repr_names_the_state(tmp_path: Path) -> None:
    with transports(tmp_path) as (server, client):
        assert repr(server) == "TlsTransportLayer(server, READY, TLSv1.3)"
        assert repr(client) == "TlsTransportLayer(client, READY, TLSv1.3)"
        assert server.cipher is not None
