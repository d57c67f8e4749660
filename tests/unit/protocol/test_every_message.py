"""Every message in every version: what is written is read again, and both codecs agree with the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from types import ModuleType

import pytest

from barnabas.protocol.codec.interpreter import interpret_decode, interpret_encode
from barnabas.protocol.json_form import from_json, to_json
from oracles.messages import all_messages, message_values, versions_of

MESSAGES = all_messages()


@pytest.mark.parametrize("name", MESSAGES)
def test_round_trip_and_twin(name: str, record_property: Callable[[str, object], None]) -> None:
    cls = MESSAGES[name]
    record_property("message_versions", len(versions_of(cls)))
    for version in versions_of(cls):
        for message in message_values(cls, version, 5):
            data = message.encode(version)
            assert data == interpret_encode(message, version)
            assert cls.decode(data, version) == message
            assert cls.decode(memoryview(bytearray(data)), version) == message
            assert interpret_decode(cls, version, data) == (message, len(data))
            assert from_json(cls, to_json(message, version), version) == message


@pytest.mark.parametrize("name", MESSAGES)
def test_the_compiled_codec_and_its_twin_agree(name: str) -> None:
    """On the bytes of frames, and on what is decoded from them, whole or with one byte changed."""
    compiled = pytest.importorskip("barnabas._kernels.compiled.codec", reason="not built")
    from barnabas._kernels.pure import codec as pure

    def decoded(codec: ModuleType, data: bytearray) -> object:
        try:
            return codec.decoder(cls, version)(data, 0, len(data))
        except Exception:  # noqa: BLE001 - malformed: callers explain it with the interpreter
            return None

    cls = MESSAGES[name]
    random = Random(name)
    for version in versions_of(cls):
        for message in message_values(cls, version, 5):
            frame = b"".join(compiled.encoder(cls, version)(message, b"head"))
            assert frame == b"".join(pure.encoder(cls, version)(message, b"head"))
            assert int.from_bytes(frame[:4]) == len(frame) - 4
            data = bytearray(frame[8:])
            assert decoded(compiled, data) == decoded(pure, data) == (message, len(data))
            for _ in range(5):
                damaged = bytearray(data)
                if damaged:
                    damaged[random.randrange(len(damaged))] = random.randrange(256)
                assert decoded(compiled, damaged) == decoded(pure, damaged)


@pytest.mark.parametrize("name", MESSAGES)
def test_unknown_tagged_fields_survive(name: str) -> None:
    cls = MESSAGES[name]
    for version in versions_of(cls):
        if version not in cls.flexible:
            continue
        for message in message_values(cls, version, 3):
            message.unknown_tagged_fields = {9_000: b"from the future", 200: b""}
            data = message.encode(version)
            again = cls.decode(data, version)
            assert again.unknown_tagged_fields == message.unknown_tagged_fields
            assert again.encode(version) == data


@pytest.mark.parametrize("name", MESSAGES)
def test_every_cut_is_one_protocol_error(name: str) -> None:
    """A message cut short anywhere is refused with the place, by the compiled decoder and the interpreter alike."""
    from barnabas.common.errors import ProtocolError

    cls = MESSAGES[name]
    for version in versions_of(cls):
        *_, message = message_values(cls, version, 3)
        data = message.encode(version)
        step = max(1, len(data) // 40)
        for cut in range(0, len(data), step):
            with pytest.raises(ProtocolError, match=f"^{name} v{version}"):
                cls.decode(data[:cut], version)


def test_annotations_say_what_travels() -> None:
    """The annotation is what the type checker believes; it must be what the field really holds."""
    plain = {"bool": "bool", "float64": "float", "uuid": "Uuid", "string": "str", "bytes": "bytes"}
    seen = set()
    stack = list(MESSAGES.values())
    checked = 0
    while stack:
        cls = stack.pop()
        if cls in seen:
            continue
        seen.add(cls)
        annotations = {k: v for base in cls.__mro__ for k, v in getattr(base, "__annotations__", {}).items()}
        for field in cls.fields:
            element = field.element
            if isinstance(element, type):
                stack.append(element)  # type: ignore[arg-type]
            inner = element.__name__ if isinstance(element, type) else plain.get(element or field.kind, "int")
            expected = f"list[{inner}]" if field.kind == "array" else inner
            if field.kind == "records":
                assert annotations[field.name] in {"Buffer | None", "Records | None"}
                continue
            may_be_null = field.nullable.highest >= 0 or (field.kind == "struct" and field.default_factory is None)
            assert annotations[field.name] == (f"{expected} | None" if may_be_null else expected), (cls, field.name)
            if field.default is None:
                assert may_be_null or field.default_factory is not None, (cls, field.name)
            checked += 1
    assert checked > 1_500
