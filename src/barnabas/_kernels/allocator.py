"""Settings and calls of the C library's allocator, where the compiled kernel does not make them.

glibc gives each thread a pool of its own, an arena, and keeps freed memory there. Large requests that are handled by
one thread after the other would each leave their memory behind. Other allocators have no such calls.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import ctypes

_M_ARENA_MAX: Final = -8


def trim() -> bool:
    """Returns unused memory to the system; False if there was none, or if the allocator does that by itself."""
    library = _library()
    return hasattr(library, "malloc_trim") and library.malloc_trim(0) != 0


def use_one_arena() -> bool:
    """Makes threads that start from now on share one pool of the allocator; False if it has no such setting."""
    library = _library()
    return hasattr(library, "mallopt") and library.mallopt(_M_ARENA_MAX, 1) != 0


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL:
    import ctypes  # most processes never need it

    return ctypes.CDLL(None)
