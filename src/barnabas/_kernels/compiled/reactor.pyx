# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=False
# cython: freethreading_compatible=True, auto_pickle=False
"""What a selector does for every request, compiled: the twin of `pure.reactor`, which explains it."""

from cpython.buffer cimport PyBUF_WRITE
from cpython.bytearray cimport (
    PyByteArray_AS_STRING,
    PyByteArray_FromStringAndSize,
    PyByteArray_GET_SIZE,
    PyByteArray_Resize,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromMemory, PyMemoryView_FromObject
from cpython.object cimport PyObject
from cpython.dict cimport PyDict_GetItemWithError
from libc.stdint cimport int32_t, int64_t, uint32_t

from barnabas._kernels.compiled.octets cimport int32_at

from barnabas._kernels.pure.reactor import SelectorStats as _SelectorStats
from barnabas.network.channel_state import FIRST_ALLOCATION as _FIRST_ALLOCATION
from barnabas.network.channel_state import LARGE as _LARGE
from barnabas.network.channel_state import MOST_SPARES as _MOST_SPARES
from barnabas.network.channel_state import PIECE as _PIECE
from barnabas.network.channel_state import READ_AHEAD as _READ_AHEAD
from barnabas.network.channel_state import SPARES_FOR as _SPARES_FOR
from barnabas.network.channel_state import UNSEEN_ALLOCATION as _UNSEEN_ALLOCATION
from barnabas.network.channel_state import WHOLE_ALLOCATION as _WHOLE_ALLOCATION
from barnabas.network.channel_state import ChannelState
from barnabas.network.mute import NOT_MUTED as _NOT_MUTED
from barnabas.network.mute import RESPONSE_PENDING as _RESPONSE_PENDING
from barnabas.network.mute import ChannelMuteEvent

cdef extern from "unistd.h" nogil:
    ssize_t pread(int fd, void *buffer, size_t count, int64_t position)

cdef extern from "Python.h":
    Py_buffer *PyMemoryView_GET_BUFFER(object view)
    bint PyMemoryView_Check(object view)

cdef enum:
    READ = 1
    WRITE = 4
    READABLE = READ | 0x18
    JOIN_UP_TO = 1 << 16
    SMALL = 1 << 10
    MAX_PIECES = 512

cdef int64_t READ_AHEAD = _READ_AHEAD
cdef int64_t FIRST_ALLOCATION = _FIRST_ALLOCATION
cdef int64_t UNSEEN_ALLOCATION = _UNSEEN_ALLOCATION
cdef int64_t LARGE = _LARGE
cdef int64_t PIECE = _PIECE
cdef int64_t MOST_SPARES = _MOST_SPARES
cdef int64_t SPARES_FOR = _SPARES_FOR
cdef int64_t WHOLE_ALLOCATION = _WHOLE_ALLOCATION
cdef object READY = ChannelState.READY
cdef object NOT_CONNECTED = ChannelState.NOT_CONNECTED
cdef object NOT_MUTED = _NOT_MUTED
cdef object RESPONSE_PENDING = _RESPONSE_PENDING
cdef object RESPONSE_SENT = ChannelMuteEvent.RESPONSE_SENT


cdef class FileRegion:
    """A part of a file that goes out as it is."""

    cdef public object fd
    cdef public int64_t position
    cdef public Py_ssize_t count

    def __init__(self, fd, int64_t position, Py_ssize_t count):
        self.fd = fd
        self.position = position
        self.count = count

    def __len__(self):
        return self.count

    def __repr__(self):
        return f"FileRegion(fd={self.fd}, position={self.position}, count={self.count})"


cdef class SendCore:
    """A message on its way out."""

    cdef public object request
    cdef public list _pieces
    cdef public Py_ssize_t _at
    cdef public Py_ssize_t size
    cdef public Py_ssize_t remaining

    def __init__(self, pieces, request=None):
        self.request = request
        if len(pieces) == 1:
            piece = pieces[0]
            self._pieces = [piece]
            self.size = self.remaining = len(piece)
        else:
            self.gather(pieces)

    cdef int gather(self, pieces) except -1:
        cdef Py_ssize_t size = 0
        cdef bint has_regions = False
        for piece in pieces:
            if type(piece) is FileRegion:
                has_regions = True
                size += (<FileRegion>piece).count
            else:
                size += len(piece)
        self.size = self.remaining = size
        if size <= JOIN_UP_TO:
            parts = read_regions(pieces) if has_regions else pieces
            if parts is not None:
                self._pieces = [b"".join(parts)]
                return 0
        self._pieces = joined_runs(pieces, JOIN_UP_TO if has_regions else SMALL)
        return 0

    @property
    def completed(self):
        return self.remaining == 0

    def write_to(self, transport):
        """Sends what the socket will take now and returns the number of bytes."""
        return self.write(transport)

    cdef Py_ssize_t write(self, transport) except -1:
        cdef Py_ssize_t sent
        cdef list pieces = self._pieces
        if self.remaining == self.size and len(pieces) == 1 and PyBytes_CheckExact(pieces[0]):
            try:
                sent = transport.send(pieces[0])
            except BlockingIOError:
                return 0
            self.remaining -= sent
            if self.remaining:
                self._pieces = [memoryview(pieces[0])[sent:]]
            return sent
        return self.write_pieces(transport)

    cdef Py_ssize_t write_pieces(self, transport) except -1:
        cdef Py_ssize_t written = 0, at, stop, asked, sent
        cdef list pieces = self._pieces
        cdef Py_ssize_t count = len(pieces)
        cdef FileRegion region
        try:
            if self.remaining == self.size:
                references = transport.references
                if references is not None and references.send(pieces, self.size):
                    self._at = count
                    self.remaining = 0
                    return self.size
            while self._at < count:
                at = self._at
                piece = pieces[at]
                if type(piece) is FileRegion:
                    region = <FileRegion>piece
                    asked = region.count
                    sent = transport.send_file(region.fd, region.position, asked)
                    if sent == asked:
                        self._at = at + 1
                    elif sent == 0:
                        raise EOFError(f"{piece!r} is beyond the end of its file: it shrank while it was being sent")
                    else:
                        pieces[at] = FileRegion(region.fd, region.position + sent, asked - sent)
                else:
                    stop = at + 1
                    asked = len(piece)
                    while stop < count and stop - at < MAX_PIECES and type(pieces[stop]) is not FileRegion:
                        asked += len(pieces[stop])
                        stop += 1
                    if stop > at + 1:
                        sent = transport.sendmsg(pieces[at:stop])
                    elif stop == count:
                        sent = transport.send(piece)
                    else:
                        sent = transport.send_more(piece)
                    if sent == asked:
                        self._at = stop
                    else:
                        self.step(sent)
                written += sent
                self.remaining -= sent
                if sent < asked:
                    break
        except BlockingIOError:
            pass
        return written

    cdef int step(self, Py_ssize_t sent) except -1:
        """Steps over the buffers that went out whole, and keeps the rest of the one that did not."""
        cdef list pieces = self._pieces
        while sent >= len(pieces[self._at]):
            sent -= len(pieces[self._at])
            self._at += 1
        if sent:
            pieces[self._at] = memoryview(pieces[self._at])[sent:]
        return 0


cdef list read_regions(pieces):
    cdef list parts = []
    cdef FileRegion region
    for piece in pieces:
        if type(piece) is FileRegion:
            region = <FileRegion>piece
            data = region_bytes(region)
            if data is None:
                return None
            parts.append(data)
        else:
            parts.append(piece)
    return parts


cdef object region_bytes(FileRegion region):
    """What a region has, or None if that is not all there."""
    cdef bytes data = PyBytes_FromStringAndSize(NULL, region.count)
    cdef char *out = PyBytes_AS_STRING(data)
    cdef int fd = region.fd
    cdef size_t count = region.count
    cdef int64_t position = region.position
    cdef ssize_t got
    with nogil:
        got = pread(fd, out, count, position)
    return data if got == <ssize_t>count else None


cdef list joined_runs(pieces, Py_ssize_t limit):
    cdef list parts = [], run = []
    for piece in pieces:
        if type(piece) is FileRegion or len(piece) > limit:
            if run:
                parts.append(b"".join(run))
                run = []
            parts.append(piece)
        else:
            run.append(piece)
    if run:
        parts.append(b"".join(run))
    return parts


cdef class ChannelCore:
    """One connection: its fields, and the reading of requests that have arrived whole."""

    cdef public object id
    cdef public object transport
    cdef public object authenticator
    cdef public object state
    cdef public object mute_state
    cdef public object send
    cdef public object context
    cdef public object client_information
    cdef public object error
    cdef public object ahead
    cdef public object _pool
    cdef public list spares
    cdef public object _head
    cdef public object _payload
    cdef public int64_t last_active_ns
    cdef public int64_t network_thread_time_ns
    cdef public int64_t bytes_received
    cdef public int64_t max_receive_size
    cdef public int64_t _ahead_at
    cdef public int64_t _likely
    cdef public int64_t _start
    cdef public int64_t _filled
    cdef public int64_t _size
    cdef public int64_t _small
    cdef public int fd
    cdef public int events
    cdef public bint _reads_all
    cdef public bint out_of_memory
    cdef public bint closing

    def __init__(self, channel_id, transport, int64_t max_receive_size, pool, authenticator):
        self.id = channel_id
        self.transport = transport
        self.authenticator = authenticator
        self.fd = transport.fileno()
        self.state = NOT_CONNECTED
        self.mute_state = NOT_MUTED
        self.max_receive_size = max_receive_size
        self._pool = pool
        self._reads_all = getattr(transport, "reads_all", False)
        self._head = b""
        self._size = -1

    @property
    def has_bytes_buffered(self):
        """Whether reading may yield something without the socket becoming readable."""
        return self.ahead is not None or bool(self.transport.has_bytes_buffered)

    def read(self):
        """The next request, or none if it has not arrived yet."""
        return self.next_request()

    cdef object next_request(self):
        cdef Py_ssize_t start, stop, arrived
        cdef int32_t size
        if self._size >= 0:
            return self.read_payload()
        view = self.ahead
        if view is None:
            if self._pool.bounded:
                return self._read_exactly()
            try:
                data = self.read_likely() if self._likely else self.transport.recv(READ_AHEAD)
            except BlockingIOError:
                return None
            if data is None:
                return self.read_payload()
            if not data:
                raise EOFError("the peer closed the connection")
            self.bytes_received += len(data)
            if self._head:
                data = self._head + data
                self._head = b""
            view = PyMemoryView_FromObject(data)
            start = 0
        elif PyMemoryView_Check(view):
            start = self._ahead_at
        else:
            raise TypeError(f"read ahead was {view!r}")
        arrived = PyMemoryView_GET_BUFFER(view).len
        if arrived - start >= 4:
            size = int32_at(<const unsigned char *>PyMemoryView_GET_BUFFER(view).buf + start)
            if size < 0:
                return self._follow(view, start)
            if size > self.max_receive_size:
                self._refuse(size)
            stop = start + 4 + size
            if arrived >= stop:
                self.ahead = view if arrived > stop else None
                self._ahead_at = stop
                if size < LARGE:  # large ones have become rare
                    self._likely = 0
                    if self.spares:
                        self._small += 1
                        if self._small >= SPARES_FOR:
                            self.spares.clear()
                return view[start + 4 : stop]
        self.ahead = None
        return self._collect(view[start:])

    cdef object read_likely(self):
        """What has arrived of a request that is taken for a large one; None if it is one, and is being read now."""
        cdef bytearray data = PyByteArray_FromStringAndSize(NULL, self._likely)
        cdef Py_ssize_t count = self.transport.recv_into(
            PyMemoryView_FromMemory(PyByteArray_AS_STRING(data), self._likely, PyBUF_WRITE)
        )
        cdef int32_t size
        if count >= UNSEEN_ALLOCATION and not self._head:
            size = int32_at(<const unsigned char *>PyByteArray_AS_STRING(data))
            if size > self.max_receive_size:
                self._refuse(size)
            if size >= 0 and count < <int64_t>size + 4:
                self.bytes_received += count
                self._size = size
                self._payload = data
                self._start = 4
                self._filled = count
                return None
        PyByteArray_Resize(data, count)
        return data

    def _read_payload(self):
        """What is still to come of a request, straight into its buffer; the request, if that is all there is to it."""
        return self.read_payload()

    cdef object read_payload(self):
        cdef int64_t size = self._size, stop
        cdef Py_ssize_t count, room
        cdef bytearray payload = self._payload
        if payload is None:
            if not self._pool.try_reserve(size):
                self.out_of_memory = True
                return None
            payload = PyByteArray_FromStringAndSize(NULL, min(size, FIRST_ALLOCATION))
            self._payload = payload
            self._start = self._filled = 0
        recv_into = self.transport.recv_into
        stop = self._start + size
        while self._filled < stop:
            room = PyByteArray_GET_SIZE(payload)
            if self._filled == room:
                room = min(2 * room, stop)
                PyByteArray_Resize(payload, room)
            room = min(room, stop) - self._filled
            try:
                # This view lives no longer than the call, and does not keep the buffer from being resized.
                count = recv_into(
                    PyMemoryView_FromMemory(PyByteArray_AS_STRING(payload) + self._filled, room, PyBUF_WRITE)
                )
            except BlockingIOError:
                if size >= LARGE:
                    self.transport.expect(min(stop - self._filled, PIECE))
                return None
            if count <= 0:
                raise EOFError(
                    f"the peer closed the connection {self._filled - self._start} bytes into a request of {size}"
                )
            self._filled += count
            self.bytes_received += count
            if count < room and size >= LARGE and self._reads_all:
                self.transport.expect(min(stop - self._filled, PIECE))
                return None
        self._payload = None
        self._size = -1
        if size >= LARGE:
            self.transport.expect(1)
            if self.spares is None:
                self._likely = min((stop + READ_AHEAD) & -UNSEEN_ALLOCATION, FIRST_ALLOCATION)
            elif size <= WHOLE_ALLOCATION:
                self._small = 0
                self.spares.append(payload)
                del self.spares[:-MOST_SPARES]
        return PyMemoryView_FromObject(payload)[self._start : stop]


cdef class SelectorStats:
    """Counters of one selector, written by its thread alone."""

    __slots__ = _SelectorStats.__slots__  # the names, for whoever wants to know what is counted

    cdef public int64_t connections_created
    cdef public int64_t connections_closed
    cdef public int64_t failed_authentications
    cdef public int64_t idle_closed
    cdef public int64_t invalid_receives
    cdef public int64_t bytes_received
    cdef public int64_t bytes_sent
    cdef public int64_t select_ns
    cdef public int64_t io_ns


cdef class SelectorCore:
    """Moves the bytes of channels that are ready."""

    cdef public object _wait
    cdef public object _now
    cdef public bint record_time_per_connection
    cdef public dict channels
    cdef public dict closing_channels
    cdef public dict _by_fd
    cdef public set _connecting
    cdef public dict _buffered
    cdef public list completed_receives
    cdef public SelectorStats stats
    cdef public int64_t _polled_ns

    def __init__(self, poll, clock):
        self._wait = poll
        self._now = clock
        self.channels = {}
        self.closing_channels = {}
        self._by_fd = {}
        self._connecting = set()
        self._buffered = {}
        self.completed_receives = []
        self.stats = SelectorStats()
        self._polled_ns = clock()

    # -- muting

    def request_received(self, ChannelCore channel not None):
        """Mutes a channel because its request is being handled."""
        if channel.mute_state is not NOT_MUTED:
            raise RuntimeError(f"a request from a channel that is {channel.mute_state.name}")
        channel.mute_state = RESPONSE_PENDING

    def response_sent(self, ChannelCore channel not None):
        """Unmutes it after the answer, unless it is throttled."""
        self.unmute_after_response(channel)

    cdef int unmute_after_response(self, ChannelCore channel) except -1:
        if channel.mute_state is RESPONSE_PENDING:
            channel.mute_state = NOT_MUTED
            if channel.ahead is not None:
                self._buffered[channel] = None
            elif not channel.events & READ or channel.transport.has_bytes_buffered:
                self.resume(channel)
        else:
            channel.handle_mute_event(RESPONSE_SENT)
            self.unmute(channel)
        return 0

    # -- sending

    def send(self, ChannelCore channel not None, SendCore send not None):
        """Starts sending; returns whether all of it has gone out already."""
        return self.start_send(channel, send)

    cdef bint start_send(self, ChannelCore channel, SendCore send) except -1:
        if channel.send is not None or channel.closing or (self._connecting and channel in self._connecting):
            self._cannot_send_now(channel, send)
            return False
        channel.last_active_ns = self._polled_ns
        try:
            send.write(channel.transport)
        except (OSError, EOFError) as error:
            self._send_failed(channel, send, error)
            return False
        if not send.remaining:
            self.stats.bytes_sent += send.size
            return True
        channel.send = send
        self._watch(channel, channel.events | WRITE)
        return False

    def answer(self, SendCore response not None):
        """Sends the answer to a request and goes on reading its channel; false if that is not open."""
        cdef PyObject *found
        cdef ChannelCore channel
        cdef int64_t spent
        cdef bint sent
        request = response.request
        found = PyDict_GetItemWithError(self.channels, request.connection_id)
        if found == NULL:
            return False
        channel = <ChannelCore?><object>found
        sent = self.start_send(channel, response)
        if self.record_time_per_connection:
            channel.network_thread_time_ns += <int64_t>self._now() - <int64_t>request.response_dequeue_time_ns
        if sent:
            spent = channel.network_thread_time_ns
            channel.network_thread_time_ns = 0
            request.complete(spent, response)
            self.unmute_after_response(channel)
        return True

    # -- receiving

    def _move(self, timeout_ms):
        """Waits for channels to become ready and does what they can; returns the time when they were."""
        cdef dict buffered = self._buffered
        cdef dict by_fd
        cdef list events
        cdef int64_t now
        cdef int64_t started = self._now()
        cdef uint32_t ready
        cdef PyObject *found
        events = self._wait(0 if buffered else timeout_ms)
        now = self._polled_ns = self._now()
        self.stats.select_ns += now - started
        if events or buffered:
            if len(events) > 1:
                self._arrange(events)
            if buffered:
                self._buffered = {}
                for channel in buffered:
                    self.handle(channel, READ, now)
            by_fd = self._by_fd
            for fd, events_of in events:
                ready = events_of
                found = PyDict_GetItemWithError(by_fd, fd)
                if found == NULL:
                    self._woken(fd)
                    continue
                channel = <object>found
                if not buffered or channel not in buffered:
                    self.handle(channel, ready, now)
                elif ready & WRITE:
                    self.handle(channel, WRITE, now)
            self.stats.io_ns += <int64_t>self._now() - now
        return now

    cdef int handle(self, ChannelCore channel, uint32_t ready, int64_t now) except -1:
        """Whatever a ready channel can do. One channel's trouble ends that channel only."""
        cdef int64_t started = 0
        cdef bint timed = self.record_time_per_connection
        channel.last_active_ns = now
        if timed:
            started = self._now()
        try:
            if channel.state is READY or self._prepared(channel):
                if ready & READABLE:
                    if channel.mute_state is not NOT_MUTED or channel.out_of_memory:
                        self._watch(channel, channel.events & ~READ)
                    else:
                        payload = channel.next_request()
                        if payload is not None:
                            self.completed_receives.append((channel, payload))
                        else:
                            self._nothing_received(channel)
                if ready & WRITE and channel.send is not None:
                    self._write(channel)
        except Exception as error:
            self._failed(channel, error, now)
        if timed:
            channel.network_thread_time_ns += <int64_t>self._now() - started
        return 0
