"""Field declarations: the functions that declare the fields of messages.

A message is a class whose annotated attributes are its fields. The annotation is the Python type, the value says how
the field is encoded::

    class HeartbeatRequest(Request, api_key=ApiKey.HEARTBEAT):
        group_id: str = string(default="")
        generation_id: int = int32(default=0)
        group_instance_id: str | None = string("3+", nullable="3+", default=None)

The first argument is the range of versions that have the field (all of them when left out). ``default`` is the value of
a new object, and of a decoded one whose version lacks the field. Every field has a default, because a message object
serves all versions.

``ignorable`` decides what happens when a field is set but the version being written cannot carry it: an ignorable field
is dropped silently. Any other raises :class:`~barnabas.common.errors.UnsupportedVersionError`, because dropping it
would change the meaning of the message.

``tag`` makes the field a *tagged* field (KIP-482): it is written after the ordinary fields, as number, size and value,
and only when it differs from its default.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from barnabas.common.dataclass import dataclass
from barnabas.common.identifiers import Uuid
from barnabas.protocol.versions import ALL, NONE, VersionRange

if TYPE_CHECKING:
    from typing import TypedDict, Unpack

    from barnabas.protocol.message import Struct

    class Options(TypedDict, total=False):
        """The options of every field, which `_field` has with their defaults."""

        tag: int
        tagged: str
        ignorable: bool

    class NullableOptions(Options, total=False):
        """The options of a field that may be null."""

        nullable: str


FIXED: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
"""The kinds of fixed size, with their code in :mod:`struct`."""

WIDTH: Final = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "float64": 8,
    "uuid": 16,
}


@dataclass(slots=True)
class Field:
    """One declared field. ``name`` is set when the declaring class is created."""

    kind: str
    """``int32``, ``string``, ``bytes``, ``records``, ``struct``, ``array`` ..."""
    versions: VersionRange
    default: Any
    default_factory: Callable[[], Any] | None
    nullable: VersionRange
    tag: int | None
    tagged: VersionRange
    ignorable: bool
    flexible: VersionRange | None
    """Overrides the message's flexible versions; only the client id of the request header needs it."""
    element: str | type[Struct] | None
    """The element type of an array, or the type of a struct."""
    name: str = ""

    def is_tagged(self, version: int) -> bool:
        return self.tag is not None and version in self.tagged

    def make_default(self) -> Any:
        return self.default_factory() if self.default_factory is not None else self.default


def _field(
    kind: str,
    versions: str | None,
    default: object,
    *,
    default_factory: Callable[[], Any] | None = None,
    nullable: str | None = None,
    tag: int | None = None,
    tagged: str | None = None,
    ignorable: bool = False,
    flexible: str | None = None,
    element: str | type[Struct] | None = None,
) -> Any:
    own = ALL if versions is None else VersionRange.parse(versions)
    return Field(
        kind=kind,
        versions=own,
        default=default,
        default_factory=default_factory,
        nullable=NONE if nullable is None else VersionRange.parse(nullable),
        tag=tag,
        tagged=NONE if tag is None else own if tagged is None else VersionRange.parse(tagged),
        ignorable=ignorable,
        flexible=None if flexible is None else VersionRange.parse(flexible),
        element=element,
    )


# Each specifier below is a function of its own because a type checker must recognise it by name.


def boolean(versions: str | None = None, *, default: bool, **options: Unpack[Options]) -> Any:
    return _field("bool", versions, default, **options)


def int8(versions: str | None = None, *, default: int, **options: Unpack[Options]) -> Any:
    return _field("int8", versions, default, **options)


def int16(versions: str | None = None, *, default: int, **options: Unpack[Options]) -> Any:
    return _field("int16", versions, default, **options)


def uint16(versions: str | None = None, *, default: int, **options: Unpack[Options]) -> Any:
    return _field("uint16", versions, default, **options)


def int32(versions: str | None = None, *, default: int, **options: Unpack[Options]) -> Any:
    return _field("int32", versions, default, **options)


def uint32(versions: str | None = None, *, default: int, **options: Unpack[Options]) -> Any:
    return _field("uint32", versions, default, **options)


def int64(versions: str | None = None, *, default: int, **options: Unpack[Options]) -> Any:
    return _field("int64", versions, default, **options)


def float64(versions: str | None = None, *, default: float, **options: Unpack[Options]) -> Any:
    return _field("float64", versions, default, **options)


def uuid(versions: str | None = None, *, default: Uuid, **options: Unpack[Options]) -> Any:
    return _field("uuid", versions, default, **options)


def string(
    versions: str | None = None,
    *,
    default: str | None,
    flexible: str | None = None,
    **options: Unpack[NullableOptions],
) -> Any:
    return _field("string", versions, default, flexible=flexible, **options)


def binary(versions: str | None = None, *, default: bytes | None, **options: Unpack[NullableOptions]) -> Any:
    """Declares Kafka's ``bytes``: copied out of the request buffer, so the value may outlive it."""
    return _field("bytes", versions, default, **options)


def records(versions: str | None = None, *, default: None, nullable: str | None = None) -> Any:
    """Declares record batches, which are never copied: a view of the request buffer, one piece of the response."""
    return _field("records", versions, default, nullable=nullable)


def array(
    element: str | type[Struct],
    versions: str | None = None,
    *,
    default: None = None,
    default_factory: Callable[[], list[Any]] | None = None,
    **options: Unpack[NullableOptions],
) -> Any:
    """Declares a list of structs, or of a primitive given by its name: ``array("int32", default_factory=list)``."""
    return _field("array", versions, default, default_factory=default_factory, element=element, **options)


def struct(
    element: type[Struct],
    versions: str | None = None,
    *,
    default: None = None,
    default_factory: Callable[[], Any] | None = None,
    **options: Unpack[NullableOptions],
) -> Any:
    """Declares a nested struct.

    A tagged struct that Kafka declares as not nullable, with a default of all defaults, is ``None`` here when it is
    absent. A fetch response has three of them per partition, and creating three objects only to omit them would cost
    more than the rest of the partition.
    """
    return _field("struct", versions, default, default_factory=default_factory, element=element, **options)
