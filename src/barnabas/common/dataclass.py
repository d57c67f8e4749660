"""`dataclasses.dataclass`, made for a program that has to be up at once.

The standard decorator writes the source of six methods for each class and compiles them, there and then: about half a
millisecond for each class, a quarter of the time that a broker took to import itself, and most of these classes are not
used before the first request is answered. This one compares, hashes and prints with functions that are the same for all
classes, and compiles ``__init__``, the one method whose speed matters, when there are more than a few instances: most
configurations have but one.

For everything else it is the same thing: a type checker sees the standard decorator, `dataclasses.replace` and
`dataclasses.fields` take the classes, pickles work. What nobody here uses is not there: ``InitVar``, ``unsafe_hash``,
``match_args=False``, ``weakref_slot``.

    @dataclass(frozen=True, slots=True)
    class Range:
        start: int
        end: int = 10

>>> Range(3) == Range(3, 10), hash(Range(3)) == hash(Range(3, 10)), Range(3)
(True, True, Range(start=3, end=10))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass, field, fields, replace
else:
    from barnabas.common._dataclass import dataclass, field, fields, replace

__all__ = ["dataclass", "field", "fields", "replace"]
