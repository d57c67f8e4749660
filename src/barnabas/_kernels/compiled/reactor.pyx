# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=False
# cython: freethreading_compatible=True, binding=False, auto_pickle=False
"""Sends, channels and the reactor that moves their bytes: the twin of `pure.reactor`, which explains them."""

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

from barnabas._kernels.compiled.sockets import new_buffer
from barnabas._kernels import channel_state
from barnabas._kernels import channel_mute as mute

cdef extern from "unistd.h" nogil:
    ssize_t pread(int fd, void *buffer, size_t count, int64_t position)

cdef extern from "Python.h":
    Py_buffer *PyMemoryView_GET_BUFFER(object view)
    bint PyMemoryView_Check(object view)

cdef enum:
    READ = 1
    WRITE = 4
    READABLE = READ | 0x18
    # Flags in `Reactor.attention`.
    C_PREPARE = 0x100
    C_HELD = 0x200
    C_NOTHING = 0x400
    C_UNKNOWN = 0x800
    # The outcome of a response.
    C_SENT = 0
    C_PARTLY_SENT = 1
    C_RESUME = 2
    C_BUSY = 3
    C_GONE = 4

PREPARE, HELD, NOTHING, UNKNOWN = C_PREPARE, C_HELD, C_NOTHING, C_UNKNOWN
SENT, PARTLY_SENT, RESUME, BUSY, GONE = C_SENT, C_PARTLY_SENT, C_RESUME, C_BUSY, C_GONE

cdef int64_t READ_AHEAD = channel_state.READ_AHEAD
cdef int64_t READ_PER_TURN = channel_state.READ_PER_TURN
cdef int64_t FIRST_READ = channel_state.FIRST_READ
cdef int64_t FIRST_ALLOCATION = channel_state.FIRST_ALLOCATION
cdef int64_t UNSEEN_ALLOCATION = channel_state.UNSEEN_ALLOCATION
cdef int64_t JOIN_UP_TO = channel_state.JOIN_UP_TO
cdef int64_t SMALL_PIECE = channel_state.SMALL_PIECE
cdef int64_t MAX_PIECES = channel_state.MAX_PIECES
cdef int64_t MAX_UNPOLLED = channel_state.MAX_UNPOLLED
cdef int64_t LARGE = channel_state.LARGE
cdef int64_t PIECE = channel_state.PIECE
cdef int64_t WHOLE_ALLOCATION = channel_state.WHOLE_ALLOCATION
cdef object InvalidReceiveError = channel_state.InvalidReceiveError
cdef object ChannelState = channel_state.ChannelState
cdef object READY = ChannelState.READY
cdef object NOT_MUTED = mute.NOT_MUTED
cdef object RESPONSE_PENDING = mute.RESPONSE_PENDING
cdef object RESPONSE_SENT = mute.ChannelMuteEvent.RESPONSE_SENT
cdef object next_state = mute.next_state


cdef class FileRegion:
    """A part of a file that is sent unchanged."""

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


cdef class NetworkSend:
    """An outgoing message."""

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
        self._pieces = joined_runs(pieces, JOIN_UP_TO if has_regions else SMALL_PIECE)
        return 0

    def write_to(self, transport):
        """Sends what the socket takes now and returns the number of bytes."""
        return self.write(transport)

    cdef Py_ssize_t write(self, transport, bint more=False) except -1:
        cdef Py_ssize_t sent
        cdef list pieces = self._pieces
        if self.remaining == self.size and len(pieces) == 1 and PyBytes_CheckExact(pieces[0]):
            try:
                sent = transport.send_more(pieces[0]) if more else transport.send(pieces[0])
            except BlockingIOError:
                return 0
            self.remaining -= sent
            if self.remaining:
                self._pieces = [memoryview(pieces[0])[sent:]]
            return sent
        return self.write_pieces(transport, more)

    cdef Py_ssize_t write_pieces(self, transport, bint more) except -1:
        cdef Py_ssize_t written = 0, at, stop, asked, sent
        cdef list pieces = self._pieces
        cdef Py_ssize_t count = len(pieces)
        cdef FileRegion region
        try:
            if self.remaining == self.size:
                send_whole = transport.send_whole
                if send_whole is not None and send_whole(pieces, self.size):
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
                    elif stop == count and not more:
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
        """Skips the buffers that are completely sent, and keeps the rest of the partly sent one."""
        cdef list pieces = self._pieces
        while sent >= len(pieces[self._at]):
            sent -= len(pieces[self._at])
            self._at += 1
        if sent:
            pieces[self._at] = memoryview(pieces[self._at])[sent:]
        return 0

    def __repr__(self):
        return f"NetworkSend({self.size - self.remaining} of {self.size} bytes sent)"


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
    """Returns the content of a region; None if the file is too short."""
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


cdef class KafkaChannel:
    """One connection: see `barnabas.network.reactor.channel`."""

    cdef public object id, transport, authenticator
    cdef public object state, mute_state
    cdef public object send
    cdef public object context
    cdef public object client_information, error
    cdef public object ahead
    cdef object _pool
    cdef public object spares
    cdef object _head
    cdef readonly object _payload
    cdef public int64_t last_active_ns
    cdef public int64_t network_thread_time_ns
    cdef public int64_t bytes_received
    cdef public int64_t max_receive_size
    cdef int64_t _ahead_at
    cdef readonly int64_t _likely
    cdef int64_t _start
    cdef int64_t _filled
    cdef readonly int64_t receiving
    cdef public int fd
    cdef public int events
    cdef bint _reads_all
    cdef public bint out_of_memory
    cdef public bint closing

    def __init__(self, channel_id, transport, int64_t max_receive_size, pool, authenticator):
        self.id = channel_id
        self.transport = transport
        self.authenticator = authenticator
        self.fd = transport.fileno()
        self.state = ChannelState.NOT_CONNECTED
        self.mute_state = NOT_MUTED
        self.max_receive_size = max_receive_size
        self._pool = pool
        self._reads_all = getattr(transport, "reads_all", False)
        self._head = b""
        self.receiving = -1

    @property
    def has_bytes_buffered(self):
        """Whether reading may yield data without the socket becoming readable."""
        return self.ahead is not None or bool(self.transport.has_bytes_buffered)

    cdef bint has_next(self) except -1:
        """Whether the next request was read ahead as a whole."""
        cdef Py_ssize_t left
        if self.ahead is None:
            return False
        left = PyMemoryView_GET_BUFFER(self.ahead).len - self._ahead_at - 4
        return left >= 0 and int32_at(<const unsigned char *>PyMemoryView_GET_BUFFER(self.ahead).buf + self._ahead_at) <= left

    def read(self):
        """Returns the next request, or None if it has not arrived yet."""
        return self.next_request(True)

    cdef object next_request(self, bint all_at_once):
        cdef Py_ssize_t start, stop, arrived
        cdef int32_t size
        if self.receiving >= 0:
            return self.read_payload()
        view = self.ahead
        if view is None:
            if self._pool.bounded:
                return self.read_exactly()
            try:
                if self._likely and all_at_once:
                    data = self.read_likely()
                else:
                    data = self.transport.recv(READ_AHEAD if all_at_once else FIRST_READ)
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
                return self.read_special(view, start, size)
            if size > self.max_receive_size:
                self.refuse(size)
            stop = start + 4 + size
            if arrived >= stop:
                self.ahead = view if arrived > stop else None
                self._ahead_at = stop
                if size < LARGE:  # large ones have become rare
                    self._likely = 0
                    if self.spares:
                        self.spares.count_small()
                return view[start + 4 : stop]
        self.ahead = None
        return self.collect(view[start:], all_at_once)

    cdef object read_likely(self):
        """Reads the beginning of a request that is expected to be large; None if it is, and is being read now."""
        cdef bytearray data = PyByteArray_FromStringAndSize(NULL, self._likely)
        cdef Py_ssize_t count = self.transport.recv_into(
            PyMemoryView_FromMemory(PyByteArray_AS_STRING(data), self._likely, PyBUF_WRITE)
        )
        cdef int32_t size
        if count >= UNSEEN_ALLOCATION and not self._head:
            size = int32_at(<const unsigned char *>PyByteArray_AS_STRING(data))
            if size > self.max_receive_size:
                self.refuse(size)
            if size >= 0 and count < <int64_t>size + 4:
                self.bytes_received += count
                self.receiving = size
                self._payload = data
                self._start = 4
                self._filled = count
                return None
        PyByteArray_Resize(data, count)
        return data

    cdef object read_payload(self):
        """Reads the rest of a request straight into its buffer; returns the request once it is complete."""
        cdef int64_t size = self.receiving, stop
        cdef Py_ssize_t count, room, taken = 0
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
            room = min(min(room, stop) - self._filled, PIECE)
            try:
                # This view ends with the call, so it does not prevent the buffer from being resized.
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
            taken += count
            if size >= LARGE and self._filled < stop and (taken >= PIECE or count < room and self._reads_all):
                self.transport.expect(min(stop - self._filled, PIECE))
                return None
        self._payload = None
        self.receiving = -1
        if size >= LARGE:
            self.transport.expect(1)
            if self.spares is None:
                self._likely = min((stop + READ_AHEAD) & -UNSEEN_ALLOCATION, FIRST_ALLOCATION)
            elif size <= WHOLE_ALLOCATION:
                self.spares.keep(payload)
        return PyMemoryView_FromObject(payload)[self._start : stop]

    cdef int refuse(self, int64_t size) except -1:
        raise InvalidReceiveError(
            f"a request of {size} bytes from {self.id}; allowed are 0 to {self.max_receive_size}", size
        )

    cdef object read_special(self, view, Py_ssize_t start, int32_t mark):
        """Handles a negative length, which some transports use (see `TransportLayer.special_frame`)."""
        special_frame = self.transport.special_frame
        found = None if special_frame is None else special_frame(view, start, self)
        if found is None:
            self.refuse(mark)
        payload, stop = found
        if payload is None:
            self.ahead = None
            self._head = bytes(view[start:])
            return None
        self.ahead = view if len(view) > stop else None
        self._ahead_at = stop
        self.bytes_received += len(payload)
        self._likely = 0
        return payload

    def allocate(self, int64_t size):
        """Returns a buffer for a request of this size; raises if the size is not allowed."""
        if not 0 <= size <= self.max_receive_size:
            self.refuse(size)
        payload = None if self.spares is None else self.spares.take(size)
        if payload is None:
            return new_buffer(size)
        self.spares.keep(payload)
        return payload

    cdef object collect(self, view, bint all_at_once):
        """Sets aside the beginning of a request and reads on, if it may, straight into its buffer."""
        cdef Py_ssize_t arrived = len(view) - 4
        cdef int64_t size
        if arrived < 0:
            self._head = bytes(view)
            return None
        size = self.receiving = int32_at(<const unsigned char *>PyMemoryView_GET_BUFFER(view).buf)
        payload = None if self.spares is None else self.spares.take(size)
        if payload is None:
            payload = new_buffer(max(min(size, min(FIRST_ALLOCATION, max(UNSEEN_ALLOCATION, 16 * (arrived + 4)))), arrived))
        self._payload = payload
        self._start = 0
        self._filled = arrived
        payload[:arrived] = view[4:]
        return self.read_payload() if all_at_once else None

    cdef object read_exactly(self):
        """Reads only the length: with a bounded pool nothing is read that has not been granted."""
        try:
            data = self.transport.recv(4 - len(self._head))
        except BlockingIOError:
            return None
        if not data:
            raise EOFError("the peer closed the connection")
        self.bytes_received += len(data)
        self._head += data
        if len(self._head) < 4:
            return None
        self.receiving = int.from_bytes(self._head, "big", signed=True)
        self._head = b""
        if not 0 <= self.receiving <= self.max_receive_size:
            self.refuse(self.receiving)
        return self.read_payload()

    def abandon_receive(self):
        """Returns the pool's grant for a request that will never be complete."""
        if self._pool.bounded and self._payload is not None:
            self._pool.release(self.receiving)
        self._payload = None
        self.receiving = -1
        self.ahead = None
        self._head = b""

    def release(self, payload):
        """Returns the pool's grant for a request that an authenticator has handled."""
        if self._pool.bounded:
            self._pool.release(len(payload))

    @property
    def is_muted(self):
        return self.mute_state is not NOT_MUTED

    def handle_mute_event(self, event):
        self.mute_state = next_state(self.mute_state, event)

    def __repr__(self):
        return f"KafkaChannel({self.id}, {self.state.name}, {self.mute_state.name})"


cdef class SelectorStats:
    """Counters of one selector, written by its thread alone."""

    cdef public int64_t connections_created, connections_closed, idle_closed
    cdef public int64_t failed_authentications, failed_reauthentications
    cdef public int64_t successful_authentications, successful_authentications_no_reauth
    cdef public int64_t successful_reauthentications, reauthentication_ns, longest_reauthentication_ns
    cdef public int64_t invalid_receives
    cdef public int64_t bytes_received, bytes_sent
    cdef public int64_t select_ns, io_ns


cdef class Reactor:
    """Polls, and moves the bytes of channels that are ready."""

    cdef public object wait, clock
    cdef public bint record_time_per_connection
    cdef public dict channels, by_fd, buffered
    cdef public set connecting, held
    cdef public list completed_receives, attention
    cdef public SelectorStats stats
    cdef public int64_t polled_ns
    cdef Py_ssize_t _unpolled
    cdef int64_t _may_read

    def __init__(self, wait, clock):
        self.wait = wait
        self.clock = clock
        self.channels = {}
        self.by_fd = {}
        self.connecting = set()
        self.buffered = {}
        self.held = set()
        self.completed_receives = []
        self.attention = []
        self.stats = SelectorStats()
        self.polled_ns = clock()

    def request_received(self, KafkaChannel channel not None):
        """Mutes a channel because its request is being handled."""
        if channel.mute_state is not NOT_MUTED:
            raise RuntimeError(f"a request from a channel that is {channel.mute_state.name}")
        channel.mute_state = RESPONSE_PENDING

    def response_sent(self, KafkaChannel channel not None):
        """Unmutes a channel after the response, unless it is throttled; returns whether it must be resumed."""
        return self.unmuted(channel)

    cdef bint unmuted(self, KafkaChannel channel) except -1:
        if channel.mute_state is not RESPONSE_PENDING:
            channel.handle_mute_event(RESPONSE_SENT)
            return False  # it is still throttled
        channel.mute_state = NOT_MUTED
        if channel.ahead is not None:
            self.buffered[channel] = None
            return False
        return not channel.events & READ or channel.transport.has_bytes_buffered

    def send(self, KafkaChannel channel not None, NetworkSend send not None):
        """Starts sending; returns `SENT`, `PARTLY_SENT` or `BUSY`. Raises the transport's errors."""
        return self.start_send(channel, send)

    cdef int start_send(self, KafkaChannel channel, NetworkSend send, bint more=False) except -1:
        if channel.send is not None or channel.closing or (self.connecting and channel in self.connecting):
            return C_BUSY
        channel.last_active_ns = self.polled_ns
        send.write(channel.transport, more)
        if send.remaining:
            channel.send = send
            return C_PARTLY_SENT
        self.stats.bytes_sent += send.size
        return C_SENT

    def respond(self, NetworkSend response not None):
        """Sends the response to a request and unmutes its channel."""
        cdef PyObject *found
        cdef KafkaChannel channel
        cdef int64_t spent
        cdef int outcome
        request = response.request
        found = PyDict_GetItemWithError(self.channels, request.connection_id)
        if found == NULL:
            return C_GONE
        channel = <KafkaChannel?><object>found
        outcome = self.start_send(channel, response, self.may_hold(channel))
        if self.record_time_per_connection:
            channel.network_thread_time_ns += <int64_t>self.clock() - <int64_t>request.response_dequeue_time_ns
        if outcome == C_SENT:
            spent = channel.network_thread_time_ns
            channel.network_thread_time_ns = 0
            request.complete(spent, response)
            if self.unmuted(channel):
                return C_RESUME
        return outcome

    cdef bint may_hold(self, KafkaChannel channel) except -1:
        """Whether a response may wait for the next one of its channel, whose request was read ahead."""
        if channel.has_next() and channel.transport.push is not None:
            self.held.add(channel.transport)
            return True
        if self.held:
            self.held.discard(channel.transport)
        return False

    def move(self, timeout_ms, arrange=None):
        """Waits for channels to become ready and reads them; returns the time when they were ready."""
        cdef dict buffered = self.buffered
        cdef dict by_fd
        cdef list events
        cdef int64_t now = self.clock()
        cdef int64_t started
        cdef uint32_t ready
        cdef PyObject *found
        if not self.may_skip_poll(buffered):
            while self.held:
                self.held.pop().push()
            started = now
            events = self.wait(0 if buffered else timeout_ms)
            now = self.clock()
            self.stats.select_ns += now - started
        else:
            events = []
        self.polled_ns = now
        self._may_read = READ_PER_TURN
        if arrange is not None:
            arrange(events)
        if buffered:
            self.buffered = {}
            for channel in buffered:
                self.handle(channel, READ, now)
        by_fd = self.by_fd
        for fd, events_of in events:
            ready = events_of
            found = PyDict_GetItemWithError(by_fd, fd)
            if found == NULL:
                self.attention.append((fd, C_UNKNOWN, None))
                continue
            channel = <object>found
            if not buffered or channel not in buffered:
                self.handle(channel, ready, now)
            elif ready & WRITE:
                self.handle(channel, WRITE, now)
        if events or buffered:
            self.stats.io_ns += <int64_t>self.clock() - now
        return now

    cdef bint may_skip_poll(self, dict buffered) except -1:
        """Whether requests that were read ahead may be taken before the sockets are polled."""
        self._unpolled += len(buffered)
        if buffered and self._unpolled <= MAX_UNPOLLED:
            for channel in buffered:
                if (<KafkaChannel?>channel).send is not None:
                    break
            else:
                return True
        self._unpolled = 0
        return False

    cdef int handle(self, KafkaChannel channel, uint32_t ready, int64_t now) except -1:
        """Reads a ready channel. Leaves an error in `attention`, so that it affects only this channel."""
        cdef int64_t started = 0, before = channel.bytes_received
        cdef uint32_t left
        channel.last_active_ns = now
        if channel.state is not READY:
            self.attention.append((channel, ready | C_PREPARE, None))
            return 0
        left = ready & WRITE if channel.send is not None else 0
        if ready & READABLE:
            if channel.mute_state is not NOT_MUTED or channel.out_of_memory:
                left |= C_HELD
            elif self._may_read <= 0 <= channel.receiving:
                self.buffered[channel] = None
            else:
                if self.record_time_per_connection:
                    started = self.clock()
                try:
                    payload = channel.next_request(self._may_read > 0)
                    if payload is not None:
                        self.completed_receives.append((channel, payload))
                    elif self._may_read <= 0 <= channel.receiving:
                        self.buffered[channel] = None
                    else:
                        left |= C_NOTHING
                except Exception as error:
                    self.attention.append((channel, 0, error))
                    left = 0
                self._may_read -= channel.bytes_received - before
                if self.record_time_per_connection:
                    channel.network_thread_time_ns += <int64_t>self.clock() - started
        if left:
            self.attention.append((channel, left, None))
        return 0
