"""The run-time implementation of `barnabas.common.dataclass`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from reprlib import recursive_repr
from types import MappingProxyType
from typing import Any, Final

_MISSING: Final = object()
FEW: Final = 3
"""The number of instances that are created without a compiled ``__init__``: compiling takes as long as ten of them."""
_SPECS: Final = "__barnabas_fields__"
_NO_METADATA: Final[Mapping[str, Any]] = MappingProxyType({})


class FieldSpec:
    """One field of a class: its name, its default, and the methods it takes part in."""

    __slots__ = ("compare", "default", "default_factory", "init", "kw_only", "metadata", "name", "repr")

    def __init__(
        self,
        default: object,
        default_factory: Any,
        init: bool,
        repr: bool,  # noqa: A002 - the name that the standard library has for it
        compare: bool,
        kw_only: bool | None,
        metadata: Mapping[str, Any] | None,
    ) -> None:
        self.name = ""
        self.default = default
        self.default_factory = default_factory
        self.init = init
        self.repr = repr
        self.compare = compare
        self.kw_only = kw_only
        self.metadata = _NO_METADATA if metadata is None else MappingProxyType(metadata)


def field(
    *,
    default: Any = _MISSING,
    default_factory: Any = _MISSING,
    init: bool = True,
    repr: bool = True,  # noqa: A002 - the name that the standard library has for it
    compare: bool = True,
    kw_only: bool | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Any:
    if default is not _MISSING and default_factory is not _MISSING:
        raise ValueError("cannot specify both default and default_factory")
    return FieldSpec(default, default_factory, init, repr, compare, kw_only, metadata)


def fields(class_or_instance: Any) -> tuple[FieldSpec, ...]:
    try:
        return tuple(getattr(class_or_instance, _SPECS).values())
    except AttributeError:
        raise TypeError(f"not a data class: {class_or_instance!r}") from None


def replace(instance: Any, /, **changes: Any) -> Any:
    """Returns a copy with some fields changed."""
    for spec in fields(instance):
        if not spec.init:
            if spec.name in changes:
                raise ValueError(
                    f"field {spec.name} is declared with init=False, it cannot be specified with replace()"
                )
        elif spec.name not in changes:
            changes[spec.name] = getattr(instance, spec.name)
    return type(instance)(**changes)


def dataclass(
    cls: type | None = None,
    /,
    *,
    repr: bool = True,  # noqa: A002 - the name that the standard library has for it
    eq: bool = True,
    order: bool = False,
    frozen: bool = False,
    slots: bool = False,
    kw_only: bool = False,
) -> Any:
    def decorate(cls: type) -> type:
        return _process(cls, repr=repr, eq=eq, order=order, frozen=frozen, slots=slots, kw_only=kw_only)

    return decorate if cls is None else decorate(cls)


def _process(cls: type, *, repr: bool, eq: bool, order: bool, frozen: bool, slots: bool, kw_only: bool) -> type:  # noqa: A002
    inherited: dict[str, FieldSpec] = {}
    for base in reversed(cls.__mro__[1:]):
        inherited.update(base.__dict__.get(_SPECS, {}))
    own = _own_fields(cls, kw_only)
    specs = {**inherited, **own}
    _check_order(cls, specs)
    names = tuple(specs)
    namespace = {
        "__match_args__": tuple(spec.name for spec in specs.values() if spec.init and not spec.kw_only),
        **cls.__dict__,
        _SPECS: specs,
        "__dataclass_fields__": _StandardFields(),
    }
    methods: dict[str, Any] = {}
    if repr:
        methods["__repr__"] = _make_repr(tuple(spec.name for spec in specs.values() if spec.repr))
    compared = tuple(spec.name for spec in specs.values() if spec.compare)
    key = _key(compared)
    if eq:
        methods["__eq__"] = _make_eq(key)
        if namespace.get("__hash__") is None:  # not given, or None because __eq__ is given
            namespace["__hash__"] = _make_hash(key) if frozen else None
    if order:
        methods.update(_make_order(key))
    if slots and frozen:
        methods["__getstate__"], methods["__setstate__"] = _make_state(names)
    for name, method in methods.items():
        if name not in cls.__dict__:
            _name(method, name, cls)
            namespace[name] = method
    if not slots:
        made = cls
        for name, value in namespace.items():
            if cls.__dict__.get(name, _MISSING) is not value:
                setattr(cls, name, value)
        for name, spec in own.items():
            if spec.default is _MISSING and name in cls.__dict__:
                delattr(cls, name)
            elif spec.default is not _MISSING:
                setattr(cls, name, spec.default)
    else:
        made = _with_slots(cls, namespace, own)
    if frozen:
        _freeze(made, frozenset(names))
    if "__init__" not in cls.__dict__:
        _set_lazy_init(made, specs, frozen=frozen, slots=slots)
    return made


def _own_fields(cls: type, kw_only: bool) -> dict[str, FieldSpec]:
    own: dict[str, FieldSpec] = {}
    for name, annotation in cls.__dict__.get("__annotations__", {}).items():  # noqa: RUF063 - inspect is slow to import
        text = annotation if isinstance(annotation, str) else str(annotation)
        if text.startswith(("ClassVar", "typing.ClassVar")):
            continue
        given = cls.__dict__.get(name, _MISSING)
        if isinstance(given, FieldSpec):
            spec = given
        elif type(given) in {list, dict, set}:
            raise ValueError(f"mutable default {type(given)} for field {name} is not allowed: use default_factory")
        else:
            spec = FieldSpec(given, _MISSING, True, True, True, None, None)
        spec.name = name
        if spec.kw_only is None:
            spec.kw_only = kw_only
        own[name] = spec
    return own


def _check_order(cls: type, specs: Mapping[str, FieldSpec]) -> None:
    optional = ""
    for spec in specs.values():
        if not spec.init or spec.kw_only:
            continue
        if spec.default is not _MISSING or spec.default_factory is not _MISSING:
            optional = spec.name
        elif optional:
            raise TypeError(f"{cls.__name__}: non-default argument {spec.name!r} follows default argument")


def _with_slots(cls: type, namespace: dict[str, Any], own: Mapping[str, FieldSpec]) -> type:
    """Creates the class again, because slots cannot be added to an existing class."""
    if "__slots__" in cls.__dict__:
        raise TypeError(f"{cls.__name__} already specifies __slots__")
    taken: set[str] = set()
    for base in cls.__mro__[1:-1]:
        slots = base.__dict__.get("__slots__", ())
        taken.update((slots,) if isinstance(slots, str) else slots)
    for name in own:
        namespace.pop(name, None)
    namespace.pop("__dict__", None)
    namespace.pop("__weakref__", None)
    namespace["__slots__"] = tuple(name for name in own if name not in taken)
    made = type(cls)(cls.__name__, cls.__bases__, namespace)
    made.__qualname__ = cls.__qualname__
    return made


# -- methods that are the same for all classes


def _name(method: Any, name: str, cls: type) -> None:
    method.__name__ = name
    method.__qualname__ = f"{cls.__qualname__}.{name}"


def _key(names: tuple[str, ...]) -> Callable[[Any], Any]:
    """Returns a function that maps an instance to a value that compares and hashes like a tuple of its fields."""
    if not names:
        return lambda _: ()
    getter = attrgetter(*names)
    return getter if len(names) > 1 else lambda instance: (getter(instance),)


def _make_repr(names: tuple[str, ...]) -> Callable[[Any], str]:
    @recursive_repr("...")
    def __repr__(self: Any) -> str:  # noqa: N807
        inside = ", ".join([f"{name}={getattr(self, name)!r}" for name in names])
        return f"{self.__class__.__qualname__}({inside})"

    return __repr__


def _make_eq(key: Callable[[Any], Any]) -> Any:
    def __eq__(self: Any, other: Any) -> Any:  # noqa: N807
        return key(self) == key(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _make_hash(key: Callable[[Any], Any]) -> Callable[[Any], int]:
    def __hash__(self: Any) -> int:  # noqa: N807
        return hash(key(self))

    return __hash__


def _make_order(key: Callable[[Any], Any]) -> dict[str, Any]:
    def __lt__(self: Any, other: Any) -> Any:  # noqa: N807
        return key(self) < key(other) if other.__class__ is self.__class__ else NotImplemented

    def __le__(self: Any, other: Any) -> Any:  # noqa: N807
        return key(self) <= key(other) if other.__class__ is self.__class__ else NotImplemented

    def __gt__(self: Any, other: Any) -> Any:  # noqa: N807
        return key(self) > key(other) if other.__class__ is self.__class__ else NotImplemented

    def __ge__(self: Any, other: Any) -> Any:  # noqa: N807
        return key(self) >= key(other) if other.__class__ is self.__class__ else NotImplemented

    return {"__lt__": __lt__, "__le__": __le__, "__gt__": __gt__, "__ge__": __ge__}


def _make_state(names: tuple[str, ...]) -> tuple[Any, Any]:
    """Returns methods that pickle a frozen instance as a list of its fields."""

    def __getstate__(self: Any) -> list[Any]:  # noqa: N807
        return [getattr(self, name) for name in names]

    def __setstate__(self: Any, state: list[Any]) -> None:  # noqa: N807
        for name, value in zip(names, state, strict=True):
            object.__setattr__(self, name, value)

    return __getstate__, __setstate__


def _freeze(made: Any, names: frozenset[str]) -> None:
    def __setattr__(self: Any, name: str, value: Any) -> None:  # noqa: N807
        if type(self) is made or name in names:
            raise _frozen_error(f"cannot assign to field {name!r}")
        super(made, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:  # noqa: N807
        if type(self) is made or name in names:
            raise _frozen_error(f"cannot delete field {name!r}")
        super(made, self).__delattr__(name)

    made.__setattr__ = __setattr__
    made.__delattr__ = __delattr__


def _frozen_error(message: str) -> AttributeError:
    from dataclasses import FrozenInstanceError  # needed only for errors, and slow to import

    return FrozenInstanceError(message)


class _StandardFields:
    """``__dataclass_fields__``, which the standard library's functions use; created on demand."""

    __slots__ = ()

    def __get__(self, instance: object, owner: Any) -> Any:
        import dataclasses

        described = []
        for spec in fields(owner):
            options: dict[str, Any] = {"init": spec.init, "repr": spec.repr, "compare": spec.compare}
            if spec.default is not _MISSING:
                options["default"] = spec.default
            elif spec.default_factory is not _MISSING:
                options["default_factory"] = spec.default_factory
            described.append((spec.name, Any, dataclasses.field(kw_only=True, metadata=spec.metadata, **options)))
        standard: Any = dataclasses.make_dataclass(owner.__name__, described, eq=False)
        return standard.__dataclass_fields__


# -- __init__


def _set_lazy_init(made: Any, specs: Mapping[str, FieldSpec], *, frozen: bool, slots: bool) -> None:
    few = FEW

    def __init__(self: Any, *arguments: Any, **keywords: Any) -> None:  # noqa: N807
        nonlocal few
        # Two threads may both get here; they create the same function.
        if few > 0:
            few -= 1
            values = _bind(specs, arguments, keywords, slots=slots)
            if values is not None:
                put = object.__setattr__ if frozen else setattr
                for name, value in values.items():
                    put(self, name, value)
                if hasattr(made, "__post_init__"):
                    self.__post_init__()
                return
        compiled = _compile_init(made, specs, frozen=frozen, slots=slots)
        made.__init__ = compiled
        compiled(self, *arguments, **keywords)

    _name(__init__, "__init__", made)
    made.__init__ = __init__


def _bind(
    specs: Mapping[str, FieldSpec], arguments: tuple[Any, ...], keywords: Mapping[str, Any], *, slots: bool
) -> dict[str, Any] | None:
    """Returns the values that ``__init__`` sets; None for invalid arguments, for which the compiled one raises."""
    positional = [spec.name for spec in specs.values() if spec.init and not spec.kw_only]
    given = dict(zip(positional, arguments, strict=False))
    if len(arguments) > len(positional) or not given.keys().isdisjoint(keywords):
        return None
    given.update(keywords)
    values: dict[str, Any] = {}
    for name, spec in specs.items():
        if spec.init and name in given:
            values[name] = given.pop(name)
        elif spec.default_factory is not _MISSING:
            values[name] = spec.default_factory()
        elif spec.default is not _MISSING:
            if spec.init or slots:  # or else the class has the default
                values[name] = spec.default
        elif spec.init:
            return None
    return None if given else values


def _compile_init(made: type, specs: Mapping[str, FieldSpec], *, frozen: bool, slots: bool) -> Any:
    known: dict[str, Any] = {"_missing": _MISSING}
    positional: list[str] = []
    keyword_only: list[str] = []
    body: list[str] = []
    for number, spec in enumerate(specs.values()):
        name = spec.name
        value = name
        if spec.default_factory is not _MISSING:
            known[f"_factory{number}"] = spec.default_factory
            value = f"_factory{number}()" + (f" if {name} is _missing else {name}" if spec.init else "")
            parameter = f"{name}=_missing"
        elif spec.default is not _MISSING:
            known[f"_default{number}"] = spec.default
            parameter = f"{name}=_default{number}"
            if not spec.init:
                value = f"_default{number}"
        else:
            parameter = name
        if spec.init:
            (keyword_only if spec.kw_only else positional).append(parameter)
        elif spec.default is _MISSING and spec.default_factory is _MISSING:
            continue  # __post_init__ sets it
        elif not slots and spec.default_factory is _MISSING:
            continue  # the class has the default
        if not frozen:
            body.append(f"self.{name} = {value}")
            continue
        known[f"_set{number}"] = getattr(made, name).__set__ if slots else None
        body.append(f"_set{number}(self, {value})" if slots else f"_setattr(self, {name!r}, {value})")
    if hasattr(made, "__post_init__"):
        body.append("self.__post_init__()")
    known["_setattr"] = object.__setattr__
    separator = ["*"] if keyword_only else []
    parameters = ", ".join(["self", *positional, *separator, *keyword_only])
    source = f"def __init__({parameters}):\n " + "\n ".join(body or ["pass"])
    exec(source, known)  # noqa: S102 - the names are those of a class body
    init = known["__init__"]
    init.__qualname__ = f"{made.__qualname__}.__init__"
    init.__module__ = made.__module__
    return init
