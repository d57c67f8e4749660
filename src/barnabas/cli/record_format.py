r"""Formats records for ``barnabas consume``: as values, as lines of JSON, or by a kcat template.

======  ==========================================  ======  ==========================================
token   stands for                                  token   stands for
======  ==========================================  ======  ==========================================
``%s``  the value                                   ``%t``  the topic
``%S``  the size of the value, -1 if there is none  ``%p``  the partition
``%k``  the key                                     ``%o``  the offset
``%K``  the size of the key, -1 if there is none    ``%T``  the timestamp, in milliseconds
``%h``  the headers, as name=value,name=value       ``%%``  a per cent sign
======  ==========================================  ======  ==========================================

``\n``, ``\r``, ``\t``, ``\\`` and ``\x41`` have their usual meaning.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from barnabas.cli.console import UsageError

if TYPE_CHECKING:
    from barnabas.clients.consumer import ConsumerRecord

Formatter = Callable[["ConsumerRecord"], bytes]
Part = Callable[["ConsumerRecord"], bytes]

FORMATS: Final = ("value", "key-value", "json")
_TOKEN: Final = re.compile(r"%(.)|\\x([0-9a-fA-F]{2})|\\(.)", re.DOTALL)
_ESCAPES: Final = {"n": b"\n", "r": b"\r", "t": b"\t", "\\": b"\\"}


def formatter(name: str) -> Formatter:
    """Returns the formatter of that name from `FORMATS`."""
    return {"value": _value_line, "key-value": _key_value_line, "json": json_line}[name]


def _bytes(value: Any) -> bytes:
    return b"" if value is None else bytes(value)


def _size(value: Any) -> bytes:
    return b"-1" if value is None else b"%d" % len(value)


def _headers(record: ConsumerRecord) -> bytes:
    return b",".join(
        name.encode() + b"=" + (b"NULL" if value is None else bytes(value)) for name, value in record.headers
    )


_PARTS: Final[dict[str, Part]] = {
    "s": lambda record: _bytes(record.value),
    "S": lambda record: _size(record.value),
    "k": lambda record: _bytes(record.key),
    "K": lambda record: _size(record.key),
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "T": lambda record: b"%d" % record.timestamp,
    "h": _headers,
}


def template(text: str) -> Formatter:
    """Returns a formatter for a template."""
    parts: list[Part] = []

    def literal(data: bytes) -> Part:
        return lambda _record: data

    position = 0
    for match in _TOKEN.finditer(text):
        if match.start() > position:
            parts.append(literal(text[position : match.start()].encode()))
        position = match.end()
        name, code, escape = match.groups()
        if name == "%":
            parts.append(literal(b"%"))
        elif name is not None:
            if name not in _PARTS:
                raise UsageError(
                    f"--format-string: unknown token %{name}; known tokens: {' '.join(f'%{one}' for one in _PARTS)}"
                )
            parts.append(_PARTS[name])
        elif code is not None:
            parts.append(literal(bytes([int(code, 16)])))
        else:
            parts.append(literal(_ESCAPES.get(escape, escape.encode())))
    if position < len(text):
        parts.append(literal(text[position:].encode()))
    return lambda record: b"".join([part(record) for part in parts])


def _value_line(record: ConsumerRecord) -> bytes:
    return _bytes(record.value) + b"\n"


def _key_value_line(record: ConsumerRecord) -> bytes:
    return _bytes(record.key) + b"\t" + _bytes(record.value) + b"\n"


def json_line(record: ConsumerRecord) -> bytes:
    """Formats a record as JSON. A key or value that is not UTF-8 goes to a field of its own, in base64."""
    document: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        **_field("key", record.key),
        **_field("value", record.value),
        "headers": [{"name": name, **_field("value", value)} for name, value in record.headers],
    }
    return json.dumps(document, ensure_ascii=False).encode() + b"\n"


def _field(name: str, data: Any) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: bytes(data).decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(bytes(data)).decode()}
