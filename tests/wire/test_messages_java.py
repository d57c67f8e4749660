"""Every message in every version against the Java client's own serializers.

Our bytes are read by Java, which tells the value of every field by name, and writes the same bytes again; Java's bytes
for the same JSON are ours. So names, types, order, versions, defaults, nullability and tags are all Kafka's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.protocol.json_form import to_json
from oracles.java import JavaOracle, OracleError
from oracles.messages import all_messages, message_values, versions_of

pytestmark = pytest.mark.java

MESSAGES = all_messages()
VALUES = 6


def test_nothing_is_missing(java_oracle: JavaOracle) -> None:
    """We declare every message that Kafka has, in just its versions."""
    theirs = {name: (row["lowestVersion"], row["highestVersion"]) for name, row in java_oracle.messages().items()}
    ours = {name: (cls.versions.lowest, cls.versions.highest) for name, cls in MESSAGES.items()}
    assert ours == theirs


@pytest.mark.parametrize("name", MESSAGES)
def test_same_bytes_and_same_fields(
    name: str, java_oracle: JavaOracle, record_property: Callable[[str, object], None]
) -> None:
    cls = MESSAGES[name]
    calls: list[tuple[int, bytes, dict[str, Any]]] = [
        (version, message.encode(version), to_json(message, version))
        for version in versions_of(cls)
        for message in message_values(cls, version, VALUES)
    ]
    shown = java_oracle.decode_to_json_many((name, version, data) for version, data, _ in calls)
    written = java_oracle.reencode_many((name, version, data) for version, data, _ in calls)
    made = java_oracle.encode_from_json_many((name, version, value) for version, _, value in calls)
    for (version, data, value), decoded, again, encoded in zip(calls, shown, written, made, strict=True):
        assert not isinstance(decoded, OracleError), (version, decoded)
        assert decoded == value, version
        assert again == data, version
        assert encoded == data, version
    record_property("message_versions_java", len(versions_of(cls)))


@pytest.mark.parametrize("name", MESSAGES)
def test_same_defaults(name: str, java_oracle: JavaOracle) -> None:
    """A message nobody touched has the same bytes, or cannot be written, on both sides."""
    cls = MESSAGES[name]
    for version in versions_of(cls):
        (theirs,) = java_oracle.encode_default_many([(name, version)])
        if isinstance(theirs, OracleError):
            with pytest.raises(Exception, match=name):
                cls().encode(version)
        else:
            assert cls().encode(version) == theirs, version
