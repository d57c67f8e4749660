# Gives up the interpreter lock in long loops, for all compiled modules.

cdef extern from "Python.h":
    void *PyErr_Occurred()


cdef inline void let_others_run(object offer_turn) noexcept:
    """Lets a thread run that has waited for the lock for a switch interval: see `barnabas._kernels`."""
    if PyErr_Occurred() == NULL:  # something is freed while an exception is on its way: no Python code then
        offer_turn()
