"""Listeners: where a node takes connections, and which addresses it tells others.

One setting, ``listeners``, has the addresses of both roles, and their names tell them apart::

    process.roles=broker,controller
    listeners=PLAINTEXT://:9092,CONTROLLER://127.0.0.1:9093
    controller.listener.names=CONTROLLER
    advertised.listeners=PLAINTEXT://kafka.example.com:9092

The port for clients is on all interfaces, because no host is given, and clients are told to connect to
``kafka.example.com``. Without ``advertised.listeners`` they would be told the canonical name of this machine. Other
nodes find the controller at ``127.0.0.1:9093``.

What a listener's name stands for is in ``listener.security.protocol.map``. A controller's listener needs no entry there
as long as nothing in sight is secured: then it is PLAINTEXT.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Self

from barnabas.common.config_def import ConfigError, ConfigValues
from barnabas.common.dataclass import dataclass, replace
from barnabas.network.endpoint import Endpoint, SecurityProtocol

LISTENERS: Final = "listeners"
ADVERTISED_LISTENERS: Final = "advertised.listeners"
PROTOCOL_MAP: Final = "listener.security.protocol.map"
CONTROLLER_LISTENER_NAMES: Final = "controller.listener.names"
EARLY_START_LISTENERS: Final = "early.start.listeners"
INTER_BROKER_LISTENER_NAME: Final = "inter.broker.listener.name"
INTER_BROKER_PROTOCOL: Final = "security.inter.broker.protocol"

_ENDPOINT: Final = re.compile(r"([^:/]*)://(?:\[([0-9A-Za-z%._:-]*)\]|([0-9A-Za-z%._-]*)):([0-9]+)")
_LARGEST_PORT: Final = 65535
_SECURED: Final = frozenset(
    protocol.name for protocol in SecurityProtocol if protocol is not SecurityProtocol.PLAINTEXT
)


@dataclass(frozen=True, slots=True)
class Listeners:
    """The listeners of a node, sorted out."""

    broker: tuple[Endpoint, ...]
    """Where brokers and clients connect to; an empty host is all interfaces."""
    controller: tuple[Endpoint, ...]
    """Where the controller role listens."""
    advertised_broker: tuple[Endpoint, ...]
    """What clients are told. An empty host or a port of 0 is still to be found out: see `resolved`."""
    advertised_controller: tuple[Endpoint, ...]
    controller_names: tuple[str, ...]
    """The names of controllers' listeners, of this node or others; a broker connects to the first."""
    inter_broker_name: str
    inter_broker_protocol: SecurityProtocol
    protocols: Mapping[str, SecurityProtocol]
    """By listener name; for the names in `controller_names`, which a broker has no listener of, too."""
    early_start: frozenset[str]
    """The listeners that do not wait for the authorizer."""

    @classmethod
    def from_values(cls, values: ConfigValues) -> Self:
        """What the settings say; what the roles of the node make of it is checked elsewhere."""
        controller_names = tuple(name.upper() for name in values.get_list(CONTROLLER_LISTENER_NAMES))
        protocols = _protocols(values, controller_names)
        listeners = parse_endpoints(values.get_list(LISTENERS), protocols, LISTENERS)
        check_ports(listeners)
        texts = values.get_optional_list(ADVERTISED_LISTENERS)
        advertised = listeners if texts is None else parse_endpoints(texts, protocols, ADVERTISED_LISTENERS)
        controller = tuple(e for e in listeners if e.listener_name in controller_names)
        by_name = {e.listener_name: e for e in (*controller, *advertised)}
        inter_broker_name, inter_broker_protocol = _inter_broker(values, protocols)
        return cls(
            broker=tuple(e for e in listeners if e.listener_name not in controller_names),
            controller=controller,
            advertised_broker=tuple(e for e in advertised if e.listener_name not in controller_names),
            advertised_controller=tuple(by_name[name] for name in controller_names if name in by_name),
            controller_names=controller_names,
            inter_broker_name=inter_broker_name,
            inter_broker_protocol=inter_broker_protocol,
            protocols=protocols,
            early_start=_early_start(values, listeners, controller_names),
        )

    @property
    def all(self) -> tuple[Endpoint, ...]:
        return (*self.broker, *self.controller)


def parse_endpoints(texts: Sequence[str], protocols: Mapping[str, SecurityProtocol], setting: str) -> list[Endpoint]:
    """Endpoints from texts like ``PLAINTEXT://localhost:9092`` or ``INTERNAL://[::1]:9093``."""
    endpoints = [_parse_endpoint(text.strip(), protocols, setting) for text in texts]
    names = [endpoint.listener_name for endpoint in endpoints]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"Configuration {setting} has two listeners called {name}: rename one.", name=setting)
    return endpoints


def _parse_endpoint(text: str, protocols: Mapping[str, SecurityProtocol], setting: str) -> Endpoint:
    match = _ENDPOINT.fullmatch(text)
    if match is None:
        raise ConfigError.invalid(
            setting, text, "a listener is written NAME://host:port, with an IPv6 address in brackets"
        )
    name, bracketed, plain, port = match[1].upper(), match[2], match[3], int(match[4])
    if port > _LARGEST_PORT:
        raise ConfigError.invalid(setting, text, f"there is no port {port}")
    if not name:
        raise ConfigError.invalid(setting, text, "the listener has no name; use PLAINTEXT if in doubt")
    if name not in protocols:
        raise ConfigError(
            f"Configuration {setting} has a listener called {name}, and nothing says which protocol that is. "
            f"Add {name}:PLAINTEXT to {PROTOCOL_MAP}.",
            name=setting,
        )
    return Endpoint(name, protocols[name], bracketed if plain is None else plain, port)


def check_ports(endpoints: Iterable[Endpoint]) -> None:
    """No two listeners on one port, but for one on an IPv4 and one on an IPv6 address. Any number may have port 0."""
    by_port: defaultdict[int, list[Endpoint]] = defaultdict(list)
    for endpoint in endpoints:
        if endpoint.port != 0:
            by_port[endpoint.port].append(endpoint)
    for port, sharing in by_port.items():
        if len(sharing) > 1 and sorted(_ip_version(e.host) for e in sharing) != [4, 6]:
            raise ConfigError(
                f"Configuration {LISTENERS} has {' and '.join(map(str, sharing))} on the same port {port}. Give each "
                "its own, unless there are two of which one is on an IPv4 and the other on an IPv6 address.",
                name=LISTENERS,
            )


def _ip_version(host: str) -> int:
    """4 or 6, or 0 for a host name."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).version
    except ValueError:
        return 0


def parse_map(text: str, setting: str) -> dict[str, str]:
    """``a:1,b:2`` as a mapping. What stands before the last colon is the key, so an IPv6 address can be one."""
    found: dict[str, str] = {}
    for item in text.split(","):
        if not item.strip():
            continue
        key, separator, value = item.rpartition(":")
        if not separator or not key.strip() or not value.strip():
            raise ConfigError.invalid(setting, item.strip(), "it must be name:value pairs with commas between them")
        found[key.strip()] = value.strip()
    return found


def _protocols(values: ConfigValues, controller_names: Sequence[str]) -> dict[str, SecurityProtocol]:
    protocols = {}
    for name, protocol in parse_map(values.get_str(PROTOCOL_MAP), PROTOCOL_MAP).items():
        protocols[name.upper()] = _protocol(protocol, PROTOCOL_MAP)
    if not values.is_set(PROTOCOL_MAP):
        names = {*controller_names, *(text.partition(":")[0].strip().upper() for text in values.get_list(LISTENERS))}
        if _SECURED.isdisjoint(names):
            # Who secures nothing need not say so.
            protocols |= dict.fromkeys(controller_names, SecurityProtocol.PLAINTEXT)
    return protocols


def _protocol(name: str, setting: str) -> SecurityProtocol:
    try:
        return SecurityProtocol[name.upper()]
    except KeyError:
        raise ConfigError.invalid(
            setting, name, f"a protocol is one of {', '.join(SecurityProtocol.__members__)}"
        ) from None


def _inter_broker(values: ConfigValues, protocols: Mapping[str, SecurityProtocol]) -> tuple[str, SecurityProtocol]:
    name = values.get_optional_str(INTER_BROKER_LISTENER_NAME)
    if name is None:
        protocol = _protocol(values.get_str(INTER_BROKER_PROTOCOL), INTER_BROKER_PROTOCOL)
        return protocol.name, protocol
    if values.is_set(INTER_BROKER_PROTOCOL):
        raise ConfigError(
            f"Only one of {INTER_BROKER_LISTENER_NAME} and {INTER_BROKER_PROTOCOL} can be set: remove the latter.",
            name=INTER_BROKER_PROTOCOL,
        )
    if name.upper() not in protocols:
        raise ConfigError(
            f"Configuration {INTER_BROKER_LISTENER_NAME} is {name}, and nothing says which protocol that is. "
            f"Add {name.upper()}:PLAINTEXT to {PROTOCOL_MAP}.",
            name=INTER_BROKER_LISTENER_NAME,
        )
    return name.upper(), protocols[name.upper()]


def _early_start(
    values: ConfigValues, listeners: Iterable[Endpoint], controller_names: Sequence[str]
) -> frozenset[str]:
    known = {endpoint.listener_name for endpoint in listeners}
    names = values.get_optional_list(EARLY_START_LISTENERS)
    if names is None:
        return frozenset(known.intersection(controller_names))
    for name in names:
        if name.upper() not in known and name.upper() not in controller_names:
            raise ConfigError.invalid(
                EARLY_START_LISTENERS, name, f"it is neither in {LISTENERS} nor in {CONTROLLER_LISTENER_NAMES}"
            )
    return frozenset(name.upper() for name in names)


def canonical_host_name() -> str:
    """The full name of this machine, as far as it can be found out. May ask a name server."""
    return socket.getfqdn()


def resolved(
    endpoints: Iterable[Endpoint],
    bound_port: Callable[[str], int],
    host_name: Callable[[], str] = canonical_host_name,
) -> tuple[Endpoint, ...]:
    """What to tell others: the ports that were really opened, and a name where the host was left empty."""
    return tuple(
        replace(
            endpoint,
            host=endpoint.host or host_name(),
            port=endpoint.port or bound_port(endpoint.listener_name),
        )
        for endpoint in endpoints
    )
