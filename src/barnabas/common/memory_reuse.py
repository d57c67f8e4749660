"""Whether memory can be used again."""

from __future__ import annotations


def is_free(buffer: bytearray) -> bool:
    """Whether nobody has a view of a buffer, which must not be empty: while there is one, its size cannot change.

    To take the last byte off and to put it on again moves nothing.
    """
    try:
        buffer.append(buffer.pop())
    except BufferError:
        return False
    return True
