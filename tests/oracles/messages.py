"""Every declared message, and values to fill it with."""

from __future__ import annotations

import importlib
import pkgutil
import random
from collections.abc import Iterator
from functools import cache
from typing import Any

import barnabas.protocol
from barnabas.common.identifiers import Uuid
from barnabas.protocol.fields import Field
from barnabas.protocol.message import Message, Struct

_INTEGERS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
}
_TEXTS = ("", "a", "topic-1", "zażółć", "\U0001f980 crab", "x" * 126, "y" * 127, "z" * 130)


@cache
def all_messages() -> dict[str, type[Message]]:
    """By name: every class with versions that any module of the protocol declares."""
    found: dict[str, type[Message]] = {}
    for module in pkgutil.walk_packages(barnabas.protocol.__path__, "barnabas.protocol."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, type) and issubclass(value, Message) and value.versions.highest >= 0:
                assert found.setdefault(name, value) is value, f"{name} is declared twice"
    return dict(sorted(found.items()))


def versions_of(cls: type[Message]) -> range:
    return range(cls.versions.lowest, cls.versions.highest + 1)


def message_values(cls: type[Message], version: int, count: int) -> Iterator[Message]:
    """Repeatable values: first hardly anything set, then everything, then at random."""
    chance = random.Random(f"{cls.__name__} {version}")
    for index in range(count):
        yield _fill(cls, version, chance, fullness=(0.0, 1.0, 0.6)[min(index, 2)])


def random_message(cls: type[Message], version: int, chance: random.Random) -> Any:
    """One value, of no particular fullness."""
    return _fill(cls, version, chance, fullness=chance.choice((0.3, 0.6, 1.0)))


def _fill(cls: type[Struct], version: int, chance: random.Random, fullness: float) -> Any:
    values = {
        field.name: _value(field, version, chance, fullness)
        for field in cls.fields
        if version in field.versions or field.is_tagged(version)
    }
    return cls(**values)


def _value(field: Field, version: int, chance: random.Random, fullness: float) -> Any:
    absent_is_none = field.kind == "struct" and field.is_tagged(version) and field.default_factory is None
    if (version in field.nullable or absent_is_none) and chance.random() > fullness:
        return None
    if field.is_tagged(version) and chance.random() > fullness:
        return field.make_default()
    if field.kind == "array":
        assert field.element is not None
        length = chance.choice((1, 2, 3, 5, 128 if isinstance(field.element, str) else 4)) if fullness else 0
        if chance.random() > fullness + 0.3:
            length = 0
        return [_element(field.element, version, chance, fullness) for _ in range(length)]
    if field.kind == "struct":
        assert isinstance(field.element, type)
        made = _fill(field.element, version, chance, fullness)
        # A tagged struct with nothing but defaults is the same as none at all, in Kafka as here.
        return None if absent_is_none and made == field.element() else made
    return _scalar(field.kind, chance)


def _element(element: str | type[Struct], version: int, chance: random.Random, fullness: float) -> Any:
    return _scalar(element, chance) if isinstance(element, str) else _fill(element, version, chance, fullness)


def _scalar(kind: str, chance: random.Random) -> Any:
    if kind in _INTEGERS:
        low, high = _INTEGERS[kind]
        return chance.choice((low, high, 0, 1, chance.randint(low, high), chance.randint(0, min(high, 1000))))
    if kind == "bool":
        return chance.random() < 0.5
    if kind == "float64":
        return chance.choice((0.0, -1.5, 1e300, chance.random()))
    if kind == "uuid":
        return Uuid(chance.randbytes(16))
    if kind == "string":
        return chance.choice(_TEXTS)
    return chance.randbytes(chance.choice((0, 1, 20, 127, 300)))
