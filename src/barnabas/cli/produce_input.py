"""Parses lines of text into records."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

FIELDS: Final = ("value", "key", "headers", "partition", "timestamp")

Header = tuple[str, bytes | None]


class BadLineError(ValueError):
    """A line is not a valid record; the message says why."""


class LineRecord(NamedTuple):
    """A record parsed from a line."""

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[Header] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


LineReader = Callable[[bytes], LineRecord]


def line_reader(*, as_json: bool, key_separator: str | None) -> LineReader:
    """Returns the parser of lines, which are passed without their line end."""
    if as_json:
        return read_json
    if key_separator is not None:
        separator = key_separator.encode()
        return lambda line: read_keyed(line, separator)
    return LineRecord


def read_keyed(line: bytes, separator: bytes) -> LineRecord:
    """
    >>> read_keyed(b"a:b:c", b":")[:2]
    (b'b:c', b'a')
    """
    key, found, value = line.partition(separator)
    if not found:
        raise BadLineError(f"the key separator {separator.decode()!r} is missing")
    return LineRecord(value, key)


def read_json(line: bytes) -> LineRecord:
    """Parses a JSON object with ``value`` and optionally ``key``, ``headers``, ``partition`` and ``timestamp``.

    Strings are sent as UTF-8, null as Kafka's null, and everything else as JSON.

    >>> read_json(b'{"key": "a", "value": {"n": 1}, "headers": {"h": "x"}}')
    LineRecord(value=b'{"n":1}', key=b'a', headers=[('h', b'x')], partition=None, timestamp_ms=None)
    """
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadLineError(f"invalid JSON: {error}") from None
    if not isinstance(found, dict):
        raise BadLineError(f"must be a JSON object, not {type(found).__name__}")
    unknown = [name for name in found if name not in FIELDS]
    if unknown:
        raise BadLineError(f"unknown field {unknown[0]}; a record has {', '.join(FIELDS)}")
    if "value" not in found:
        raise BadLineError("the field value is missing")
    return LineRecord(
        _octets(found["value"]),
        _octets(found.get("key")),
        _headers(found.get("headers")),
        _number(found.get("partition"), "partition", 32),
        _number(found.get("timestamp"), "timestamp", 64),
    )


def _octets(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


def _headers(found: Any) -> Sequence[Header]:
    """Accepts a mapping, or a list of pairs, in which a name may occur twice."""
    if found is None:
        return ()
    pairs: Any = found.items() if isinstance(found, Mapping) else found
    if not isinstance(found, Mapping | list) or any(
        not isinstance(pair, list | tuple) or len(pair) != 2 for pair in pairs
    ):
        raise BadLineError("headers must be an object or a list of pairs")
    if any(not isinstance(name, str) for name, _ in pairs):
        raise BadLineError("the names of headers must be strings")
    for name, _ in pairs:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise BadLineError(f"the name of a header cannot be encoded as UTF-8: {name!r}") from None
    return [(name, _octets(value)) for name, value in pairs]


def _number(found: Any, name: str, bits: int) -> int | None:
    if found is None:
        return None
    if not isinstance(found, int) or isinstance(found, bool) or found < 0:
        raise BadLineError(f"{name} must be a non-negative integer: {found!r}")
    if found >= 1 << (bits - 1):
        raise BadLineError(f"{name} must fit into {bits} bits: {found}")
    return found
