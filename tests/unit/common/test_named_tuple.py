"""Named tuples of ours beside those of the standard library: whatever one can do, the other does too."""

from __future__ import annotations

import copy
import inspect
import pickle
import random
import typing
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from barnabas.common.named_tuple import NamedTuple

NAMES = [f"name_{number}" for number in range(20)]


def both(annotations: dict[str, str], body: dict[str, Any], name: str = "Thing") -> tuple[Any, Any]:
    """The same class body for the two of them."""
    made = []
    for base in (NamedTuple, typing.NamedTuple):
        entries: Any = base.__mro_entries__((base,))  # type: ignore[attr-defined]
        namespace = {"__module__": __name__, "__qualname__": name, "__annotations__": dict(annotations), **body}
        made.append(type(entries[0])(name, entries, namespace))
    return made[0], made[1]


def parameters(made: Any) -> list[tuple[str, object, object]]:
    return [(one.name, one.kind, one.default) for one in inspect.signature(made).parameters.values()]


class Place(NamedTuple):
    """Where something is."""

    host: str
    port: int = 9092
    rack: str | None = None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def __len__(self) -> int:
        return super().__len__()


class Caseless(NamedTuple):
    name: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Caseless) and other.name.lower() == self.name.lower()

    def __hash__(self) -> int:
        return hash(self.name.lower())


def test_any_class_is_as_the_standard_library_makes_it() -> None:
    chance = random.Random(7)
    for _ in range(200):
        fields = chance.sample(NAMES, chance.randrange(9))
        defaults = {name: object() for name in fields[chance.randrange(len(fields) + 1) :]}
        ours, theirs = both(dict.fromkeys(fields, "int"), defaults)
        for attribute in ("_fields", "_field_defaults", "__match_args__", "__module__", "__slots__"):
            assert getattr(ours, attribute) == getattr(theirs, attribute), attribute
        assert ours.__doc__ == theirs.__doc__.replace(",)", ")")
        assert parameters(ours) == parameters(theirs)
        assert ours.__bases__ == theirs.__bases__
        assert set(dir(theirs)) - set(dir(ours)) <= {"__orig_bases__", "__replace__", "__annotate_func__"}
        by_name = {name: chance.random() for name in fields if name not in defaults or chance.random() < 0.5}
        one, other = ours(**by_name), theirs(**by_name)
        assert one == other
        assert (repr(one), hash(one), one._asdict()) == (repr(other), hash(other), other._asdict())
        assert [getattr(one, name) for name in fields] == list(other)
        assert ours._make(other) == ours(*other) == copy.copy(one) == one
        if fields:
            name = chance.choice(fields)
            assert one._replace(**{name: 5}) == other._replace(**{name: 5})
            assert getattr(ours, name).__doc__ == getattr(theirs, name).__doc__


@pytest.mark.parametrize("wrong", [(), (1, 2, 3)])
def test_a_wrong_number_of_values_is_an_error_with_the_same_words(wrong: tuple[int, ...]) -> None:
    ours, theirs = both({"first": "int", "second": "int"}, {"second": 1})
    pairs: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
        (partial(ours, *wrong), partial(theirs, *wrong)),
        (partial(ours._make, wrong), partial(theirs._make, wrong)),
    ]
    for call, standard in pairs:
        with pytest.raises(TypeError) as expected:
            standard()
        with pytest.raises(TypeError) as raised:
            call()
        assert str(raised.value).endswith(str(expected.value).rpartition("__new__")[2])


def test_an_unknown_field_is_not_replaced() -> None:
    with pytest.raises(ValueError, match=r"unexpected field names: \['door'\]"):
        Place("a")._replace(door=3)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("annotations", "body", "error"),
    [
        ({"_hidden": "int"}, {}, ValueError),
        ({"class": "int"}, {}, ValueError),
        ({"first": "int", "second": "int"}, {"first": 1}, TypeError),
        ({"first": "int"}, {"__new__": None}, AttributeError),
        ({"first": "int"}, {"_make": None}, AttributeError),
    ],
)
def test_bodies_that_make_no_sense_are_refused(
    annotations: dict[str, str], body: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        both(annotations, body)


def test_what_a_class_defines_itself_is_its_own() -> None:
    place = Place("here")
    assert place.address == "here:9092"
    assert len(place) == 3
    assert Place.__doc__ == "Where something is."
    assert Caseless("A") == Caseless("a")
    assert hash(Caseless("A")) == hash(Caseless("a"))
    ours, theirs = both({"first": "int"}, {"__eq__": lambda _self, _other: True})
    assert hash(ours(1)) == hash(theirs(1))


def test_instances_are_tuples_that_can_be_taken_apart_and_moved() -> None:
    place = Place("here", rack="b")
    assert type(Place) is type
    assert isinstance(place, tuple)
    assert not hasattr(place, "__dict__")
    assert pickle.loads(pickle.dumps(place)) == place
    assert type(pickle.loads(pickle.dumps(place))) is Place
    match place:
        case Place(host, port, rack):
            assert (host, port, rack) == ("here", 9092, "b")
    assert typing.get_type_hints(Place)["rack"] == str | None
    with pytest.raises(AttributeError):
        place.host = "there"  # type: ignore[misc]


def test_it_has_no_other_bases_and_no_other_form() -> None:
    with pytest.raises(TypeError, match="must not have other bases"):
        type(NamedTuple.__mro_entries__(())[0])("Both", (NamedTuple.__mro_entries__(())[0], dict), {})  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="class syntax only"):
        typing.cast("Any", NamedTuple)("Functional", [("a", int)])
