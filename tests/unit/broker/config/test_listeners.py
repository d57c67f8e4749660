"""Listeners: how they are written, what they stand for, and what others are told."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.config.broker_config_def import BROKER_CONFIG_DEF
from barnabas.broker.config.listeners import Listeners, parse_map, resolved
from barnabas.common.config_def import ConfigError
from barnabas.network.server.endpoint import Endpoint, SecurityProtocol
from unit.broker.config.configs import NODE

PLAINTEXT = SecurityProtocol.PLAINTEXT


def listeners(**settings: str) -> Listeners:
    properties: dict[str, Any] = {**NODE, **{name.replace("_", "."): value for name, value in settings.items()}}
    return Listeners.from_values(BROKER_CONFIG_DEF.parse(properties))


def only(text: str) -> Endpoint:
    (endpoint,) = listeners(listeners=text).broker
    return endpoint


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("PLAINTEXT://localhost:9092", "localhost", 9092),
        ("PLAINTEXT://:9092", "", 9092),
        ("PLAINTEXT://0.0.0.0:0", "0.0.0.0", 0),
        ("PLAINTEXT://[::1]:9092", "::1", 9092),
        ("PLAINTEXT://[fe80::1%eth0]:9092", "fe80::1%eth0", 9092),
        ("plaintext://my-host_1.example.com:65535", "my-host_1.example.com", 65535),
    ],
)
def test_one_listener(text: str, host: str, port: int) -> None:
    assert only(text) == Endpoint("PLAINTEXT", PLAINTEXT, host, port)


@pytest.mark.parametrize(
    "text",
    [
        "localhost:9092",
        "PLAINTEXT:/localhost:9092",
        "PLAINTEXT://localhost",
        "PLAINTEXT://localhost:",
        "PLAINTEXT://localhost:65536",
        "PLAINTEXT://localhost:-1",
        "PLAINTEXT://local host:9092",
        "PLAINTEXT://::1:9092",
        "://localhost:9092",
    ],
)
def test_what_is_no_listener(text: str) -> None:
    with pytest.raises(ConfigError, match="listeners"):
        only(text)


def test_controller_listeners_are_told_apart_by_name() -> None:
    found = listeners(
        listeners="PLAINTEXT://a:1,CONTROLLER://b:2,EXTRA://c:3",
        controller_listener_names="controller,EXTRA",
    )
    assert [e.listener_name for e in found.broker] == ["PLAINTEXT"]
    assert [e.listener_name for e in found.controller] == ["CONTROLLER", "EXTRA"]
    assert found.controller_names == ("CONTROLLER", "EXTRA")
    assert found.early_start == {"CONTROLLER", "EXTRA"}


def test_controller_listeners_are_plaintext_as_long_as_nothing_is_secured() -> None:
    assert listeners().protocols["CONTROLLER"] is PLAINTEXT
    for settings in (
        {"listeners": "SSL://:9092,CONTROLLER://:9093"},
        {"listeners": "PLAINTEXT://:9092,SASL_SSL://:1", "controller_listener_names": "SASL_SSL"},
        {"listener_security_protocol_map": "PLAINTEXT:PLAINTEXT"},
    ):
        found: Any = None
        try:
            found = listeners(**settings)
        except ConfigError as error:
            assert "listener.security.protocol.map" in str(error)  # noqa: PT017 - the other outcome is checked too
        assert found is None or "CONTROLLER" not in found.protocols


def test_the_protocol_map_names_listeners() -> None:
    found = listeners(
        listeners="INTERNAL://a:1,EXTERNAL://b:2,CONTROLLER://c:3",
        listener_security_protocol_map="internal:PLAINTEXT,EXTERNAL:SASL_SSL,CONTROLLER:PLAINTEXT",
        inter_broker_listener_name="internal",
    )
    assert [(e.listener_name, e.security_protocol.name) for e in found.broker] == [
        ("INTERNAL", "PLAINTEXT"),
        ("EXTERNAL", "SASL_SSL"),
    ]
    assert (found.inter_broker_name, found.inter_broker_protocol) == ("INTERNAL", PLAINTEXT)


def test_a_name_without_protocol_says_what_to_add() -> None:
    with pytest.raises(ConfigError, match=r"Add INTERNAL:PLAINTEXT to listener\.security\.protocol\.map"):
        listeners(listeners="INTERNAL://a:1")
    with pytest.raises(ConfigError, match=r"Add OTHER:PLAINTEXT to listener\.security\.protocol\.map"):
        listeners(inter_broker_listener_name="OTHER")
    with pytest.raises(ConfigError, match="PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"):
        listeners(listener_security_protocol_map="A:TLS")


def test_names_are_unique() -> None:
    with pytest.raises(ConfigError, match="two listeners named PLAINTEXT"):
        listeners(listeners="PLAINTEXT://:1,plaintext://:2")


@pytest.mark.parametrize(
    ("text", "is_allowed"),
    [
        ("PLAINTEXT://a:1,CONTROLLER://b:1", False),
        ("PLAINTEXT://:1,CONTROLLER://:1", False),
        ("PLAINTEXT://127.0.0.1:1,CONTROLLER://[::1]:1", True),
        ("PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.2:1", False),
        ("PLAINTEXT://127.0.0.1:1,CONTROLLER://localhost:1", False),
        ("PLAINTEXT://127.0.0.1:1,CONTROLLER://[::1]:1,SSL://:1", False),
        ("PLAINTEXT://:0,CONTROLLER://:0", True),
    ],
)
def test_ports_are_unique_but_for_the_two_kinds_of_addresses(text: str, is_allowed: bool) -> None:
    settings = {"listeners": text, "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL"}
    if is_allowed:
        assert len(listeners(**settings).all) == 2
    else:
        with pytest.raises(ConfigError, match="same port 1"):
            listeners(**settings)


def test_advertised_listeners() -> None:
    found = listeners(advertised_listeners="PLAINTEXT://kafka.example.com:19092,CONTROLLER://other:19093")
    assert found.advertised_broker == (Endpoint("PLAINTEXT", PLAINTEXT, "kafka.example.com", 19092),)
    assert found.advertised_controller == (Endpoint("CONTROLLER", PLAINTEXT, "other", 19093),)
    # A controller's that is not advertised is where it listens; and one port may be told for two listeners.
    found = listeners(
        listeners="PLAINTEXT://:9092,SSL://:9094,CONTROLLER://127.0.0.1:9093",
        advertised_listeners="PLAINTEXT://h:1,SSL://h:1",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
    )
    assert [str(e) for e in found.advertised_broker] == ["PLAINTEXT://h:1", "SSL://h:1"]
    assert [str(e) for e in found.advertised_controller] == ["CONTROLLER://127.0.0.1:9093"]


def test_only_one_way_to_name_the_listener_between_brokers() -> None:
    assert listeners().inter_broker_name == "PLAINTEXT"
    assert listeners(security_inter_broker_protocol="SSL").inter_broker_name == "SSL"
    with pytest.raises(ConfigError, match="Only one of"):
        listeners(security_inter_broker_protocol="SSL", inter_broker_listener_name="PLAINTEXT")


def test_early_start_listeners() -> None:
    assert listeners(early_start_listeners="PLAINTEXT").early_start == {"PLAINTEXT"}
    assert listeners(early_start_listeners="").early_start == frozenset()
    with pytest.raises(ConfigError, match="neither in listeners nor in"):
        listeners(early_start_listeners="OTHER")


def test_what_others_are_told() -> None:
    endpoints = [Endpoint("A", PLAINTEXT, "", 0), Endpoint("B", PLAINTEXT, "h", 5), Endpoint("C", PLAINTEXT, "h", 0)]
    asked: list[str] = []

    def bound_port(listener: str) -> int:
        asked.append(listener)
        return 40_000 + len(asked)

    found = resolved(endpoints, bound_port, lambda: "me.example.com")
    assert [str(e) for e in found] == ["A://me.example.com:40001", "B://h:5", "C://h:40002"]
    assert asked == ["A", "C"]


def test_the_name_of_the_machine_is_only_looked_up_if_needed() -> None:
    def host_name() -> str:
        raise AssertionError("a name server was asked for nothing")

    resolved([Endpoint("A", PLAINTEXT, "127.0.0.1", 0)], lambda _: 1, host_name)


def test_maps() -> None:
    assert parse_map(" a:1, ::1:2 ,", "x") == {"a": "1", "::1": "2"}
    for text in ("a", "a:", ":1"):
        with pytest.raises(ConfigError, match="name:value pairs"):
            parse_map(text, "x")
