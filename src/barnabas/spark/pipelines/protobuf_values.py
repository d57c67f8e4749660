"""Protobuf values, described by a set of descriptors: of ``protoc --descriptor_set_out``, or of a schema registry."""

from __future__ import annotations

import base64
import importlib
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

from barnabas.spark.pipelines.schema_wire import WireFormat, message_indexes
from barnabas.spark.pipelines.value_schemas import Decode, ValueFormatError, ValueSchema

_SCALARS: Final = {
    FieldDescriptor.CPPTYPE_BOOL: pa.bool_(),
    FieldDescriptor.CPPTYPE_INT32: pa.int32(),
    FieldDescriptor.CPPTYPE_UINT32: pa.int64(),
    FieldDescriptor.CPPTYPE_INT64: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT64: pa.decimal128(20, 0),
    FieldDescriptor.CPPTYPE_FLOAT: pa.float32(),
    FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(),
    FieldDescriptor.CPPTYPE_ENUM: pa.string(),
}
_TIMESTAMP: Final = "google.protobuf.Timestamp"
_WELL_KNOWN: Final = "google/protobuf/"
_MAIN: Final = "value.proto"


def protobuf_schema(descriptors: bytes, message: str | None, wire: WireFormat | None = None) -> ValueSchema:
    """For values of a message; of the first one of the last file, if no name is given.

    ``wire``: the header in front of values, if there is one.
    """
    descriptor = _descriptor(descriptors, message)
    return ValueSchema(message_type(descriptor, ()), partial(_make_decode, descriptors, message, wire))


def descriptor_set(imported: Sequence[tuple[str, str]], main: str) -> bytes:
    """The set of a registry's file descriptors, which are in Base64: those imported, by name, and the one itself."""
    files: dict[str, Any] = {}

    def add(name: str, file: Any) -> None:
        file.name = name
        for dependency in file.dependency:
            if dependency.startswith(_WELL_KNOWN) and dependency not in files:
                module = importlib.import_module(dependency.removesuffix(".proto").replace("/", ".") + "_pb2")
                known = descriptor_pb2.FileDescriptorProto()
                module.DESCRIPTOR.CopyToProto(known)
                add(dependency, known)
        files[name] = file

    try:
        for name, text in (*imported, (_MAIN, main)):
            add(name, descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True)))
    except (ValueError, DecodeError, ImportError) as error:
        raise ValueFormatError(f"the registry does not have it as a file descriptor: {error}") from None
    return bytes(descriptor_pb2.FileDescriptorSet(file=files.values()).SerializeToString())


def _descriptor(descriptors: bytes, message: str | None) -> Descriptor:
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(descriptors)
        pool = descriptor_pool.DescriptorPool()
        for file in files.file:
            pool.Add(file)
        if message is None:
            last = files.file[-1]
            message = f"{last.package}.{last.message_type[0].name}".lstrip(".")
        found: Descriptor = pool.FindMessageTypeByName(message)
    except (DecodeError, TypeError, IndexError) as error:
        raise ValueFormatError(f"this is no descriptor set as protoc --include_imports makes it: {error}") from None
    except KeyError:
        names = ", ".join(f"{file.package}.{one.name}".lstrip(".") for file in files.file for one in file.message_type)
        raise ValueFormatError(f"there is no message {message}; there are {names}") from None
    return found


def _make_decode(descriptors: bytes, message: str | None, wire: WireFormat | None) -> Decode:
    descriptor = _descriptor(descriptors, message)
    cls: Any = message_factory.GetMessageClass(descriptor)
    own = _indexes(descriptor)

    def decode(value: bytes) -> Any:
        if wire is None:
            return row(cls.FromString(value))
        indexes, body = message_indexes(wire.body(value))
        if indexes != own:
            raise ValueError(f"message {indexes} of its file, and {descriptor.full_name} is message {own}")
        return row(cls.FromString(body))

    return decode


def _indexes(descriptor: Any) -> list[int]:
    """Where a message is in its file: its number there, or those of the messages that it is nested in, and its own."""
    outer = descriptor.containing_type
    if outer is None:
        return [list(descriptor.file.message_types_by_name).index(descriptor.name)]
    return [*_indexes(outer), [one.name for one in outer.nested_types].index(descriptor.name)]


def message_type(descriptor: Any, within: tuple[str, ...]) -> pa.DataType:
    """The struct that a message becomes. Fields that have no presence are never null, as in the language itself."""
    if descriptor.full_name == _TIMESTAMP:
        return pa.timestamp("us", "UTC")
    if descriptor.full_name in within:
        raise ValueFormatError(f"{descriptor.full_name} contains itself, which no table can")
    inner = (*within, descriptor.full_name)
    return pa.struct([pa.field(one.name, field_type(one, inner)) for one in descriptor.fields])


def field_type(field: Any, within: tuple[str, ...]) -> pa.DataType:
    if _is_map(field):
        entry = field.message_type.fields_by_name
        return pa.map_(field_type(entry["key"], within), field_type(entry["value"], within))
    if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        kind = message_type(field.message_type, within)
    elif field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        kind = pa.binary() if field.type == FieldDescriptor.TYPE_BYTES else pa.string()
    else:
        kind = _SCALARS[field.cpp_type]
    return pa.list_(kind) if field.is_repeated else kind


def _is_map(field: Any) -> bool:
    return field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE and bool(field.message_type.GetOptions().map_entry)


def row(message: Any) -> Any:
    """A message as Arrow takes it."""
    descriptor = message.DESCRIPTOR
    if descriptor.full_name == _TIMESTAMP:
        return message.seconds * 1_000_000 + message.nanos // 1_000
    return {field.name: _field(message, field) for field in descriptor.fields}


def _field(message: Any, field: Any) -> Any:
    if field.has_presence and not message.HasField(field.name):
        return None
    value = getattr(message, field.name)
    if _is_map(field):
        kind = field.message_type.fields_by_name["value"]
        return [(key, _scalar(one, kind)) for key, one in value.items()]
    return [_scalar(one, field) for one in value] if field.is_repeated else _scalar(value, field)


def _scalar(value: Any, field: Any) -> Any:
    if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        return row(value)
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    return value
