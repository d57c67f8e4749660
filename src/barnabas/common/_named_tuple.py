"""What `barnabas.common.named_tuple` is at run time."""

from __future__ import annotations

from collections import _tuplegetter  # type: ignore[attr-defined]
from collections.abc import Iterable
from functools import cache
from keyword import iskeyword
from types import CodeType, FunctionType
from typing import Any, Final

_OWN: Final = frozenset(
    {"__getnewargs__", "__init__", "__new__", "__slots__", "_asdict", "_field_defaults", "_fields", "_make", "_replace"}
)
"""What a class may not define itself, because it is what makes it a named tuple."""
_GLOBALS: Final = {"_tuple_new": tuple.__new__, "__builtins__": {}, "__name__": __name__}


@cache
def _constructor(count: int) -> CodeType:
    """``__new__`` of a class with so many fields. The names are put in for each class: that is what needs no parser."""
    given = ", ".join(f"_{number}" for number in range(count))
    values = f"({given},)" if count else "()"
    code: CodeType = eval(f"lambda _cls, {given}: _tuple_new(_cls, {values})", dict(_GLOBALS)).__code__  # noqa: S307 - of digits only
    return code


@cache
def _getter(number: int) -> Any:
    return _tuplegetter(number, f"Alias for field number {number}")


def _make(cls: Any, iterable: Iterable[Any]) -> Any:
    """Makes one of the values of all fields, in order."""
    result = tuple.__new__(cls, iterable)
    if len(result) != len(cls._fields):
        raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(result)}")
    return result


def _replace(self: Any, /, **changes: Any) -> Any:
    """A copy with other values for some fields."""
    result = self._make(map(changes.pop, self._fields, self))
    if changes:
        raise ValueError(f"Got unexpected field names: {list(changes)!r}")
    return result


def _asdict(self: Any) -> dict[str, Any]:
    """The values by the names of the fields."""
    return dict(zip(self._fields, self, strict=True))


def _repr(self: Any) -> str:
    return f"{type(self).__name__}({', '.join(map('{}={!r}'.format, self._fields, self))})"


def _getnewargs(self: Any) -> tuple[Any, ...]:
    return tuple(self)


class _Maker(type):
    """Makes a class with `_Base` below it into a tuple; that class knows nothing of either."""

    def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> Any:
        if bases != (_Base,):
            raise TypeError("a NamedTuple must not have other bases")
        fields = tuple(body.get("__annotations__", ()))
        values: dict[str, Any] = {}
        for field in fields:
            if field.startswith("_") or iskeyword(field):
                raise ValueError(f"Field names cannot start with an underscore or be a keyword: {field!r}")
            if field in body:
                values[field] = body[field]
            elif values:
                raise TypeError(f"non-default namedtuple field {field} cannot follow default fields")
        for key in body:
            if key in _OWN:
                raise AttributeError(f"Cannot overwrite NamedTuple attribute {key}")
        code = _constructor(len(fields)).replace(
            co_varnames=("_cls", *fields), co_name="__new__", co_qualname=f"{name}.__new__"
        )
        new = FunctionType(code, _GLOBALS, "__new__", tuple(values.values()))
        new.__annotations__ = body.get("__annotations__", {})
        new.__doc__ = f"Create new instance of {name}({', '.join(fields)})"
        attributes = {
            "__doc__": f"{name}({', '.join(fields)})",
            "__repr__": _repr,
            # A class that says what is equal keeps the hash of a tuple, unless it says something about that too.
            "__hash__": tuple.__hash__,
            **body,
            "__slots__": (),
            "__new__": new,
            "__getnewargs__": _getnewargs,
            "__match_args__": fields,
            "_fields": fields,
            "_field_defaults": values,
            "_make": _MAKE,
            "_replace": _replace,
            "_asdict": _asdict,
        }
        for number, field in enumerate(fields):
            attributes[field] = _getter(number)
        return type(name, (tuple,), attributes)


_MAKE: Final = classmethod(_make)
_Base: Final = type.__new__(_Maker, "NamedTuple", (), {})


class _NamedTuple:
    """What stands in the list of bases."""

    def __mro_entries__(self, _bases: tuple[Any, ...]) -> tuple[type, ...]:
        return (_Base,)

    def __call__(self, *_arguments: Any, **_fields: Any) -> Any:
        raise TypeError("this NamedTuple supports class syntax only")


NamedTuple: Final = _NamedTuple()
