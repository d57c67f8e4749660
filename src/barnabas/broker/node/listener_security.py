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
keep what they have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

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
    from barnabas.metadata.scram import ScramImage
    from barnabas.network.transport.handshakes import HandshakePool
    from barnabas.security.channel_factories import AuthenticatorFactory
    from barnabas.security.sasl.jaas import JaasEntry
    from barnabas.security.sasl.mechanism_table import ServerCallbacks
    from barnabas.security.sasl.oauth_token import TokenValidator
    from barnabas.security.sasl.scram import ScramCredential, TokenCredentials
    from barnabas.security.sasl.token_validator import KeySet
    from barnabas.security.tls.ssl_config import SslSettings
    from barnabas.security.tls.ssl_factory import SslFactory

JAAS_CONFIG: Final = "sasl.jaas.config"
SERVER_CALLBACK: Final = "sasl.server.callback.handler.class"
CREDENTIALS_FILE: Final = "credentials_file"
"""An option of PlainLoginModule that Apache Kafka does not have: a file with lines ``name=password``."""


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
        self._sasl: dict[str, AuthenticatorFactory] = {}
        """What authenticates new connections, by SASL listener. An entry is replaced when the settings change."""
        self._checked: dict[str, tuple[dict[str, Any], AuthenticatorFactory]] = {}
        """The last authenticator that was checked, by listener, with the settings that it is made of."""
        self._handshakes: HandshakePool | None = None
        self._closeables: list[Callable[[], None]] = []

    def factories(self, endpoints: Sequence[Endpoint]) -> dict[str, ChannelFactory]:
        """Returns the factory of each listener, by name; raises `ConfigError` for settings that cannot work."""
        return {endpoint.listener_name: self._factory(endpoint) for endpoint in endpoints}

    def _factory(self, endpoint: Endpoint) -> ChannelFactory:
        protocol, name = endpoint.security_protocol, endpoint.listener_name
        if protocol is SecurityProtocol.PLAINTEXT:
            return plaintext
        from barnabas.security.channel_factories import sasl_plaintext_channel_factory

        authenticator: AuthenticatorFactory | None = None
        if protocol in SASL_PROTOCOLS:
            self._sasl[name] = self._sasl_authenticator(self._config, name)

            def authenticator(channel_id: str, transport: TransportLayer) -> Authenticator:
                return self._sasl[name](channel_id, transport)

            if protocol not in TLS_PROTOCOLS:
                return sasl_plaintext_channel_factory(authenticator)
        return self._tls_factory(endpoint, authenticator)

    def reconfigure(self, new: KafkaConfig) -> None:
        """Applies changed certificates, users and mechanisms to new connections; raises `ConfigError` if they fail."""
        for endpoint, factory in self._tls.values():
            settings = _ssl_settings(new, endpoint)
            if settings != factory.settings or _may_have_changed(settings):
                factory.reconfigure(settings)
        for name in self._sasl:
            if _sasl_settings(new, name) != _sasl_settings(self._config, name):
                self._sasl[name] = self._checked_authenticator(new, name)
        self._config = new

    def validate(self, new: KafkaConfig) -> None:
        """Raises `ConfigError` if `reconfigure` would."""
        for endpoint, factory in self._tls.values():
            settings = _ssl_settings(new, endpoint)
            if settings != factory.settings:
                factory.validate(settings)
        for name in self._sasl:
            if _sasl_settings(new, name) != _sasl_settings(self._config, name):
                self._checked_authenticator(new, name)

    def _checked_authenticator(self, new: KafkaConfig, listener: str) -> AuthenticatorFactory:
        """Makes the authenticator of changed settings once: it is checked, then used, and may own a thread."""
        settings = _sasl_settings(new, listener)
        made_of, authenticator = self._checked.get(listener, (None, None))
        if authenticator is None or made_of != settings:
            authenticator = self._sasl_authenticator(new, listener)
            self._checked[listener] = (settings, authenticator)
        return authenticator

    def close(self) -> None:
        """Ends the threads that run handshakes and refresh keys. Call it after the sockets are closed."""
        if self._handshakes is not None:
            self._handshakes.close()
        for close in self._closeables:
            close()

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

    # -- SASL

    def _sasl_authenticator(self, config: KafkaConfig, listener: str) -> AuthenticatorFactory:
        from barnabas.security.sasl.channel_authenticator import SaslServerChannelAuthenticator
        from barnabas.security.sasl.mechanism_table import server_mechanism
        from barnabas.security.sasl.server_authenticator import SaslServerAuthenticator, SaslServerSettings
        from barnabas.server.sasl_handler import refuse_during_authentication

        enabled = config.listener_value(listener, "sasl.enabled.mechanisms")
        if not enabled:
            raise ConfigError(
                f"Listener {listener} uses SASL, but no mechanism is enabled: set sasl.enabled.mechanisms.",
                name="sasl.enabled.mechanisms",
            )
        try:
            mechanisms = {name: server_mechanism(name, self._callbacks(config, listener, name)) for name in enabled}
        except ConfigError:
            raise
        except InvalidConfigurationError as error:
            raise ConfigError(f"Listener {listener}: {error}", name="sasl.enabled.mechanisms") from None
        settings = SaslServerSettings(
            mechanisms,
            partial(self._versions.api_versions_response, 0),
            max_reauth_ms={
                name: config.mechanism_value(listener, name, "connections.max.reauth.ms") for name in enabled
            },
            max_receive_size=config.value("sasl.server.max.receive.size"),
            foreign_response=refuse_during_authentication,
        )
        clock = self._clock
        return lambda _id, _transport: SaslServerChannelAuthenticator(SaslServerAuthenticator(settings, clock=clock))

    def _callbacks(self, config: KafkaConfig, listener: str, mechanism: str) -> ServerCallbacks:
        """Returns the sources of credentials of one mechanism."""
        from barnabas.security.sasl.mechanism_table import ServerCallbacks

        if mechanism.startswith("SCRAM-"):
            return ServerCallbacks(scram=self._users.scram, delegation_tokens=self._users.delegation_tokens)
        own = config.mechanism_value(listener, mechanism, SERVER_CALLBACK)
        if mechanism == "PLAIN":
            return ServerCallbacks(plain=own() if own is not None else _plain_users(config, listener))
        if mechanism == "OAUTHBEARER":
            return ServerCallbacks(oauth=own() if own is not None else self._token_validator(config, listener))
        return ServerCallbacks()

    def _token_validator(self, config: KafkaConfig, listener: str) -> TokenValidator:
        """Returns the validator of OAUTHBEARER tokens. Unsecured ones are accepted only if that is configured."""
        from barnabas.security.sasl.token_validator import (
            UNSECURED_OPTIONS,
            SignedTokenValidator,
            UnsecuredTokenValidator,
        )

        entry = jaas_entry(config, listener, "OAUTHBEARER")
        if entry is not None and any(option.startswith(UNSECURED_OPTIONS) for option in entry.options):
            return UnsecuredTokenValidator.from_jaas(entry.options, self._clock)

        def setting(name: str) -> Any:
            return config.mechanism_value(listener, "OAUTHBEARER", f"sasl.oauthbearer.{name}")

        return SignedTokenValidator(
            self._key_set(setting),
            issuer=setting("expected.issuer"),
            audiences=setting("expected.audience"),
            scope_claim_name=setting("scope.claim.name"),
            sub_claim_name=setting("sub.claim.name"),
            clock_skew_ms=setting("clock.skew.seconds") * 1000,
            clock=self._clock,
        )

    def _key_set(self, setting: Callable[[str], Any]) -> KeySet:
        from barnabas.security.sasl.jwks import JwksFile, RefreshingJwks, is_file_url, path_of
        from barnabas.security.sasl.oauth_http import fetch_json

        url = setting("jwks.endpoint.url")
        if not url:
            raise InvalidConfigurationError(
                "OAUTHBEARER cannot verify tokens: set sasl.oauthbearer.jwks.endpoint.url (https:// or file://)"
            )
        if is_file_url(url):
            return JwksFile(path_of(url))
        keys = RefreshingJwks(
            partial(fetch_json, url),
            refresh_ms=setting("jwks.endpoint.refresh.ms"),
            retry_backoff_ms=setting("jwks.endpoint.retry.backoff.ms"),
            retry_backoff_max_ms=setting("jwks.endpoint.retry.backoff.max.ms"),
            clock=self._clock,
        )
        keys.start()
        self._closeables.append(keys.close)
        return keys


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


def _sasl_settings(config: KafkaConfig, listener: str) -> dict[str, Any]:
    """Returns all settings that decide how a listener authenticates."""
    own = config.listener_values.get(listener, {})
    return config.with_prefix(listener, "sasl.") | {
        name: value for name, value in own.items() if ".sasl." in name or name.endswith("connections.max.reauth.ms")
    }


def jaas_entry(config: KafkaConfig, listener: str, mechanism: str) -> JaasEntry | None:
    """Returns the JAAS configuration of a listener's mechanism; None if it has none."""
    from barnabas.security.sasl.jaas import jaas_for

    secret = config.mechanism_value(listener, mechanism, JAAS_CONFIG)
    if secret is None:
        return None
    try:
        return jaas_for(mechanism, secret.value)
    except InvalidConfigurationError as error:
        name = f"listener.name.{listener.lower()}.{mechanism.lower()}.{JAAS_CONFIG}"
        raise ConfigError(f"Configuration {name} is invalid: {error}", name=name) from None


def _plain_users(config: KafkaConfig, listener: str) -> Callable[[str, str], bool]:
    from barnabas.security.sasl.plain import PlainCredentials, PlainCredentialsFile

    entry = jaas_entry(config, listener, "PLAIN")
    if entry is None:
        raise InvalidConfigurationError(f"PLAIN has no users: set listener.name.{listener.lower()}.plain.{JAAS_CONFIG}")
    path = entry.options.get(CREDENTIALS_FILE)
    return PlainCredentials.from_jaas(entry.options) if path is None else PlainCredentialsFile(path)


# -- connections of this node to others


def outgoing_channels(config: KafkaConfig, listener: str, protocol: SecurityProtocol, mechanism: str) -> ChannelFactory:
    """Returns the factory of this node's connections to a listener of its cluster: the controller's, for example.

    The name and password of the node are in the JAAS configuration of that listener and mechanism.
    """
    if protocol is SecurityProtocol.PLAINTEXT:
        return plaintext
    from barnabas.security.channel_factories import sasl_plaintext_channel_factory, tls_client_channel_factory

    authenticator = _node_authenticator(config, listener, mechanism) if protocol in SASL_PROTOCOLS else None
    if protocol not in TLS_PROTOCOLS:
        assert authenticator is not None
        return sasl_plaintext_channel_factory(authenticator)
    from barnabas.security.tls.ssl_config import SslSettings
    from barnabas.security.tls.ssl_factory import Mode, SslFactory

    settings = SslSettings.of(config.with_prefix(listener, "ssl."))
    return tls_client_channel_factory(SslFactory(settings, Mode.CLIENT), authenticator=authenticator)


def _node_authenticator(config: KafkaConfig, listener: str, mechanism: str) -> AuthenticatorFactory:
    from barnabas.security.sasl.channel_authenticator import SaslClientChannelAuthenticator
    from barnabas.security.sasl.client_authenticator import SaslClientAuthenticator
    from barnabas.security.sasl.mechanism_table import ClientCredentials, client_mechanism

    entry = jaas_entry(config, listener, mechanism)
    setting = f"listener.name.{listener.lower()}.{mechanism.lower()}.{JAAS_CONFIG}"
    if entry is None:
        raise ConfigError(f"{setting} is missing: this node needs a name and a password for {listener}.", name=setting)
    try:
        begin = client_mechanism(
            mechanism, ClientCredentials(username=entry.required("username"), password=entry.required("password"))
        )
    except InvalidConfigurationError as error:
        raise ConfigError(f"Configuration {setting} is invalid: {error}", name=setting) from None
    client_id = str(config.node_id)
    return lambda _id, _transport: SaslClientChannelAuthenticator(
        SaslClientAuthenticator(mechanism, begin, client_id=client_id)
    )
