"""Ours behaves like the standard library's, on classes of every kind that is used."""

# A type checker does not see what a decorator makes that is a parameter.
# mypy: disable-error-code="call-arg,operator,attr-defined,misc,type-var"

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from barnabas.common import _dataclass as ours

Kind = Any


class Both:
    """The two decorators with their fields, to make the same class with each."""

    def __init__(self, module: Any) -> None:
        self.dataclass: Kind = module.dataclass
        self.field: Kind = module.field
        self.replace: Kind = module.replace
        self.fields: Kind = module.fields


@pytest.fixture(params=["ours", "standard"])
def kind(request: pytest.FixtureRequest) -> Both:
    return Both(ours if request.param == "ours" else dataclasses)


OPTIONS: list[dict[str, bool]] = [
    {"frozen": frozen, "slots": slots, "kw_only": kw_only}
    for frozen in (False, True)
    for slots in (False, True)
    for kw_only in (False, True)
]


def point(kind: Both, **options: bool) -> Any:
    @kind.dataclass(**options)
    class Point:
        shared: ClassVar[int] = 7
        x: int
        y: int = 2
        tags: list[str] = kind.field(default_factory=list)
        hidden: int = kind.field(default=5, repr=False, compare=False)
        total: int = kind.field(init=False, default=0)

    return Point


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_instances_have_their_fields(kind: Both, options: dict[str, bool]) -> None:
    cls = point(kind, **options)
    one, other = cls(x=1), cls(x=1, hidden=9)
    assert (one.x, one.y, one.tags, one.hidden, one.total, cls.shared) == (1, 2, [], 5, 0, 7)
    assert one == other
    assert one != cls(x=2)
    assert one.tags is not other.tags
    assert repr(one).endswith("Point(x=1, y=2, tags=[], total=0)")
    assert hasattr(one, "__dict__") is not options["slots"]
    assert (one == 3) is False


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_arguments_are_checked(kind: Both, options: dict[str, bool]) -> None:
    cls = point(kind, **options)
    with pytest.raises(TypeError, match="missing 1 required"):
        cls()
    with pytest.raises(TypeError, match="unexpected keyword argument 'total'"):
        cls(x=1, total=3)
    if options["kw_only"]:
        with pytest.raises(TypeError, match="positional"):
            cls(1)
    else:
        assert cls(1, 3).y == 3


@pytest.mark.parametrize("slots", [False, True])
def test_frozen(kind: Both, slots: bool) -> None:
    one = point(kind, frozen=True, slots=slots)(1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x'"):
        one.x = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'x'"):
        del one.x
    assert one.x == 1


def test_hash_is_of_the_compared_fields(kind: Both) -> None:
    @kind.dataclass(frozen=True, slots=True)
    class Pair:
        a: int
        b: str = kind.field(default="", compare=False)

    assert hash(Pair(1, "x")) == hash(Pair(1, "y")) == hash((1,))
    assert {Pair(1)} == {Pair(1, "other")}


def test_what_can_change_has_no_hash(kind: Both) -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(point(kind)(1))


def test_own_methods_stay(kind: Both) -> None:
    @kind.dataclass(frozen=True, slots=True)
    class Name:
        text: str

        def __repr__(self) -> str:
            return f"<{self.text}>"

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Name) and self.text.lower() == other.text.lower()

        def __hash__(self) -> int:
            return 3

    assert (repr(Name("A")), Name("A") == Name("a"), hash(Name("A"))) == ("<A>", True, 3)


def test_eq_can_be_left_out(kind: Both) -> None:
    @kind.dataclass(frozen=True, slots=True, eq=False, repr=False)
    class Thing:
        a: int

    assert Thing(1) != Thing(1)
    assert "object at" in repr(Thing(1))


def test_order(kind: Both) -> None:
    @kind.dataclass(frozen=True, slots=True, order=True)
    class Version:
        major: int
        minor: int = 0

    assert sorted([Version(2), Version(1, 9), Version(1, 2)]) == [Version(1, 2), Version(1, 9), Version(2)]
    assert Version(1) < Version(2) <= Version(2)
    assert Version(3) > Version(2) >= Version(2)
    with pytest.raises(TypeError):
        _ = Version(1) < 3


@pytest.mark.parametrize("slots", [False, True])
@pytest.mark.parametrize("frozen", [False, True])
def test_inheritance(kind: Both, frozen: bool, slots: bool) -> None:
    @kind.dataclass(frozen=frozen, slots=slots)
    class Base:
        a: int
        b: int = 2

    @kind.dataclass(frozen=frozen, slots=slots)
    class Derived(Base):
        b: int = 3
        c: int = 4

    assert [spec.name for spec in kind.fields(Derived)] == ["a", "b", "c"]
    assert (Derived(1).b, Derived(1, 5, 6).c, Base(1).b) == (3, 6, 2)
    assert Derived(1, 2) != Base(1, 2)
    assert hasattr(Derived(1), "__dict__") is not slots


def test_subclass_of_a_frozen_class_has_attributes_of_its_own(kind: Both) -> None:
    @kind.dataclass(frozen=True)
    class Base:
        a: int

    class Derived(Base):
        pass

    one = Derived(1)
    one.extra = 3
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.a = 2
    assert one.extra == 3


@pytest.mark.parametrize("slots", [False, True])
def test_post_init(kind: Both, slots: bool) -> None:
    @kind.dataclass(frozen=True, slots=slots)
    class Checked:
        a: int
        double: int = kind.field(init=False)

        def __post_init__(self) -> None:
            if self.a < 0:
                raise ValueError("negative")
            object.__setattr__(self, "double", self.a * 2)

    assert Checked(2).double == 4
    with pytest.raises(ValueError, match="negative"):
        Checked(-1)


def test_replace(kind: Both) -> None:
    cls = point(kind, frozen=True, slots=True)
    assert kind.replace(cls(1, 2), y=5) == cls(1, 5)
    with pytest.raises((ValueError, TypeError), match="init=False"):  # the latter by Python 3.13's own
        kind.replace(cls(1), total=3)


def test_the_standard_functions_know_ours() -> None:
    cls = point(Both(ours), frozen=True, slots=True)
    assert dataclasses.is_dataclass(cls)
    assert [spec.name for spec in dataclasses.fields(cls)] == ["x", "y", "tags", "hidden", "total"]
    assert dataclasses.replace(cls(1), y=9) == cls(1, 9)
    assert dataclasses.asdict(cls(1)) == {"x": 1, "y": 2, "tags": [], "hidden": 5, "total": 0}


def test_metadata(kind: Both) -> None:
    @kind.dataclass
    class Setting:
        a: int = kind.field(default=1, metadata={"key": "a.b"})

    assert [spec.metadata["key"] for spec in kind.fields(Setting)] == ["a.b"]


def test_mistakes(kind: Both) -> None:
    with pytest.raises(ValueError, match="mutable default"):

        @kind.dataclass
        class One:
            a: list[int] = []  # noqa: RUF012

    with pytest.raises(TypeError, match="follows default argument"):

        @kind.dataclass
        class Two:
            a: int = 1
            b: int

    with pytest.raises(ValueError, match="both default and default_factory"):
        kind.field(default=1, default_factory=list)


def test_patterns(kind: Both) -> None:
    match point(kind, frozen=True, slots=True)(1, 3):
        case object(x=x, y=y):
            assert (x, y) == (1, 3)
    assert point(kind).__match_args__ == ("x", "y", "tags", "hidden")


def test_recursive_repr(kind: Both) -> None:
    one = point(kind)(1)
    one.tags.append(one)
    assert "..." in repr(one)


@ours.dataclass(frozen=True, slots=True)
class Pickled:
    a: int
    b: tuple[int, ...] = ()


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickle(protocol: int) -> None:
    assert pickle.loads(pickle.dumps(Pickled(1, (2, 3)), protocol)) == Pickled(1, (2, 3))


def test_init_is_compiled_when_it_is_needed() -> None:
    cls = point(Both(ours), frozen=True, slots=True)
    first: Callable[..., None] = cls.__init__
    assert "arguments" in first.__code__.co_varnames
    for _ in range(ours.FEW):
        cls(1)
        assert cls.__init__ is first
    cls(1)
    assert cls.__init__ is not first
    assert cls.__init__.__code__.co_varnames[:2] == ("self", "x")


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_first_instances_are_as_all_others(options: dict[str, bool]) -> None:
    cls = point(Both(ours), **options)
    standard = point(Both(dataclasses), **options)
    for number in range(ours.FEW + 3):
        given: list[dict[str, Any]] = [{"x": number}, {"x": 1, "tags": ["a"], "y": 4}, {"x": 2, "hidden": 3}]
        for one in given:
            assert repr(cls(**one)) == repr(standard(**one))
            assert cls(**one).hidden == standard(**one).hidden
        if not options["slots"]:
            assert vars(cls(x=1)).keys() == vars(standard(x=1)).keys()
        if not options["kw_only"]:
            assert repr(cls(1, 5, tags=["b"])) == repr(standard(1, 5, tags=["b"]))


@pytest.mark.parametrize("skipped", [0, ours.FEW])
@pytest.mark.parametrize(
    ("arguments", "keywords"),
    [((), {}), ((1, 2, [], 5, 6), {}), ((1,), {"x": 2}), ((1,), {"z": 2}), ((1,), {"total": 2})],
)
def test_wrong_arguments_are_refused_alike(skipped: int, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    errors = []
    for module in (ours, dataclasses):
        cls = point(Both(module))
        for _ in range(skipped):
            cls(1)
        with pytest.raises(TypeError) as caught:
            cls(*arguments, **keywords)
        errors.append(str(caught.value))
    assert errors[0] == errors[1]


def test_a_property_or_setattr_of_the_class_is_heeded_from_the_first_instance_on(kind: Both) -> None:
    @kind.dataclass
    class Loud:
        x: int
        doubled: int = kind.field(init=False)

        def __setattr__(self, name: str, value: Any) -> None:
            object.__setattr__(self, name, value + 1)

        def __post_init__(self) -> None:
            self.doubled = 2 * self.x

    assert [(one.x, one.doubled) for one in [Loud(1) for _ in range(ours.FEW + 2)]] == [(2, 5)] * (ours.FEW + 2)
