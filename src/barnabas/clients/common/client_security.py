"""The security of a client's connections: chooses transport and authenticator by ``security.protocol``.

=================  =============  ====================================================
security.protocol  transport      authenticator
=================  =============  ====================================================
PLAINTEXT          plaintext      none
SSL                TLS            none: the broker may check the client's certificate
SASL_PLAINTEXT     plaintext      the mechanism of ``sasl.mechanism``
SASL_SSL           TLS            the mechanism of ``sasl.mechanism``
=================  =============  ====================================================

Every client creates its selector with `client_channel_factory`.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Final

from barnabas.clients.common.client_config import define_security
from barnabas.clients.common.security_aliases import OBJECTS, with_kafka_names
from barnabas.common.config_def import ConfigDef, ConfigError, ConfigValues, Password
from barnabas.network.reactor.channel import Authenticator
from barnabas.network.reactor.channel_factory import ChannelFactory, plaintext
from barnabas.network.transport import PlaintextTransportLayer, TransportLayer

SECURITY: Final = define_security(ConfigDef())
"""The settings of TLS and SASL alone."""


def client_channel_factory(values: ConfigValues) -> ChannelFactory:
    """Returns the factory for the settings of a client; raises `ConfigError` if they are invalid."""
    protocol = values.get_str("security.protocol").upper()
    if protocol == "PLAINTEXT":
        return plaintext
    if protocol.endswith("SSL"):
        raise ConfigError.invalid("security.protocol", protocol, "it is not supported yet")
    authenticator = _sasl_authenticator(values)

    def make(channel_id: str, sock: socket.socket, host: str) -> tuple[TransportLayer, Authenticator]:  # noqa: ARG001
        return PlaintextTransportLayer(sock), authenticator()

    return make


def client_ssl_context(values: ConfigValues) -> ssl.SSLContext:
    """Returns the context of TLS connections; raises `ConfigError` if the settings are invalid."""
    raise ConfigError.invalid("security.protocol", values.get_str("security.protocol"), "it is not supported yet")


def _sasl_authenticator(values: ConfigValues) -> Callable[[], Authenticator]:
    # Loaded here: most clients do not use SASL.
    from barnabas.clients.common.client_sasl import client_mechanism
    from barnabas.security.sasl.channel_authenticator import SaslClientChannelAuthenticator
    from barnabas.security.sasl.client_authenticator import SaslClientAuthenticator

    mechanism = client_mechanism(values)
    client_id = values.get("client.id") or None
    return lambda: SaslClientChannelAuthenticator(
        SaslClientAuthenticator(mechanism.name, mechanism.begin, client_id=client_id)
    )


def may_use_local_socket(values: ConfigValues) -> bool:
    """Whether connections may move to a broker's local socket, which has neither encryption nor authentication."""
    return values.get_bool("local.socket.enable") and values.get_str("security.protocol").upper() == "PLAINTEXT"


class ClientSecurity:
    """The security settings of a client, apart from its others. Can be hashed and pickled; shows names only."""

    __slots__ = ("_given",)

    def __init__(self, properties: Mapping[str, Any]) -> None:
        """Takes all settings of a client and ignores those that do not belong here; raises `ConfigError`."""
        given = with_kafka_names(properties)
        self._given = tuple(
            sorted((name, _plain(given[name])) for name in given if name in SECURITY.keys or name in OBJECTS)
        )
        self.values()  # only to validate them

    def values(self) -> ConfigValues:
        return SECURITY.parse(dict(self._given))

    def channel_factory(self) -> ChannelFactory:
        return client_channel_factory(self.values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClientSecurity) and self._given == other._given

    def __hash__(self) -> int:
        return hash(self._given)

    def __repr__(self) -> str:
        return f"ClientSecurity({', '.join(name for name, _ in self._given)})"


def _plain(value: object) -> object:
    return value.value if isinstance(value, Password) else value
