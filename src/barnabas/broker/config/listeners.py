"""Listeners: the addresses that a node listens on, and those that it advertises.

One setting, ``listeners``, has the addresses of both roles. Their names distinguish them::

    process.roles=broker,controller
    listeners=PLAINTEXT://:9092,CONTROLLER://127.0.0.1:9093
    controller.listener.names=CONTROLLER
    advertised.listeners=PLAINTEXT://kafka.example.com:9092

The port for clients is open on all interfaces, because no host is given, and clients connect to ``kafka.example.com``.
Without ``advertised.listeners`` the canonical name of this machine would be advertised. Other nodes connect to the
controller at ``127.0.0.1:9093``.

``listener.security.protocol.map`` has the security protocol of each listener name. A controller's listener needs no
entry as long as no listener is secured: then it is PLAINTEXT.
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
from barnabas.network.server.endpoint import Endpoint, SecurityProtocol

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
    """The listeners of a node, by role."""

    broker: tuple[Endpoint, ...]
    """The listeners for brokers and clients; an empty host means all interfaces."""
    controller: tuple[Endpoint, ...]
    """The listeners of the controller role."""
    advertised_broker: tuple[Endpoint, ...]
    """The addresses for clients. `resolved` replaces an empty host and port 0."""
    advertised_controller: tuple[Endpoint, ...]
    controller_names: tuple[str, ...]
    """The names of controllers' listeners, of this node or others; a broker connects to the first."""
    inter_broker_name: str
    inter_broker_protocol: SecurityProtocol
    protocols: Mapping[str, SecurityProtocol]
    """Security protocols by listener name, including names in `controller_names` that are listeners of other nodes."""
    early_start: frozenset[str]
    """The listeners that start before the authorizer is ready."""

    @classmethod
    def from_values(cls, values: ConfigValues) -> Self:
        """Parses the settings. Rules that depend on the node's roles are checked elsewhere."""
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
    """Parses endpoints such as ``PLAINTEXT://localhost:9092`` or ``INTERNAL://[::1]:9093``."""
    endpoints = [_parse_endpoint(text.strip(), protocols, setting) for text in texts]
    names = [endpoint.listener_name for endpoint in endpoints]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"Configuration {setting} has two listeners named {name}: rename one.", name=setting)
    return endpoints


def _parse_endpoint(text: str, protocols: Mapping[str, SecurityProtocol], setting: str) -> Endpoint:
    match = _ENDPOINT.fullmatch(text)
    if match is None:
        raise ConfigError.invalid(
            setting, text, "a listener must have the form NAME://host:port, with an IPv6 address in brackets"
        )
    name, bracketed, plain, port = match[1].upper(), match[2], match[3], int(match[4])
    if port > _LARGEST_PORT:
        raise ConfigError.invalid(setting, text, f"the port must be between 0 and 65535: {port}")
    if not name:
        raise ConfigError.invalid(setting, text, "the listener needs a name, for example PLAINTEXT")
    if name not in protocols:
        raise ConfigError(
            f"Configuration {setting} has a listener {name} without a security protocol. "
            f"Add {name}:PLAINTEXT to {PROTOCOL_MAP}.",
            name=setting,
        )
    return Endpoint(name, protocols[name], bracketed if plain is None else plain, port)


def check_ports(endpoints: Iterable[Endpoint]) -> None:
    """Rejects two listeners on one port, except one on IPv4 and one on IPv6. Several may have port 0."""
    by_port: defaultdict[int, list[Endpoint]] = defaultdict(list)
    for endpoint in endpoints:
        if endpoint.port != 0:
            by_port[endpoint.port].append(endpoint)
    for port, sharing in by_port.items():
        if len(sharing) > 1 and sorted(_ip_version(e.host) for e in sharing) != [4, 6]:
            raise ConfigError(
                f"Configuration {LISTENERS} has {' and '.join(map(str, sharing))} on the same port {port}. Give each "
                "its own port, unless one is on an IPv4 and the other on an IPv6 address.",
                name=LISTENERS,
            )


def _ip_version(host: str) -> int:
    """Returns 4 or 6, or 0 for a host name."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).version
    except ValueError:
        return 0


def parse_map(text: str, setting: str) -> dict[str, str]:
    """Parses ``a:1,b:2``. The key ends at the last colon, so it may be an IPv6 address."""
    found: dict[str, str] = {}
    for item in text.split(","):
        if not item.strip():
            continue
        key, separator, value = item.rpartition(":")
        if not separator or not key.strip() or not value.strip():
            raise ConfigError.invalid(setting, item.strip(), "it must be a comma-separated list of name:value pairs")
        found[key.strip()] = value.strip()
    return found


def _protocols(values: ConfigValues, controller_names: Sequence[str]) -> dict[str, SecurityProtocol]:
    protocols = {}
    for name, protocol in parse_map(values.get_str(PROTOCOL_MAP), PROTOCOL_MAP).items():
        protocols[name.upper()] = _protocol(protocol, PROTOCOL_MAP)
    if not values.is_set(PROTOCOL_MAP):
        names = {*controller_names, *(text.partition(":")[0].strip().upper() for text in values.get_list(LISTENERS))}
        if _SECURED.isdisjoint(names):
            # Controller listeners default to PLAINTEXT if no listener is secured.
            protocols |= dict.fromkeys(controller_names, SecurityProtocol.PLAINTEXT)
    return protocols


def _protocol(name: str, setting: str) -> SecurityProtocol:
    try:
        return SecurityProtocol[name.upper()]
    except KeyError:
        raise ConfigError.invalid(
            setting, name, f"the protocol must be one of {', '.join(SecurityProtocol.__members__)}"
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
            f"Configuration {INTER_BROKER_LISTENER_NAME} is {name}, which has no security protocol. "
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
    """Returns the fully qualified name of this machine, if it can be found. May query a name server."""
    return socket.getfqdn()


def resolved(
    endpoints: Iterable[Endpoint],
    bound_port: Callable[[str], int],
    host_name: Callable[[], str] = canonical_host_name,
) -> tuple[Endpoint, ...]:
    """Returns the endpoints to advertise, with the actual ports and a name where the host is empty."""
    return tuple(
        replace(
            endpoint,
            host=endpoint.host or host_name(),
            port=endpoint.port or bound_port(endpoint.listener_name),
        )
        for endpoint in endpoints
    )
