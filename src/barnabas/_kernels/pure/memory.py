"""How objects and the allocator use memory: the twin of `compiled.memory`.

**Structs.** A request may have 50,000 entries, and its response as many: a hundred thousand structs. Two steps of the
interpreter hold its lock over all of them, for tens of milliseconds: freeing the list that holds them, and a garbage
collection while they are alive. The compiled `StructMemory` avoids both. After every few hundred structs that are freed
it gives up the lock for a moment, and no collection looks at a struct, because its instances are not tracked.

An instance that is not tracked is freed as soon as nothing refers to it, as always. It must not be part of a reference
cycle, because nothing would find that cycle. A struct holds numbers, strings, bytes, records and other structs, none of
which refers back to it. Python code can do neither, so the class of this twin does nothing.

**The allocator.** glibc gives each thread a pool of its own, an arena, and keeps freed memory there. Large requests
that are handled by one thread after the other would each leave their memory behind. Other allocators have no such
calls.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import ctypes

_M_ARENA_MAX: Final = -8


class StructMemory:
    """The base class of message structs, and of other small objects that a request may make by the ten thousand."""

    __slots__ = ()


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
