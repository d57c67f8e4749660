"""Protobuf values of a given message, described by the file that ``protoc --descriptor_set_out`` makes."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

from barnabas.spark.pipelines.lake_values import Decode, DecodedValues, ValueFormatError, without_confluent_header

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


def protobuf_values(descriptors: bytes, message: str, *, confluent: bool = False) -> DecodedValues:
    kind = message_type(_descriptor(descriptors, message), ())
    return DecodedValues(kind, partial(_make_decode, descriptors, message, confluent), "Protobuf")


def _descriptor(descriptors: bytes, message: str) -> Descriptor:
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(descriptors)
        pool = descriptor_pool.DescriptorPool()
        for file in files.file:
            pool.Add(file)
        found: Descriptor = pool.FindMessageTypeByName(message)
    except (DecodeError, TypeError) as error:
        raise ValueFormatError(f"this is no descriptor set as protoc --include_imports makes it: {error}") from None
    except KeyError:
        names = ", ".join(f"{file.package}.{one.name}".lstrip(".") for file in files.file for one in file.message_type)
        raise ValueFormatError(f"there is no message {message}; there are {names}") from None
    return found


def _make_decode(descriptors: bytes, message: str, confluent: bool) -> Decode:
    descriptor = _descriptor(descriptors, message)
    cls: Any = message_factory.GetMessageClass(descriptor)

    def decode(value: bytes) -> Any:
        body = _without_indexes(without_confluent_header(value)) if confluent else value
        return row(cls.FromString(body))

    return decode


def _without_indexes(value: bytes) -> bytes:
    """A registry's serializer also says which message of its file it is: a count and so many numbers, as varints."""
    position, count = _varint(value, 0)
    for _ in range(count):
        position, _number = _varint(value, position)
    return value[position:]


def _varint(value: bytes, position: int) -> tuple[int, int]:
    shift = number = 0
    while True:
        octet = value[position]
        number |= (octet & 0x7F) << shift
        position += 1
        shift += 7
        if not octet & 0x80:
            return position, (number >> 1) ^ -(number & 1)


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
