# Tuples whose length is known, as named ones are, for compiled modules: without the check of the index.

from cpython.tuple cimport PyTuple_GET_ITEM


cdef inline object item(object values, Py_ssize_t index):
    return <object>PyTuple_GET_ITEM(values, index)
