# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=False
# cython: freethreading_compatible=True, binding=False
"""CRC-32C with the fastest implementation for this processor; ``crc32c_kernels.h`` explains them.

If there is none (the processor is not an x86-64, or older than 2010), the package ``crc32c`` is used, for compiled
callers, too.
"""

from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int64_t, uint32_t, uint64_t, uint8_t

cdef extern from "crc32c_kernels.h" nogil:
    ctypedef uint32_t (*crc32c_kernel)(uint32_t state, const uint8_t *data, size_t size) noexcept nogil

    ctypedef struct crc32c_choice:
        const char *name
        crc32c_kernel kernel

    enum: CRC32C_CHOICES
    int crc32c_choices(crc32c_choice *choices) noexcept
    uint32_t crc32c_combined(uint32_t first, uint32_t second, uint64_t size) noexcept

cdef enum:
    # From this size on, the GIL is released. Releasing it costs nothing as long as no other thread wants it, but a
    # thread that computes keeps it for 5 ms, and this size takes a hundredth of that.
    LONG = 1 << 21

cdef crc32c_choice choices[CRC32C_CHOICES]
cdef int choice_count = crc32c_choices(choices)
cdef crc32c_kernel chosen = choices[0].kernel if choice_count else NULL
cdef object package = None

KERNELS = tuple([choices[index].name.decode() for index in range(choice_count)])
"""The implementations for this processor, fastest first; the first is used."""


def choose(name):
    """Selects one of `KERNELS`, or None for the package, for tests and comparisons."""
    global chosen
    cdef int index
    if name is None:
        chosen = NULL
        return
    for index in range(choice_count):
        if choices[index].name.decode() == name:
            chosen = choices[index].kernel
            return
    raise ValueError(f"no kernel {name} here, but {', '.join(KERNELS) or 'none'}")


cdef int64_t crc32c_of(const uint8_t *data, size_t size, uint32_t value) except -1 nogil:
    cdef crc32c_kernel kernel = chosen
    if kernel != NULL:
        return <uint32_t> ~kernel(~value, data, size)
    with gil:
        return by_package(data, size, value)


cdef int64_t by_package(const uint8_t *data, size_t size, uint32_t value) except -1:
    global package
    if package is None:
        from barnabas._kernels.crc32c_package import from_package

        package = from_package()
    return <uint32_t> package(PyMemoryView_FromMemory(<char *> data, <Py_ssize_t> size, PyBUF_READ), value)


def combined_crc32c(uint32_t first, uint32_t second, uint64_t length):
    """Returns the checksum of two consecutive pieces from their checksums; ``length`` is that of the second."""
    return crc32c_combined(first, second, length)


def crc32c(data, uint32_t value=0):
    """Returns the CRC-32C of `data`; `value` is the checksum of the preceding bytes."""
    cdef Py_buffer buffer
    cdef int64_t found
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        if buffer.len < LONG:
            found = crc32c_of(<const uint8_t *> buffer.buf, buffer.len, value)
        else:
            with nogil:
                found = crc32c_of(<const uint8_t *> buffer.buf, buffer.len, value)
    finally:
        PyBuffer_Release(&buffer)
    return found
