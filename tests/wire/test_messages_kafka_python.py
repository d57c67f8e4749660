"""Messages against kafka-python's schemas: an oracle for machines without Java."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

import kafka.protocol
import pytest
from kafka.protocol.api_message import ApiMessage

from barnabas.protocol.messages.api_versions import ApiVersionsResponse
from oracles.messages import all_messages, message_values, versions_of

MESSAGES = all_messages()
_COMPOUND = {"array", "struct", "uuid", "records"}


def _theirs() -> dict[str, Any]:
    for module in pkgutil.walk_packages(kafka.protocol.__path__, "kafka.protocol."):
        if ".old" not in module.name and "generate_stubs" not in module.name:
            importlib.import_module(module.name)
    return {cls.__name__: cls for cls in ApiMessage.__subclasses__() if cls.__name__ in MESSAGES}


THEIRS = _theirs()


def test_they_have_most_of_the_client_side() -> None:
    assert len(THEIRS) > 100


@pytest.mark.parametrize("name", sorted(THEIRS))
def test_same_bytes(name: str, record_property: Callable[[str, object], None]) -> None:
    ours, theirs = MESSAGES[name], THEIRS[name]
    compared = 0
    for version in versions_of(ours):
        if version > theirs.max_version:
            continue
        for message in message_values(ours, version, 5):
            if isinstance(message, ApiVersionsResponse):
                message.error_code = 0  # they read the answer as version 0 when it carries an error
            data = message.encode(version)
            read = theirs.decode(data, version=version)
            read._header = None  # their decoder leaves it unset, their encoder asks for it
            assert read.encode(version=version) == data, version
            for field in ours.fields:
                # They rename a few fields, and have their own types for the compound ones.
                if version in field.versions and field.kind not in _COMPOUND and hasattr(read, field.name):
                    assert getattr(read, field.name) == getattr(message, field.name), (version, field.name)
        compared += 1
    record_property("message_versions_kafka_python", compared)
