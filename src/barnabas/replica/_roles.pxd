# A partition's role, asked by the compiled ways of a fetch.

from cpython.tuple cimport PyTuple_Check, PyTuple_GET_SIZE
from libc.stdint cimport int64_t

from barnabas.common._tuples cimport item


cdef inline object log_to_read(object role, object request, bint fetch_only_leader):
    """The log that a consumer may read; None if the partition itself has to say why it may not, or is a follower's."""
    if not PyTuple_Check(role) or PyTuple_GET_SIZE(role) != 5:
        raise TypeError(f"{role!r} is no role")
    log = item(role, 0)
    if log is None or (fetch_only_leader and not item(role, 1)):
        return None
    cdef int64_t epoch = request.current_leader_epoch, leader_epoch = item(role, 3)
    cdef int64_t last_fetched_epoch = request.last_fetched_epoch
    if (epoch >= 0 and epoch != leader_epoch) or last_fetched_epoch >= 0:
        return None
    return log
