# Gives up the interpreter lock in long loops, for all compiled modules.

cdef extern from "Python.h":
    void *PyErr_Occurred()


cdef inline int let_others_run(object offer_turn) except -1:
    """Lets a thread run that has waited for the lock for a switch interval: see `barnabas._kernels`.

    The interpreter also calls signal handlers at this point, which may raise: Ctrl-C.
    """
    if PyErr_Occurred() == NULL:  # something is freed while an exception is on its way: no Python code then
        offer_turn()
    return 0
