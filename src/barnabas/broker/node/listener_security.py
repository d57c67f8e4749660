"""The security of a node's listeners: makes the channels of each one from its settings, certificates and users.

A listener has a security protocol, which has two halves::

                      transport      authenticator
    PLAINTEXT         plaintext      everybody is anonymous
    SSL               TLS            the client's certificate, if it has one
    SASL_PLAINTEXT    plaintext      a SASL mechanism
    SASL_SSL          TLS            a SASL mechanism

Every setting can be given for one listener, ``listener.name.<listener>.<setting>``, and those of a SASL mechanism for
one mechanism of it, ``listener.name.<listener>.<mechanism>.<setting>``.

**Live changes.** SCRAM users and delegation tokens are looked up in the current metadata. A change of certificates or
JAAS configurations is built and checked first, and then replaces the old one for new connections. Open connections
keep what they have. If they authenticate again, they do so with the keys of the token issuer that were current at the
time of the change, because the thread that refreshes them has ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.broker.config.kafka_config import KafkaConfig
from barnabas.common.clock import Clock
from barnabas.common.config_def import ConfigError
from barnabas.common.errors import InvalidConfigurationError
from barnabas.network.reactor.channel import Authenticator
from barnabas.network.reactor.channel_factory import ChannelFactory, plaintext
from barnabas.network.server.endpoint import SASL_PROTOCOLS, TLS_PROTOCOLS, Endpoint, SecurityProtocol
from barnabas.network.transport import TransportLayer
from barnabas.server.api_versions_handler import SpokenVersions

if TYPE_CHECKING:  # a node without TLS and SASL does not load these
    from barnabas.broker.node.sasl_listener import SaslListener
    from barnabas.metadata.scram import ScramImage
    from barnabas.network.transport.handshakes import HandshakePool
    from barnabas.security.channel_factories import AuthenticatorFactory
    from barnabas.security.sasl.scram import ScramCredential, TokenCredentials
    from barnabas.security.tls.ssl_config import SslSettings
    from barnabas.security.tls.ssl_factory import SslFactory


class UserCredentials:
    """The SCRAM credentials in the metadata: a `barnabas.security.sasl.scram.ScramCredentialStore`."""

    def __init__(self, image: Callable[[], ScramImage]) -> None:
        self._image = image

    def credential(self, mechanism: str, username: str) -> ScramCredential | None:
        from barnabas.metadata.scram import ScramMechanism
        from barnabas.security.sasl.scram import ScramCredential

        found = self._image().credential(ScramMechanism[mechanism.replace("-", "_")], username)
        return None if found is None else ScramCredential(*found)


class Users(NamedTuple):
    """The users in the metadata of a role."""

    scram: UserCredentials
    delegation_tokens: TokenCredentials | None


class ListenerSecurity:
    """Makes the channel factories of the listeners of one role, and follows changes of their settings."""

    def __init__(self, config: KafkaConfig, versions: SpokenVersions, users: Users, clock: Clock) -> None:
        self._config = config
        self._versions = versions
        self._users = users
        self._clock = clock
        self._tls: dict[str, tuple[Endpoint, SslFactory]] = {}
        self._sasl: dict[str, SaslListener] = {}
        """What authenticates new connections, by SASL listener. An entry is replaced when the settings change."""
        self._checked: dict[str, SaslListener] = {}
        """Authenticators of changed settings that were checked and are not in use yet, by listener."""
        self._handshakes: HandshakePool | None = None
        self._lock = threading.Lock()
        """Serializes `validate`, `reconfigure`, `factories` and `forget`, so that what was checked is what is used.
        A key set may be fetched inside it. New connections do not take it."""

    def factories(self, endpoints: Sequence[Endpoint]) -> dict[str, ChannelFactory]:
        """Returns the factory of each listener, by name; raises `ConfigError` for settings that cannot work."""
        with self._lock:
            return {endpoint.listener_name: self._factory(endpoint) for endpoint in endpoints}

    def _factory(self, endpoint: Endpoint) -> ChannelFactory:
        protocol, name = endpoint.security_protocol, endpoint.listener_name
        if protocol is SecurityProtocol.PLAINTEXT:
            return plaintext
        from barnabas.security.channel_factories import sasl_plaintext_channel_factory

        authenticator: AuthenticatorFactory | None = None
        if protocol in SASL_PROTOCOLS:
            self._sasl[name] = self._sasl_listener(self._config, name)

            def authenticator(channel_id: str, transport: TransportLayer) -> Authenticator:
                return self._sasl[name].authenticator(channel_id, transport)

            if protocol not in TLS_PROTOCOLS:
                return sasl_plaintext_channel_factory(authenticator)
        return self._tls_factory(endpoint, authenticator)

    def reconfigure(self, new: KafkaConfig) -> None:
        """Applies changed certificates, users and mechanisms to new connections; raises `ConfigError` if they fail."""
        with self._lock:
            for endpoint, factory in self._tls_of(new):
                settings = _ssl_settings(new, endpoint)
                if settings != factory.settings or _may_have_changed(settings):
                    factory.reconfigure(settings)
            for name in self._changed_sasl(new):
                self._check_sasl(new, name)
                old, self._sasl[name] = self._sasl[name], self._checked.pop(name)
                old.close()
            self._config = new

    def validate(self, new: KafkaConfig) -> None:
        """Raises `ConfigError` if `reconfigure` would."""
        with self._lock:
            for endpoint, factory in self._tls_of(new):
                settings = _ssl_settings(new, endpoint)
                if settings != factory.settings:
                    factory.validate(settings)
            for name in self._changed_sasl(new):
                self._check_sasl(new, name)

    def _tls_of(self, new: KafkaConfig) -> list[tuple[Endpoint, SslFactory]]:
        """Returns the TLS listeners that are not about to be closed."""
        kept = {endpoint.listener_name for endpoint in new.listener_config.all}
        return [found for name, found in self._tls.items() if name in kept]

    def _changed_sasl(self, new: KafkaConfig) -> list[str]:
        """Returns the SASL listeners that are not about to be closed, and whose settings have changed."""
        kept = {endpoint.listener_name for endpoint in new.listener_config.all}
        return [name for name, current in self._sasl.items() if name in kept and not current.is_made_of(new)]

    def validate_new(self, new: KafkaConfig, endpoints: Sequence[Endpoint]) -> None:
        """Raises `ConfigError` if these listeners, which do not exist yet, cannot work."""
        trial = ListenerSecurity(new, self._versions, self._users, self._clock)
        try:
            trial.factories(endpoints)
        finally:
            trial.close()

    def forget(self, listeners: Iterable[str]) -> None:
        """Ends the threads of listeners that are closed."""
        with self._lock:
            for name in listeners:
                self._tls.pop(name, None)
                for authenticators in (self._sasl, self._checked):
                    closed = authenticators.pop(name, None)
                    if closed is not None:
                        closed.close()

    def _check_sasl(self, new: KafkaConfig, listener: str) -> None:
        """Makes the authenticator of changed settings once: it is checked, then used, and may own a thread."""
        checked = self._checked.get(listener)
        if checked is None or not checked.is_made_of(new):
            self._checked[listener] = self._sasl_listener(new, listener)
            if checked is not None:
                checked.close()

    def _sasl_listener(self, config: KafkaConfig, listener: str) -> SaslListener:
        from barnabas.broker.node.sasl_listener import SaslListener

        return SaslListener(config, listener, self._users, self._versions, self._clock)

    def close(self) -> None:
        """Ends the threads that run handshakes and refresh keys. Call it after the sockets are closed."""
        if self._handshakes is not None:
            self._handshakes.close()
        for listener in (*self._sasl.values(), *self._checked.values()):
            listener.close()

    # -- TLS

    def _tls_factory(self, endpoint: Endpoint, authenticator: AuthenticatorFactory | None) -> ChannelFactory:
        from barnabas.network.transport.handshakes import HandshakePool
        from barnabas.security.channel_factories import tls_server_channel_factory
        from barnabas.security.tls.principal import CertificatePrincipalBuilder
        from barnabas.security.tls.ssl_factory import Mode, SslFactory

        name = endpoint.listener_name
        try:
            factory = SslFactory(
                _ssl_settings(self._config, endpoint),
                Mode.SERVER,
                verify_own_certificate=name == self._config.inter_broker_listener_name,
            )
            build = CertificatePrincipalBuilder(self._config.listener_value(name, "ssl.principal.mapping.rules"))
        except InvalidConfigurationError as error:
            raise ConfigError(f"Listener {name}: {error}", name=getattr(error, "name", None)) from None
        self._tls[name] = (endpoint, factory)
        if self._handshakes is None:
            self._handshakes = HandshakePool()
        return tls_server_channel_factory(
            factory, principal_builder=build, authenticator=authenticator, handshakes=self._handshakes
        )


# -- settings


def _ssl_settings(config: KafkaConfig, endpoint: Endpoint) -> SslSettings:
    from barnabas.security.tls.ssl_config import SslSettings

    name = endpoint.listener_name
    overrides: dict[str, Any] = {}
    if endpoint.security_protocol in SASL_PROTOCOLS and "ssl.client.auth" not in config.listener_values.get(name, {}):
        overrides["ssl.client.auth"] = "none"  # as Kafka: SASL authenticates, unless the listener asks for both
    return SslSettings.of(config.with_prefix(name, "ssl."), overrides)


def _may_have_changed(settings: SslSettings) -> bool:
    """Whether the settings refer to files, whose contents can change while their names stay."""
    return settings.keystore_location is not None or settings.truststore_location is not None


# -- connections of this node to others


def outgoing_channels(config: KafkaConfig, listener: str, protocol: SecurityProtocol, mechanism: str) -> ChannelFactory:
    """Returns the factory of this node's connections to a listener of its cluster: the controller's, for example.

    The name and password of the node are in the JAAS configuration of that listener and mechanism.
    """
    if protocol is SecurityProtocol.PLAINTEXT:
        return plaintext
    from barnabas.security.channel_factories import sasl_plaintext_channel_factory, tls_client_channel_factory

    authenticator: AuthenticatorFactory | None = None
    if protocol in SASL_PROTOCOLS:
        from barnabas.broker.node.sasl_listener import node_authenticator

        authenticator = node_authenticator(config, listener, mechanism)
    if protocol not in TLS_PROTOCOLS:
        assert authenticator is not None
        return sasl_plaintext_channel_factory(authenticator)
    from barnabas.security.tls.ssl_config import SslSettings
    from barnabas.security.tls.ssl_factory import Mode, SslFactory

    settings = SslSettings.of(config.with_prefix(listener, "ssl."))
    return tls_client_channel_factory(SslFactory(settings, Mode.CLIENT), authenticator=authenticator)
