"""Structs and messages: the base classes of declared messages.

A message class only collects its fields. The codec of a version is created when that version is first encoded or
decoded: by the kernel `codec`, which follows the declaration, or by its twin, which generates Python source from it
(see :mod:`barnabas.protocol.codec.compiler`). So a client that uses three APIs creates six codecs.
"""

from __future__ import annotations

import struct as struct_format
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, Self, dataclass_transform

from barnabas import _kernels
from barnabas.common.errors import ProtocolError, UnsupportedVersionError
from barnabas.protocol.fields import (
    Field,
    array,
    binary,
    boolean,
    float64,
    int8,
    int16,
    int32,
    int64,
    records,
    string,
    struct,
    uint16,
    uint32,
    uuid,
)
from barnabas.protocol.versions import NONE, VersionRange

if TYPE_CHECKING:
    from barnabas.protocol.api_keys import ApiKey


class Region(Protocol):
    """Records that are not in memory: a part of a log file that the transport sends unchanged."""

    def __len__(self) -> int: ...


Buffer = bytes | bytearray | memoryview
Records = bytes | bytearray | memoryview | Region
Decoder = Callable[..., tuple[Any, int]]
"""``decode(buffer, start, end) -> (message, position after it)``. The decoder of a request takes a fourth argument, the
maximum number of entries of the request."""
Encoder = Callable[[Any, bytes | None], list[Any]]
"""``encode(message, head)``: see `Message.encode_parts`."""

FEW: Final = 3
"""A class gets a generated constructor after this many instances; generating it takes as long as creating ten."""


class TooManyEntriesError(ProtocolError):
    """A request has more entries than its reader allows; see `Request.max_entries`."""


class EncodeError(ProtocolError):
    """A message of this process cannot be encoded: a bug in this process, not in the peer."""


_compile_lock = threading.Lock()
"""Guards the per-class codec tables while a codec is compiled. No other lock is taken while it is held."""


def _tags(*, default: None = None, kw_only: bool = False) -> Any:
    """Declares the unknown tagged fields of all structs to type checkers; at run time they are a slot."""


@dataclass_transform(
    field_specifiers=(
        _tags,
        boolean,
        int8,
        int16,
        uint16,
        int32,
        uint32,
        int64,
        float64,
        uuid,
        string,
        binary,
        records,
        array,
        struct,
    ),
)
class StructType(type):
    """Collects the declared fields of a class and turns them into slots."""

    fields: tuple[Field, ...]

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> StructType:
        declared: list[Field] = []
        namespace.pop("unknown_tagged_fields", None)
        for attribute in namespace.get("__annotations__", ()):
            field = namespace.get(attribute)
            if isinstance(field, Field):
                field.name = attribute
                declared.append(field)
                del namespace[attribute]
        slots = tuple(field.name for field in declared)
        is_first = not any(isinstance(base, StructType) for base in bases)
        namespace["__slots__"] = ("unknown_tagged_fields",) if is_first else slots
        cls = super().__new__(mcs, name, bases, namespace, **options)
        cls.fields = tuple(declared)
        return cls


class Struct(_kernels.memory.StructMemory, metaclass=StructType):
    """A group of fields: a message, or the element of an array inside one.

    The constructor takes the fields by name, or by position in the order of their declaration; omitted fields get their
    default. Python builds a dict for the keywords of a class call, so positional arguments take less than half the
    time: the structs of produce and fetch responses are created that way.

    The constructor is generated after a few uses, because most structs of most processes are only decoded, and many of
    the others are created once.
    """

    fields: ClassVar[tuple[Field, ...]]
    _made: ClassVar[int]
    unknown_tagged_fields: dict[int, bytes] | None = _tags(default=None, kw_only=True)
    """Tagged fields from a newer peer, kept so that re-encoding the message preserves them."""

    def __init__(self, *positional: Any, **values: Any) -> None:
        cls = type(self)
        made = cls.__dict__.get("_made", 0)
        by_position = {field.name: value for field, value in zip(cls.fields, positional, strict=False)}
        if (
            made >= FEW
            or len(by_position) < len(positional)
            or not values.keys() <= cls._settable() - by_position.keys()
        ):
            cls.__init__ = _make_init(cls)  # type: ignore[method-assign]
            cls.__init__(self, *positional, **values)  # it raises the TypeError for wrong arguments
            return
        cls._made = made + 1
        values |= by_position
        self.unknown_tagged_fields = values.get("unknown_tagged_fields")
        for field in cls.fields:
            name = field.name
            setattr(self, name, values[name] if name in values else field.make_default())

    @classmethod
    def _settable(cls) -> set[str]:
        return {"unknown_tagged_fields", *[field.name for field in cls.fields]}

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.unknown_tagged_fields == other.unknown_tagged_fields and all(
            getattr(self, field.name) == getattr(other, field.name) for field in self.fields
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        hidden = _SECRETS | _SECRETS_OF.get(type(self).__name__, frozenset())
        shown = [
            f"{field.name}={'[hidden]' if field.name in hidden else repr(getattr(self, field.name))}"
            for field in self.fields
        ]
        if self.unknown_tagged_fields:
            shown.append(f"unknown_tagged_fields={self.unknown_tagged_fields!r}")
        return f"{type(self).__name__}({', '.join(shown)})"


def _make_init(cls: type[Struct]) -> Callable[..., None]:
    """Generates ``__init__`` with one parameter per field, as :mod:`dataclasses` would."""
    scope: dict[str, Any] = {"_ABSENT": _ABSENT}
    parameters = ["self"]
    body = ["    self.unknown_tagged_fields = unknown_tagged_fields"]
    for field in cls.fields:
        if field.default_factory is not None:
            scope[f"_f_{field.name}"] = field.default_factory
            parameters.append(f"{field.name}=_ABSENT")
            body.append(f"    self.{field.name} = _f_{field.name}() if {field.name} is _ABSENT else {field.name}")
        else:
            scope[f"_d_{field.name}"] = field.default
            parameters.append(f"{field.name}=_d_{field.name}")
            body.append(f"    self.{field.name} = {field.name}")
    parameters += ["*", "unknown_tagged_fields=None"]
    source = f"def __init__({', '.join(parameters)}):\n" + "\n".join(body)
    exec(compile(source, f"<{cls.__qualname__}.__init__>", "exec"), scope)  # noqa: S102 - made from our own declarations
    made: Callable[..., None] = scope["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


_ABSENT: Any = object()
_SECRETS: Final = frozenset({"auth_bytes", "hmac", "salted_password", "server_key", "stored_key"})
"""Fields that ``repr`` hides: passwords and equivalent secrets."""
_SECRETS_OF: Final = {"AlterableConfig": frozenset({"value"}), "ConfigRecord": frozenset({"value"})}
"""Fields of one struct that ``repr`` hides: the value of a setting may be a password."""


class Message(Struct):
    """A struct with versions that is encoded and decoded on its own.

    ``versions`` is the range that this code supports, ``flexible`` the part of it that uses compact lengths and tagged
    fields (KIP-482).
    """

    versions: ClassVar[VersionRange] = NONE
    flexible: ClassVar[VersionRange] = NONE
    _decoders: ClassVar[dict[int, Decoder]]
    _encoders: ClassVar[dict[int, Encoder]]

    def __init_subclass__(
        cls,
        *,
        versions: str | None = None,
        flexible: str = "none",
        **options: Any,
    ) -> None:
        super().__init_subclass__(**options)
        cls.versions = NONE if versions is None else VersionRange.parse(versions)
        cls.flexible = VersionRange.parse(flexible)
        cls._decoders = {}
        cls._encoders = {}

    # -- decoding

    @classmethod
    def decoder(cls, version: int) -> Decoder:
        """Returns the decoder of one version. `decode_from` calls it and explains errors."""
        found = cls._decoders.get(version)
        if found is None:
            cls._check_version(version)
            with _compile_lock:
                found = cls._decoders.get(version)
                if found is None:
                    found = cls._decoders[version] = _kernels.codec.decoder(cls, version)
        return found

    @classmethod
    def decode_from(
        cls, buffer: Buffer, version: int, start: int = 0, end: int | None = None, max_entries: int | None = None
    ) -> tuple[Self, int]:
        """Decodes the message that starts at ``start``; returns it and the position after it.

        ``max_entries`` is for requests. A request with more entries raises `TooManyEntriesError` before those beyond
        the limit are read.
        """
        limit = len(buffer) if end is None else end
        decode = cls._decoders.get(version) or cls.decoder(version)
        try:
            return decode(buffer, start, limit) if max_entries is None else decode(buffer, start, limit, max_entries)
        except Exception as error:
            if max_entries is not None and isinstance(error, TooManyEntriesError):
                raise
            from barnabas.protocol.codec.interpreter import explain_decode_failure  # the rare path

            raise explain_decode_failure(cls, version, buffer, start, limit, error) from None

    @classmethod
    def decode(cls, buffer: Buffer, version: int) -> Self:
        """Decodes a buffer that holds this message and nothing else."""
        message, position = cls.decode_from(buffer, version)
        if position != len(buffer):
            raise ProtocolError(
                f"{cls.__name__} v{version}: {len(buffer) - position} bytes left over after the message, "
                f"which ends at byte {position} of {len(buffer)}"
            )
        return message

    # -- encoding

    @classmethod
    def encoder(cls, version: int) -> Encoder:
        """Returns the encoder of one version. `encode_parts` calls it and explains errors."""
        found = cls._encoders.get(version)
        if found is None:
            cls._check_version(version)
            with _compile_lock:
                found = cls._encoders.get(version)
                if found is None:
                    found = cls._encoders[version] = _kernels.codec.encoder(cls, version)
        return found

    def encode_parts(self, version: int, head: bytes | None = None) -> list[Any]:
        """Returns the encoded message as a list of buffers; ``records`` are passed through unchanged.

        A region of a log file stays a region, which the transport sends without reading it. With a `head`, the result
        is a frame: its length in four bytes, the head, and the message.
        """
        try:
            encode = self._encoders.get(version) or self.encoder(version)
            return encode(self, head)
        except UnsupportedVersionError:
            raise
        except Exception as error:  # noqa: BLE001 - turned into one ProtocolError that says which field
            from barnabas.protocol.codec.interpreter import explain_encode_failure  # the rare path

            raise explain_encode_failure(self, version, error) from None

    def encode(self, version: int) -> bytes:
        return b"".join(self.encode_parts(version))

    @classmethod
    def _check_version(cls, version: int) -> None:
        if version not in cls.versions:
            raise UnsupportedVersionError(f"{cls.__name__} has no version {version}; it has {cls.versions}")


class ApiMessage(Message):
    """A message that belongs to an API: the body of a request or of a response.

    Its versions are those of the API, from the table in :mod:`barnabas.protocol.api_keys`.
    """

    api_key: ClassVar[ApiKey]

    def __init_subclass__(cls, *, api_key: ApiKey | None = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        if api_key is not None:
            cls.api_key = api_key
            cls.versions = api_key.versions
            cls.flexible = api_key.flexible


class Request(ApiMessage):
    """The body of a request."""

    max_entries: ClassVar[int] = 50_000
    """The most entries that one request may have: the elements of all its arrays, and the tagged fields that a struct
    has beyond the declared ones. A request with more is refused before they are created: an entry costs the sender a
    few bytes, but the receiver hundreds of bytes and some microseconds."""
    max_string: ClassVar[int] = 0x7FFF
    """The most bytes of a string, as in Kafka. Flexible versions could carry more, but versions that are not flexible,
    and the keys of stored records, cannot."""


_pack_head = struct_format.Struct(">i").pack
_pack_flexible_head = struct_format.Struct(">ix").pack
"""The header of a response with an empty section of tagged fields."""


class Response(ApiMessage):
    """The body of a response."""

    flexible_headers: ClassVar[VersionRange] = NONE
    """The versions whose response header has tagged fields."""

    def frame_parts(self, version: int, correlation_id: int) -> list[Any]:
        """Returns the frame of the response as a list of buffers and, for records that are still in a file, regions."""
        first, last = self.flexible_headers  # half the time of ``version in``, which calls Python
        pack = _pack_flexible_head if first <= version <= last else _pack_head
        return self.encode_parts(version, pack(correlation_id))

    def __init_subclass__(cls, *, api_key: ApiKey | None = None, **options: Any) -> None:
        super().__init_subclass__(api_key=api_key, **options)
        if api_key is not None:
            cls.flexible_headers = api_key.flexible_response_headers
