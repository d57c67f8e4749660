"""Reuses memory, and frees it in pieces."""

from __future__ import annotations

from typing import Any, Final


def is_free(buffer: bytearray) -> bool:
    """Returns whether a buffer, which must not be empty, has no views: a buffer with views cannot change its size.

    Removing the last byte and adding it again does not move the buffer.
    """
    try:
        buffer.append(buffer.pop())
    except BufferError:
        return False
    return True


_PIECE: Final = 1000


def empty(items: list[Any]) -> None:
    """Removes all elements, from the end, a thousand at a time.

    Freeing a list of a hundred thousand objects is one step of the interpreter, of some ten milliseconds in which no
    other thread runs. Between these pieces other threads can run.
    """
    while items:
        del items[-_PIECE:]
