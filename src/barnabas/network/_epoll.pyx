# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=False
# cython: freethreading_compatible=True
"""epoll, compiled: the interpreter lock is let go of only by a call that is going to wait.

What that is worth is told in `_socket_io`. The twin is `select.epoll.poll`.
"""

from cpython.exc cimport PyErr_CheckSignals, PyErr_SetFromErrno
from libc.errno cimport EINTR, errno
from libc.limits cimport INT_MAX
from libc.math cimport ceil
from libc.stdint cimport uint32_t

cdef extern from "sys/epoll.h" nogil:
    ctypedef union epoll_data_t:
        int fd

    struct epoll_event:
        uint32_t events
        epoll_data_t data

    int epoll_wait(int fd, epoll_event *events, int size, int timeout_ms)

cdef enum:
    MAX_EVENTS = 512

cdef double LONGEST_MS = INT_MAX


def wait(int fd, double timeout_ms):
    """What the epoll instance has to report: file descriptors and events.

    It may report nothing before the time is over, if a signal has come in between.
    """
    cdef epoll_event events[MAX_EVENTS]
    cdef int count, i
    # A part of a millisecond is waited for as a whole one, or a caller with so little left would spin.
    cdef int timeout = <int>ceil(min(timeout_ms, LONGEST_MS))
    if timeout:
        with nogil:
            count = epoll_wait(fd, events, MAX_EVENTS, timeout)
    else:
        count = epoll_wait(fd, events, MAX_EVENTS, 0)
    if count < 0:
        if errno != EINTR:
            PyErr_SetFromErrno(OSError)
        PyErr_CheckSignals()
        return []
    return [(events[i].data.fd, events[i].events) for i in range(count)]
