# cython: language_level=3, freethreading_compatible=True, binding=False, auto_pickle=False
"""How structs and the allocator use memory: see the twin `pure.memory`, and `barnabas._kernels.allocator`."""

from barnabas._kernels.compiled.interpreter_lock cimport let_others_run
from barnabas._kernels import offer_turn

cdef extern from "Python.h":
    void PyObject_GC_UnTrack(object)
    unsigned long PyThread_get_thread_ident()
    int PyThreadState_SetAsyncExc(unsigned long thread, object kind)

cdef extern from "allocator.h":
    int allocator_trim() nogil
    int allocator_use_one_arena()

cdef enum:
    TURN = 256

cdef int left = TURN


cdef class StructMemory:
    """Keeps its instances out of garbage collection, and frees many of them in turns with other threads."""

    def __cinit__(self):
        PyObject_GC_UnTrack(self)

    def __dealloc__(self):
        global left
        left -= 1
        if left <= 0:
            left = TURN
            try:
                let_others_run(offer_turn)
            except (KeyboardInterrupt, SystemExit) as error:
                # A destructor cannot raise. The interpreter raises it as soon as this one has returned.
                PyThreadState_SetAsyncExc(PyThread_get_thread_ident(), type(error))


def trim():
    """Returns unused memory to the system; False if there was none, or if the allocator does that by itself."""
    cdef int trimmed
    with nogil:
        trimmed = allocator_trim()
    return trimmed != 0


def use_one_arena():
    """Makes threads that start from now on share one pool of the allocator; False if it has no such setting."""
    return allocator_use_one_arena() != 0
