"""``sendfile`` on systems where the compiled kernel does not call it."""

from __future__ import annotations

import errno
import os
from typing import Final

_TRY_AGAIN: Final = {errno.EAGAIN, errno.EWOULDBLOCK, errno.EINTR}
_FALLBACK_CHUNK: Final = 1 << 18


def send_file(out: int, source: int, position: int, count: int) -> int:
    """Copies part of a file to a socket, as much as it takes now, and returns the number of bytes."""
    try:
        if hasattr(os, "sendfile"):
            return os.sendfile(out, source, position, count)
        return os.write(out, os.pread(source, min(count, _FALLBACK_CHUNK), position))
    except OSError as error:
        if error.errno in _TRY_AGAIN:
            raise BlockingIOError(error.errno, "the socket is full") from None
        raise
