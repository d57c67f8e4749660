"""`typing.NamedTuple`, made for a program that has to be up at once.

The standard one compiles a reference for each annotation, and a constructor for each class: a tenth of a millisecond
each, and a broker has more than a hundred of them before it answers. This one looks at no annotation, and has one
constructor compiled for each number of fields, which every class has under the names of its own.

For everything else it is the same thing: a type checker sees the standard one, and the class is a tuple that has the
fields, methods and pickles of `collections.namedtuple`. What nobody here uses is not there: other bases beside it, such
as ``Generic``, and the functional form.

    class Range(NamedTuple):
        start: int
        end: int = 10

>>> Range(3), Range(3)._replace(end=4), Range._fields
(Range(start=3, end=10), Range(start=3, end=4), ('start', 'end'))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import NamedTuple
else:
    from barnabas.common._named_tuple import NamedTuple

__all__ = ["NamedTuple"]
