"""The types of clients' settings: in step with the definitions, and known to a type checker.

``BARNABAS_WRITE_DOCS=1 pytest tests/unit/clients/test_typed_settings.py`` writes the module.
"""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest

from barnabas.clients import typed_settings
from barnabas.clients.admin import KafkaAdminClient
from barnabas.clients.admin.admin_config import CONFIG as ADMIN
from barnabas.clients.common.client_security import SECURITY
from barnabas.clients.common.security_aliases import NAMES, OBJECTS
from barnabas.clients.consumer import KafkaConsumer
from barnabas.clients.consumer.consumer_config import CONFIG as CONSUMER
from barnabas.clients.producer import KafkaProducer
from barnabas.clients.producer.producer_config import CONFIG as PRODUCER
from barnabas.common.config_def import ConfigDef, ConfigKey, Type

MODULE: Final = Path(typed_settings.__file__)
MARK: Final = "# -- generated from the definitions; see tests/unit/clients/test_typed_settings.py\n"
TYPES: Final = {
    Type.BOOLEAN: "bool",
    Type.STRING: "str",
    Type.INT: "int",
    Type.SHORT: "int",
    Type.LONG: "int",
    Type.DOUBLE: "float",
    Type.LIST: "str | Sequence[object]",
    Type.CLASS: "object",
    Type.PASSWORD: "str",
}
EXCEPTIONS: Final = {"acks": "str | int"}
CLIENTS: Final[dict[str, tuple[ConfigDef, type]]] = {
    "Producer": (PRODUCER, KafkaProducer),
    "Consumer": (CONSUMER, KafkaConsumer),
    "Admin": (ADMIN, KafkaAdminClient),
}


def field(key: ConfigKey) -> str:
    kind = EXCEPTIONS.get(key.name, TYPES[key.type])
    optional = "" if kind == "object" else " | None"
    return f"    {key.name.replace('.', '_')}: {kind}{optional}\n"


def table(name: str, text: str, base: str, fields: Iterable[str]) -> str:
    return f'\n\nclass {name}({base}, total=False):\n    """{text}"""\n\n' + "".join(sorted(fields))


def generated() -> str:
    """Returns the generated part of the module."""
    common = PRODUCER.keys.keys() & CONSUMER.keys.keys() & ADMIN.keys.keys()
    aliases = [
        f"    {name.replace('.', '_')}: {'object' if name in OBJECTS else 'str | bool | None'}\n"
        for name in NAMES
        if name not in PRODUCER.keys
    ]
    page = table(
        "ClientSettings",
        "The settings that all clients have, and other clients' names for settings of security.",
        "TypedDict",
        [*(field(PRODUCER.keys[name]) for name in common), *aliases],
    )
    for name, (definition, client) in CLIENTS.items():
        parameters = inspect.signature(client).parameters
        own = [
            field(key)
            for key in definition.keys.values()
            if key.name not in common and key.name.replace(".", "_") not in parameters
        ]
        article = "an" if name == "Admin" else "a"
        what = "an admin client" if name == "Admin" else f"{article} {name.lower()}"
        page += table(f"{name}Settings", f"The settings of {what}, as keywords.", "ClientSettings", own)
        if name == "Consumer":
            continue  # its asynchronous class has the parameters itself
        more = [one.name for one in parameters.values() if one.kind is one.KEYWORD_ONLY]
        page += table(
            f"{name}Arguments",
            f"All keywords of {what}: settings, plug-ins, and what tests replace.",
            f"{name}Settings",
            [f"    {one}: Any\n" for one in more],
        )
    return page


def test_the_module_is_in_step_with_the_definitions() -> None:
    text = MODULE.read_text(encoding="utf-8")
    head, mark, _ = text.partition(MARK)
    assert mark
    if os.environ.get("BARNABAS_WRITE_DOCS"):
        MODULE.write_text(head + mark + generated(), encoding="utf-8")
    assert MODULE.read_text(encoding="utf-8") == head + mark + generated(), "BARNABAS_WRITE_DOCS=1 writes it anew"


@pytest.mark.parametrize("name", CLIENTS)
def test_every_keyword_is_a_setting(name: str) -> None:
    definition: ConfigDef = CLIENTS[name][0]
    known = {key.replace(".", "_") for key in (*definition.keys, *NAMES, *SECURITY.keys)}
    fields = getattr(typed_settings, f"{name}Settings").__annotations__
    assert fields.keys() <= known
    assert "bootstrap_servers" in fields


SNIPPET: Final = """
from barnabas.clients.admin.kafka_admin_client import KafkaAdminClient
from barnabas.clients.consumer.kafka_consumer import KafkaConsumer
from barnabas.clients.producer.kafka_producer import KafkaProducer

KafkaProducer(bootstrap_servers="localhost:9092", linger_ms=5, acks=1, enable_idempotence=False, value_serializer=str)
KafkaProducer({"linger.ms": "5"}, bootstrap_servers=["a:1", "b:2"], sasl_plain_username="me", compression_type=None)
KafkaConsumer("orders", group_id="billing", max_poll_records=100, key_deserializer=bytes.decode)
KafkaAdminClient(bootstrap_servers="localhost:9092", request_timeout_ms=1_000)
KafkaProducer(lingerms="x")
KafkaProducer(linger_ms="x")
KafkaConsumer("orders", linger_ms=5)
KafkaAdminClient(enable_metrics_push="yes")
"""
REFUSED: Final = {10: "lingerms", 11: "linger_ms", 12: "linger_ms", 13: "enable_metrics_push"}


def test_a_type_checker_refuses_wrong_settings(tmp_path: Path) -> None:
    (tmp_path / "snippet.py").write_text(SNIPPET)
    # Only these modules are looked at: all that they import would take half a minute.
    (tmp_path / "mypy.ini").write_text("[mypy]\nfollow_imports = skip\nexplicit_package_bases = True\n")
    environment = {**os.environ, "MYPYPATH": str(MODULE.parents[2])}
    sources = [str(MODULE), *(str(inspect.getfile(client)) for _, client in CLIENTS.values())]
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path), "--no-error-summary", "snippet.py", *sources]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    errors = [line for line in done.stdout.splitlines() if line.startswith("snippet.py") and ": error:" in line]
    found = {int(line.split(":")[1]): line for line in errors}
    assert found.keys() == REFUSED.keys(), done.stdout + done.stderr
    for line, name in REFUSED.items():
        assert name in found[line]


@pytest.mark.parametrize(
    ("client", "settings", "message"),
    [
        (KafkaProducer, {"lingerms": 5}, "there is no setting lingerms; did you mean linger_ms?"),
        (KafkaConsumer, {"max_poll_record": 5}, "there is no setting max_poll_record; did you mean max_poll_records?"),
        (KafkaAdminClient, {"bootstrap_server": "a:1"}, "did you mean bootstrap_servers?"),
        (KafkaProducer, {"xyzzy": 1}, "there is no setting xyzzy$"),
        (KafkaProducer, {"group_id": "x"}, "there is no setting group_id"),
    ],
)
def test_a_setting_that_does_not_exist_is_refused_with_the_closest_one(
    client: type, settings: dict[str, object], message: str
) -> None:
    with pytest.raises(TypeError, match=message.replace("?", r"\?")):
        client(**settings)
