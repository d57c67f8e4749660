"""The TLS transport: encrypts and decrypts in memory, and moves the ciphertext through a non-blocking socket.

The TLS engine is an ``ssl.SSLObject`` between two memory buffers; it never sees the socket. An ``ssl.SSLSocket`` costs
more, because it makes one or two system calls per record of 16 KiB: a sender takes 0.78 instead of 0.72 s of processor
time per GB, a receiver 0.88 instead of 0.70 s. And another thread can run a step of the handshake without touching a
socket that this thread may close.

    socket --recv--> incoming --decrypt--> plaintext        recv, recv_into
    socket <--send-- outgoing <--encrypt-- plaintext        send, sendmsg, send_file

**Reading.** One ``recv`` can bring many records, and a caller may want less than one: decrypted or decryptable bytes
remain in memory, where no poller sees them. ``has_bytes_buffered`` is true if a read *may* return bytes without the
socket. It turns false when the engine asks for more ciphertext, so half a record does not make the selector spin.

**Writing.** What is encrypted must be sent exactly once, but the socket may take only part of it. A write is reported
only when its ciphertext is out. The caller keeps what was not reported and offers it again; `_unreported` says how
much of that is encrypted already. So a message is complete only when its last byte has left this process, and the
selector watches for writability until then.

    send(100 KB)   encrypts 64 KB; the socket takes 20 KB of it    -> BlockingIOError, _unreported = 64 KB
    send(100 KB)   the socket takes the rest; skips 64 KB,
                   encrypts 36 KB, the socket takes all            -> 100 KB

**Kernel TLS** (``sendfile`` under TLS) is not used. It needs an ``ssl.SSLSocket``, the kernel module ``tls``, which
``/proc/sys/net/ipv4/tcp_available_ulp`` lists, and an interpreter whose ``SSLSocket.sendfile`` uses it: CPython 3.15;
3.12 to 3.14 can only enable it. It would be another transport, chosen by the channel factory where all three exist.
Here `send_file` reads the file in chunks.
"""

from __future__ import annotations

import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from enum import IntEnum, auto
from typing import Any, Final

from barnabas.common.errors import SslAuthenticationError
from barnabas.network.transport import ELSEWHERE, READ, WRITE, PlaintextTransportLayer
from barnabas.network.transport.foreign import KAFKA_REQUEST, PLAINTEXT_ALERT, name_plaintext, speaks_tls
from barnabas.network.transport.handshakes import HandshakePool
from barnabas.network.transport.tls_errors import explain_tls_error

RECORD: Final = 1 << 14
"""The maximum plaintext of a TLS record. OpenSSL decrypts, and with partial writes encrypts, one record per call."""
CHUNK: Final = 1 << 16
"""How much is encrypted before it is sent. A quarter of it costs 30 % more processor time, twice as much no less."""
READ_CHUNK: Final = 1 << 17
"""How much ciphertext is read from the socket at once. A quarter of it costs 20 % more, twice as much no less."""
OVERHEAD: Final = 1 << 9
"""More than the bytes that encryption adds to a record."""
MAX_HANDSHAKE_BYTES: Final = 1 << 18
"""How much a peer may send before the handshake is complete. OpenSSL accepts certificates of 100 KiB."""
MAX_BACKLOG: Final = 1 << 20
"""How much ciphertext may wait for the socket. Only a peer that provokes alerts and never reads them gets there."""
_DRAINED_AT_CLOSE: Final = 1 << 18
_SNIFFED: Final = 16

_local: Final = threading.local()


def _scratch() -> memoryview:
    """Returns this thread's buffer, for bytes between a system call and the engine."""
    try:
        buffer: memoryview = _local.buffer
    except AttributeError:
        buffer = _local.buffer = memoryview(bytearray(READ_CHUNK))
    return buffer


class Phase(IntEnum):
    """The life of a TLS connection. A phase lists the phases that may follow."""

    NEGOTIATING = auto()
    """Waits for the peer's next flight, or for its own to go out."""
    ELSEWHERE = auto()
    """A handshake thread runs a step; only it touches the engine."""
    STEPPED = auto()
    """The step is done, and its result has not been looked at."""
    FINISHING = auto()
    """The engine has finished; its last flight has yet to go out."""
    READY = auto()
    FAILED = auto()
    """The handshake failed."""
    CLOSED = auto()


TRANSITIONS: Final = {
    Phase.NEGOTIATING: {Phase.ELSEWHERE, Phase.STEPPED, Phase.FAILED, Phase.CLOSED},
    Phase.ELSEWHERE: {Phase.STEPPED, Phase.FAILED, Phase.CLOSED},
    Phase.STEPPED: {Phase.NEGOTIATING, Phase.FINISHING, Phase.FAILED, Phase.CLOSED},
    Phase.FINISHING: {Phase.READY, Phase.CLOSED},
    Phase.READY: {Phase.CLOSED},
    Phase.FAILED: {Phase.CLOSED},
    Phase.CLOSED: {Phase.CLOSED},
}


class TlsTransportLayer:
    """Sends and receives bytes encrypted. Belongs to the selector's thread, except for one step of a handshake."""

    __slots__ = (
        "_engine",
        "_error",
        "_finished",
        "_handshakes",
        "_heard",
        "_incoming",
        "_outgoing",
        "_peer_closed",
        "_peer_gone",
        "_phase",
        "_push",
        "_rest",
        "_server_side",
        "_sniffed",
        "_socket",
        "_started",
        "_take",
        "_tcp",
        "_trusted",
        "_unreported",
        "_write",
        "has_bytes_buffered",
        "is_ready",
    )

    send_whole: Callable[[list[Any], int], bool] | None = None
    push: Callable[[], None] | None = None
    special_frame: Callable[[memoryview, int, Any], tuple[memoryview | None, int] | None] | None = None
    reads_all = True
    """A read that returns fewer bytes than requested has emptied the socket."""

    def __init__(
        self,
        sock: socket.socket,
        ssl_context: ssl.SSLContext,
        *,
        server_side: bool,
        server_hostname: str | None = None,
        handshakes: HandshakePool | None = None,
    ) -> None:
        """``handshakes`` runs the steps of the handshake; without it they run in the selector's thread."""
        self._socket = sock
        self._tcp = PlaintextTransportLayer(sock)
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._engine = ssl_context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side, server_hostname=server_hostname
        )
        self._write = self._engine.write
        self._take = self._outgoing.read
        self._push = self._tcp.send
        self._server_side = server_side
        self._handshakes = handshakes
        self._phase = Phase.NEGOTIATING
        self._started = server_side
        """False until a client has sent its first flight."""
        self._finished = False
        """Whether the last step finished the handshake."""
        self._error: Exception | None = None
        """The failure of the last step, or of a read that has returned plaintext before it."""
        self._sniffed = b""
        """The peer's first bytes."""
        self._heard = 0
        """How many bytes the peer has sent during the handshake."""
        self._trusted = False
        """Whether the peer has sent application data. Before, a TLS 1.3 client does not know whether the server accepts
        its certificate, and an alert means that it does not."""
        self._peer_closed = False
        """Whether the peer sent close_notify."""
        self._peer_gone = False
        """Whether the stream has ended: nobody is left to read a close_notify of ours."""
        self._rest: memoryview | bytes | None = None
        """Ciphertext that is no longer in `_outgoing` and not yet sent."""
        self._unreported = 0
        """How many bytes, of those that the next write offers first, are encrypted already."""
        self.is_ready = False
        self.has_bytes_buffered = False

    def _enter(self, phase: Phase) -> None:
        if phase not in TRANSITIONS[self._phase]:
            raise RuntimeError(f"a TLS connection cannot go from {self._phase.name} to {phase.name}")
        self._phase = phase

    # -- handshake

    def handshake(self) -> int:
        """Continues the handshake; see `TransportLayer.handshake`.

        Raises `SslAuthenticationError` if one side rejects the other, or the peer does not speak TLS.
        """
        if self._phase is Phase.ELSEWHERE:
            return 0
        if self._phase is Phase.NEGOTIATING:
            if not self._flush():
                return WRITE
            if self._started and not self._receive_flight():
                return READ
            self._started = True
            if self._handshakes is not None:
                return ELSEWHERE
            self._step()
        if self._phase is Phase.STEPPED:
            self._judge_step()
        if not self._flush():
            return WRITE
        if self._phase is Phase.NEGOTIATING:
            return READ
        self._enter(Phase.READY)
        self.is_ready = True
        self.has_bytes_buffered = self._incoming.pending > 0
        return 0

    def continue_elsewhere(self, done: Callable[[], None]) -> None:
        """Runs the next step in a handshake thread, which then calls ``done``. For `handshake` == ``ELSEWHERE``."""
        assert self._handshakes is not None
        self._enter(Phase.ELSEWHERE)
        try:
            self._handshakes.submit(lambda: self._step_elsewhere(done))
        except ConnectionError:
            self._enter(Phase.FAILED)
            raise

    def _step_elsewhere(self, done: Callable[[], None]) -> None:
        if self._phase is Phase.ELSEWHERE:  # not closed meanwhile
            try:
                self._run_engine()
            finally:
                with suppress(RuntimeError):  # closed during the step
                    self._enter(Phase.STEPPED)
                done()

    def _step(self) -> None:
        self._run_engine()
        self._enter(Phase.STEPPED)

    def _run_engine(self) -> None:
        """Runs the handshake in memory, up to the point where it needs the peer's next flight."""
        try:
            self._engine.do_handshake()
            self._finished = True
        except ssl.SSLWantReadError:
            pass
        except (ssl.SSLError, ValueError) as error:  # ValueError: a certificate that Python cannot parse
            self._error = error

    def _judge_step(self) -> None:
        error = self._error
        if error is not None:
            self._error = None
            with suppress(OSError):  # the alert tells the peer why; it may be gone
                self._flush()
            raise self._failed(f"TLS handshake failed: {explain_tls_error(error)}") from error
        self._enter(Phase.FINISHING if self._finished else Phase.NEGOTIATING)

    def _failed(self, message: str) -> SslAuthenticationError:
        self._enter(Phase.FAILED)
        return SslAuthenticationError(message)

    def _receive_flight(self) -> bool:
        """Reads what the peer has sent of its next flight; returns whether there was anything."""
        buffer = _scratch()
        try:
            count = self._tcp.recv_into(buffer)
        except BlockingIOError:
            return False
        if not count:
            raise EOFError(
                "the client closed the connection during the TLS handshake; it may not trust the server's certificate"
                if self._server_side
                else "the server closed the connection during the TLS handshake; the listener may not use TLS"
            )
        if len(self._sniffed) < 2:
            self._sniffed = (self._sniffed + bytes(buffer[:_SNIFFED]))[:_SNIFFED]
            if not speaks_tls(self._sniffed, server_side=self._server_side):
                raise self._not_tls()
        self._heard += count
        if self._heard > MAX_HANDSHAKE_BYTES:
            raise self._failed(f"TLS handshake failed: the peer sent more than {MAX_HANDSHAKE_BYTES} bytes in it")
        self._incoming.write(buffer[:count])
        return True

    def _not_tls(self) -> SslAuthenticationError:
        found = name_plaintext(self._sniffed)
        if not self._server_side:
            return self._failed(f"the listener does not use TLS: it sent {found}; see security.protocol")
        with suppress(OSError):
            self._tcp.send(PLAINTEXT_ALERT)
        advice = "; the client must set security.protocol to SSL or SASL_SSL" if found == KAFKA_REQUEST else ""
        return self._failed(f"the listener expects TLS, and the client sent {found}{advice}")

    @property
    def peer_certificate(self) -> bytes | None:
        """The peer's verified certificate in DER; None if it sent none, or if it was not asked for one."""
        return self._engine.getpeercert(binary_form=True) if self.is_ready else None

    @property
    def version(self) -> str | None:
        """The negotiated version of TLS, such as ``TLSv1.3``."""
        return self._engine.version() if self.is_ready else None

    @property
    def cipher(self) -> str | None:
        """The negotiated cipher suite, by OpenSSL's name."""
        found = self._engine.cipher() if self.is_ready else None
        return None if found is None else found[0]

    # -- receiving

    def _fill(self) -> bool:
        """Moves ciphertext from the socket to the engine; returns whether the socket may have more.

        Raises ``BlockingIOError`` if there is none, and ``EOFError`` if the stream ends without close_notify.
        """
        buffer = _scratch()
        try:
            count = self._tcp.recv_into(buffer)
        except ConnectionError:
            self._peer_gone = True
            raise
        if not count:
            self._peer_gone = True
            raise EOFError("the peer closed the connection without TLS close_notify; the data may be truncated")
        self._incoming.write(buffer[:count])
        self.has_bytes_buffered = True
        return count == READ_CHUNK

    def recv(self, size: int) -> bytes | bytearray:
        if self._peer_closed:
            return b""
        if not self.has_bytes_buffered:
            self._fill()
        parts: list[bytes] = []
        room = size
        read = self._engine.read
        try:
            while room:
                data = read(min(room, RECORD))
                if not data:
                    self._end()
                    return b"".join(parts)
                parts.append(data)
                room -= len(data)
                if not self._incoming.pending:
                    break
        except ssl.SSLError as error:
            self._cannot_read(error, anything=bool(parts))
            if not parts:
                raise BlockingIOError("no complete TLS record has arrived") from None
        else:
            self.has_bytes_buffered = self._incoming.pending > 0 or self._engine.pending() > 0
        self._trusted = True
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def recv_into(self, buffer: Any) -> int:
        if self._peer_closed:
            return 0
        more = True
        if not self.has_bytes_buffered:
            more = self._fill()
        view = memoryview(buffer)
        size = len(view)
        count = 0
        read = self._engine.read
        while count < size:
            try:
                got: int = read(size - count, view[count:])  # type: ignore[assignment]
                if not got:
                    self._end()
                    return count
                count += got
            except ssl.SSLError as error:
                if not self._cannot_read(error, anything=count > 0) or not more:
                    break
                try:
                    more = self._fill()
                except (OSError, EOFError):
                    if not count:
                        raise
                    break  # the next read meets it again
        else:
            self.has_bytes_buffered = self._incoming.pending > 0 or self._engine.pending() > 0
        if not count:
            raise BlockingIOError("no complete TLS record has arrived")
        self._trusted = True
        return count

    def _end(self) -> None:
        """Notes the peer's close_notify."""
        self._peer_closed = True
        self.has_bytes_buffered = False

    def _cannot_read(self, error: ssl.SSLError, *, anything: bool) -> bool:
        """Handles an engine that returns no plaintext; returns whether more ciphertext would help.

        With ``anything`` this read has plaintext to return first; the next one raises the error.
        """
        failure = self._error or error
        if isinstance(failure, ssl.SSLWantReadError):
            self.has_bytes_buffered = False
            if self._outgoing.pending:  # the engine has refused something with an alert, such as renegotiation
                self._flush()
                if self._outgoing.pending > MAX_BACKLOG:
                    raise ConnectionAbortedError("the peer provokes TLS alerts and does not read them") from None
            return True
        if anything:
            self._error = failure
            return False
        self.has_bytes_buffered = False
        with suppress(OSError):
            self._flush()
        if not self._trusted and not self._server_side:
            # TLS 1.3: the server judges the client's certificate after the client has finished.
            raise SslAuthenticationError(f"TLS handshake failed: {explain_tls_error(failure)}") from failure
        raise ConnectionAbortedError(f"TLS failed: {explain_tls_error(failure)}") from failure

    def expect(self, count: int) -> None:
        """See `TransportLayer.expect`. Up to one record may be in memory already, so this waits for less."""
        self._tcp.expect(max(count - RECORD - OVERHEAD, 1))

    # -- sending

    def _flush(self) -> bool:
        """Sends ciphertext; returns whether all of it is out."""
        outgoing = self._outgoing
        rest = self._rest
        while True:
            if rest is None:
                if not outgoing.pending:
                    return True
                rest = self._take()
            try:
                sent = self._push(rest)
            except BlockingIOError:
                sent = 0
            if sent < len(rest):
                self._rest = memoryview(rest)[sent:]
                return False
            self._rest = rest = None

    def _settle(self) -> int:
        """Finishes the previous write; returns how many of the offered bytes it has sent already."""
        if not self.is_ready:  # the engine would continue the handshake by itself
            raise BlockingIOError("the TLS handshake is not complete")
        if not self._flush():
            raise BlockingIOError("the socket is full")
        settled, self._unreported = self._unreported, 0
        return settled

    def _encrypt(self, data: Any) -> None:
        write = self._write
        if len(data) <= RECORD:
            write(data)
        else:
            view = memoryview(data)
            for start in range(0, len(view), RECORD):
                write(view[start : start + RECORD])

    def _send_chunk(self, chunk: Any, done: int) -> bool:
        """Encrypts and sends; returns whether all of it is out. Raises if nothing was sent by this write at all."""
        self._encrypt(chunk)
        if self._flush():
            return True
        self._unreported = len(chunk)
        if not done:
            raise BlockingIOError("the socket is full")
        return False

    def send(self, data: Any) -> int:
        size = len(data)
        if size <= RECORD and self._rest is None and not self._unreported and self.is_ready:
            # The most common case: a small message, and nothing before it that still waits for the socket.
            self._write(data)
            ciphertext = self._take()
            try:
                sent = self._push(ciphertext)
            except BlockingIOError:
                sent = 0
            if sent == len(ciphertext):
                return size
            self._rest = memoryview(ciphertext)[sent:]
            self._unreported = size
            raise BlockingIOError("the socket is full")
        done = self._settle()
        view = memoryview(data)
        while done < size:
            chunk = view[done : done + CHUNK]
            if not self._send_chunk(chunk, done):
                break
            done += len(chunk)
        return done

    def send_more(self, data: Any) -> int:
        """Encrypts the head of a message and leaves it to the next write, which sends it together with its own."""
        if len(data) > RECORD or self._rest is not None or self._unreported or not self.is_ready:
            return self.send(data)
        self._encrypt(data)
        return len(data)

    def sendmsg(self, pieces: Sequence[Any]) -> int:
        done = self._settle()
        for chunk in _chunks(pieces, done):
            if not self._send_chunk(chunk, done):
                break
            done += len(chunk)
        return done

    def send_file(self, fd: int, position: int, count: int) -> int:
        """Sends part of a file; returns 0 at its end."""
        done = self._settle()
        buffer = _scratch()
        while done < count:
            got = os.preadv(fd, [buffer[: min(count - done, CHUNK)]], position + done)
            if not got or not self._send_chunk(buffer[:got], done):
                break
            done += got
        return done

    # -- the socket

    def finish_connect(self) -> bool:
        return self._tcp.finish_connect()

    def fileno(self) -> int:
        return self._tcp.fileno()

    @property
    def socket(self) -> socket.socket:
        return self._socket

    def close(self) -> None:
        """Closes the socket, after a close_notify if somebody may read it and it can be sent at once.

        Hundreds of clients may leave at the same time, and each close delays the requests of those that stay. So a peer
        that has left costs no more than the close of its socket.
        """
        phase = self._phase
        self._enter(Phase.CLOSED)
        self.has_bytes_buffered = False
        if not self._peer_gone:
            with suppress(OSError, ValueError):
                if phase is Phase.READY and self._rest is None:
                    with suppress(ssl.SSLError):  # it wants the peer's close_notify, which nobody waits for
                        self._engine.unwrap()
                    self._flush()
                if phase in {Phase.READY, Phase.FAILED} and not self._peer_closed:
                    self._let_peer_read()
        self._tcp.close()

    def _let_peer_read(self) -> None:
        """Reads what the peer has sent: closing a socket with unread bytes resets it, and the peer may lose our last.

        Unread bytes are common. A TLS 1.3 client that closes at once has not read the server's session tickets.
        """
        self._socket.shutdown(socket.SHUT_WR)
        buffer = _scratch()
        drained = 0
        while drained < _DRAINED_AT_CLOSE and (count := self._tcp.recv_into(buffer)):
            drained += count

    def __repr__(self) -> str:
        return f"TlsTransportLayer({'server' if self._server_side else 'client'}, {self._phase.name}, {self.version})"


def _chunks(pieces: Sequence[Any], skip: int) -> Iterator[Any]:
    """Yields buffers of at most `CHUNK` bytes: small pieces joined, large ones sliced. Skips the first bytes."""
    run: list[Any] = []
    length = 0
    for piece in pieces:
        size = len(piece)
        if skip >= size:
            skip -= size
            continue
        view = memoryview(piece)[skip:] if skip else piece
        size -= skip
        skip = 0
        if length + size > CHUNK and run:
            yield run[0] if len(run) == 1 else b"".join(run)
            run, length = [], 0
        if size <= CHUNK:
            run.append(view)
            length += size
            continue
        view = memoryview(view)
        for start in range(0, size, CHUNK):
            yield view[start : start + CHUNK]
    if run:
        yield run[0] if len(run) == 1 else b"".join(run)
