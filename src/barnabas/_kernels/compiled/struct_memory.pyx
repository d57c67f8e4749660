# cython: language_level=3, freethreading_compatible=True, binding=False, auto_pickle=False
"""The base class of message structs: see the twin `pure.struct_memory`."""

from barnabas._kernels.compiled.interpreter_lock cimport let_others_run

cdef extern from "Python.h":
    void PyObject_GC_UnTrack(object)

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
            let_others_run()
