# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=False
# cython: freethreading_compatible=True, binding=False
"""Non-blocking system calls that keep the GIL.

Python releases the GIL around every system call on a socket, because the call might block. Here none can: the sockets
are non-blocking, and waiting for readiness, the one call that may block, does release it. Releasing the GIL for a call
of a microsecond costs more than the call as soon as another thread wants it: that thread takes over, and this one has
to wait for the GIL again.

The twins are the methods of `socket.socket` and `select.epoll` themselves.
"""

from cpython.bytearray cimport (
    PyByteArray_AS_STRING,
    PyByteArray_Check,
    PyByteArray_FromStringAndSize,
    PyByteArray_Resize,
)
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.exc cimport PyErr_CheckSignals, PyErr_SetFromErrno
from libc.errno cimport EINTR, errno
from libc.limits cimport INT_MAX
from libc.math cimport ceil
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

cdef extern from "sys/uio.h" nogil:
    struct iovec:
        void *iov_base
        size_t iov_len

cdef extern from "sys/socket.h" nogil:
    int MSG_DONTWAIT
    struct msghdr:
        iovec *msg_iov
        size_t msg_iovlen
        void *msg_control
        size_t msg_controllen
    ssize_t c_sendmsg "sendmsg"(int fd, const msghdr *message, int flags)
    ssize_t c_recv "recv"(int fd, void *buffer, size_t size, int flags)
    ssize_t c_send "send"(int fd, const void *buffer, size_t size, int flags)

cdef extern from "unistd.h" nogil:
    int c_close "close"(int fd)

cdef extern from "sys/ioctl.h" nogil:
    unsigned long FIONREAD
    int ioctl(int fd, unsigned long request, ...)

cdef extern from "sockets.h":
    enum:
        BARNABAS_MOST_FILES
    ssize_t barnabas_send_files(int fd, const void *buffer, size_t size, const int *files, int count) nogil
    ssize_t barnabas_recv_files(int fd, void *buffer, size_t size, int *files, int *count) nogil
    int BARNABAS_SENDS_FILES
    int BARNABAS_MORE
    void barnabas_large_pages(char *start, size_t size)
    ssize_t barnabas_sendfile(int out, int source, long long position, size_t count) nogil

cdef extern from "sockets.h":
    ctypedef union epoll_data_t:
        int fd

    struct epoll_event:
        uint32_t events
        epoll_data_t data

    int epoll_wait(int fd, epoll_event *events, int size, int timeout_ms) nogil

cdef enum:
    EVENT_COUNT = 512
    LONG_SEND = 1 << 16  # from this size on, the GIL is released during the copy into the kernel
    # Several buffers are a client's request with many batches. A thread that fills batches all the time would keep the
    # GIL for a whole switch interval, which is as long as the copy of many megabytes.
    LONG_SENDMSG = 1 << 20
    # A request with one batch of this size is a table's, whose sender spends its time without the GIL.
    LONG_BUFFER = 1 << 19
    LONG_RECV = 1 << 18  # the same limit for receiving


MAX_EVENTS = EVENT_COUNT
cdef double LONGEST_MS = INT_MAX


def wait(epoll, double timeout_ms):
    """Waits until the epoll instance has something to report, and returns file descriptors with their events.

    It may return an empty list early if a signal arrives.
    """
    cdef epoll_event events[EVENT_COUNT]
    cdef int fd = epoll.fileno(), count, i
    # Round up, or a caller with less than a millisecond left would spin.
    cdef int timeout = <int>ceil(min(timeout_ms, LONGEST_MS))
    if timeout:
        with nogil:
            count = epoll_wait(fd, events, EVENT_COUNT, timeout)
    else:
        count = epoll_wait(fd, events, EVENT_COUNT, 0)
    if count < 0:
        if errno != EINTR:
            PyErr_SetFromErrno(OSError)
        PyErr_CheckSignals()
        return []
    return [(events[i].data.fd, events[i].events) for i in range(count)]


def new_buffer(Py_ssize_t size):
    """Returns an uninitialized buffer of `size` bytes, to receive into."""
    if size < 0:
        raise ValueError(f"a buffer of {size} bytes")
    return PyByteArray_FromStringAndSize(NULL, size)


def large_buffer(Py_ssize_t size):
    """Returns an uninitialized buffer that will be reused: with huge pages, if the system has any.

    Allocating a huge page takes a tenth of the time of as many small ones, and address translation is faster.
    """
    cdef bytearray buffer = new_buffer(size)
    barnabas_large_pages(PyByteArray_AS_STRING(buffer), size)
    return buffer


def resize(buffer, Py_ssize_t size):
    """Makes a buffer longer. The new part is uninitialized, to receive into."""
    if not PyByteArray_Check(buffer):  # of that type or a subtype
        raise TypeError(f"{buffer!r} is no bytearray")
    PyByteArray_Resize(buffer, size)


cdef class SocketIo:
    """Reads and writes one socket; call `close` before the socket's own, because descriptors are reused."""

    cdef int _fd
    cdef list _files
    cdef int _most_files

    def __cinit__(self, sock):
        self._fd = sock.fileno()

    def close(self):
        self._fd = -1

    def keep_files(self, list files not None, int most):
        """Appends received file descriptors to `files` from now on; receiving fails if there are more than `most`."""
        self._files = files
        self._most_files = most

    cdef ssize_t _receive(self, void *buffer, size_t size, bint long_one) except -2:
        """Calls the system's ``recv``, and keeps received files. Releases the GIL during a long call."""
        cdef int found[BARNABAS_MOST_FILES]
        cdef int count = 0, index
        cdef int fd = self._fd
        cdef ssize_t got
        if self._files is None:
            if not long_one:
                return c_recv(fd, buffer, size, MSG_DONTWAIT)
            with nogil:
                got = c_recv(fd, buffer, size, MSG_DONTWAIT)
            return got
        if not long_one:
            got = barnabas_recv_files(fd, buffer, size, found, &count)
        else:
            with nogil:
                got = barnabas_recv_files(fd, buffer, size, found, &count)
        if count and len(self._files) + count > self._most_files:
            for index in range(count):
                c_close(found[index])
            raise OSError(f"{len(self._files) + count} files have come, and at most {self._most_files} are expected")
        for index in range(count):
            self._files.append(found[index])
        return got

    def recv(self, Py_ssize_t size):
        """Returns up to `size` bytes, none at the end of the stream, in a writable buffer.

        A broker writes offsets into the batches that it receives, and would otherwise have to copy them first.
        """
        cdef ssize_t count
        cdef bytearray data = new_buffer(size)
        while True:
            count = self._receive(PyByteArray_AS_STRING(data), size, False)
            if count >= 0:
                break
            if errno != EINTR:
                PyErr_SetFromErrno(OSError)
            PyErr_CheckSignals()
        if count != size:
            PyByteArray_Resize(data, count)
        return data

    def recv_into(self, buffer):
        """Receives into a buffer; returns the number of bytes, zero at the end of the stream."""
        cdef Py_buffer view
        cdef ssize_t count
        cdef int waiting = 0
        PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
        try:
            while True:
                if view.len < LONG_RECV or ioctl(self._fd, FIONREAD, &waiting) or waiting < LONG_RECV:
                    count = self._receive(view.buf, min(view.len, LONG_RECV), False)
                else:
                    count = self._receive(view.buf, view.len, True)
                if count >= 0:
                    return count
                if errno != EINTR:
                    PyErr_SetFromErrno(OSError)
                PyErr_CheckSignals()
        finally:
            PyBuffer_Release(&view)

    def send(self, data):
        """Sends what the socket takes now; returns the number of bytes."""
        return self._send(data, MSG_DONTWAIT)

    def send_more(self, data):
        """Does `send` when more will follow: the system may delay the packet until then."""
        return self._send(data, MSG_DONTWAIT | BARNABAS_MORE)

    cdef object _send(self, data, int flags):
        cdef Py_buffer view
        cdef ssize_t count
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            while True:
                if view.len < LONG_SEND:
                    count = c_send(self._fd, view.buf, view.len, flags)
                else:
                    with nogil:
                        count = c_send(self._fd, view.buf, view.len, flags)
                if count >= 0:
                    return count
                if errno != EINTR:
                    PyErr_SetFromErrno(OSError)
                PyErr_CheckSignals()
        finally:
            PyBuffer_Release(&view)

    def send_with_files(self, bytes data not None, list files not None):
        """Does `send` for a few bytes, and passes the descriptors of files to the peer."""
        cdef int numbers[BARNABAS_MOST_FILES]
        cdef int count = len(files), index
        cdef ssize_t sent
        if count > BARNABAS_MOST_FILES:
            raise ValueError(f"{count} files are too many for one message")
        for index in range(count):
            numbers[index] = files[index]
        while True:
            sent = barnabas_send_files(self._fd, <const char *>data, len(data), numbers, count)
            if sent >= 0:
                return sent
            if errno != EINTR:
                PyErr_SetFromErrno(OSError)
            PyErr_CheckSignals()

    def send_file(self, int source, int64_t position, Py_ssize_t count):
        """Sends part of a file, as much as the socket takes now; returns the number of bytes.

        Always releases the GIL, because it may have to wait for the disk.
        """
        cdef ssize_t sent
        if not BARNABAS_SENDS_FILES:  # other systems have a ``sendfile`` with another signature
            from barnabas._kernels.sendfile import send_file

            return send_file(self._fd, source, position, count)
        while True:
            with nogil:
                sent = barnabas_sendfile(self._fd, source, position, count)
            if sent >= 0:
                return sent
            if errno != EINTR:
                PyErr_SetFromErrno(OSError)
            PyErr_CheckSignals()

    def sendmsg(self, list buffers not None):
        """Does `send` for several consecutive buffers."""
        cdef Py_ssize_t count = len(buffers), taken = 0, total = 0, longest = 0, index
        cdef Py_buffer *views = <Py_buffer *>malloc((count + 1) * sizeof(Py_buffer))
        cdef iovec *vectors = <iovec *>malloc((count + 1) * sizeof(iovec))
        cdef msghdr message
        cdef ssize_t sent
        memset(&message, 0, sizeof(message))
        try:
            if views == NULL or vectors == NULL:
                raise MemoryError()
            for buffer in buffers:
                PyObject_GetBuffer(buffer, &views[taken], PyBUF_SIMPLE)
                vectors[taken].iov_base = views[taken].buf
                vectors[taken].iov_len = views[taken].len
                total += views[taken].len
                longest = max(longest, views[taken].len)
                taken += 1
            message.msg_iov = vectors
            message.msg_iovlen = taken
            while True:
                if total < LONG_SENDMSG and longest < LONG_BUFFER:
                    sent = c_sendmsg(self._fd, &message, MSG_DONTWAIT)
                else:
                    with nogil:
                        sent = c_sendmsg(self._fd, &message, MSG_DONTWAIT)
                if sent >= 0:
                    return sent
                if errno != EINTR:
                    PyErr_SetFromErrno(OSError)
                PyErr_CheckSignals()
        finally:
            for index in range(taken):
                PyBuffer_Release(&views[index])
            free(views)
            free(vectors)


def address_of(buffer):
    """Returns the address of the first byte of a buffer."""
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    cdef size_t address = <size_t>view.buf
    PyBuffer_Release(&view)
    return address
