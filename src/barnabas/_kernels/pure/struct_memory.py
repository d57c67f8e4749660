"""The base class of message structs, which decides how they are freed: the twin of `compiled.struct_memory`.

A request may have 50,000 entries, and its response as many: a hundred thousand structs. Two steps of the interpreter
hold its lock over all of them, for tens of milliseconds: freeing the list that holds them, and a garbage collection
while they are alive. The compiled class avoids both. After every few hundred structs that are freed it gives up the
lock for a moment, and no collection looks at a struct, because its instances are not tracked.

An instance that is not tracked is freed as soon as nothing refers to it, as always. It must not be part of a reference
cycle, because nothing would find that cycle. A struct holds numbers, strings, bytes, records and other structs, none of
which refers back to it.

Python code can do neither, so this twin does nothing.
"""

from __future__ import annotations


class StructMemory:
    """The base class of message structs."""

    __slots__ = ()
