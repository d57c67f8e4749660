"""How structs and the allocator use memory: the twin of `compiled.memory`.

A request may have 50,000 entries, and its response as many: a hundred thousand structs. Two steps of the
interpreter hold its lock over all of them, for tens of milliseconds: freeing the list that holds them, and a garbage
collection while they are alive. The compiled `StructMemory` avoids both. After every few hundred structs that are freed
it gives up the lock for a moment, and no collection looks at a struct, because its instances are not tracked.

An instance that is not tracked is freed as soon as nothing refers to it, as always. It must not be part of a reference
cycle, because nothing would find that cycle. A struct holds numbers, strings, bytes, records and other structs, none of
which refers back to it. Python code can do neither, so the class of this twin does nothing.
"""

from __future__ import annotations

from barnabas._kernels.allocator import trim, use_one_arena

__all__ = ["StructMemory", "trim", "use_one_arena"]


class StructMemory:
    """The base class of message structs, and of other small objects that a request may make by the ten thousand."""

    __slots__ = ()
