# Gives up the interpreter lock in long loops, for all compiled modules.

cdef extern from "Python.h":
    ctypedef struct PyThreadState
    PyThreadState *PyEval_SaveThread()
    void PyEval_RestoreThread(PyThreadState *state)


cdef inline void let_others_run() noexcept:
    """Lets a thread run that has waited for the lock for a switch interval; costs some 50 ns if there is none."""
    PyEval_RestoreThread(PyEval_SaveThread())
