"""The SASL mechanisms of a listener: makes its authenticator from its settings, users and keys.

Loaded by nodes with SASL only.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.config.kafka_config import KafkaConfig
from barnabas.common.clock import Clock
from barnabas.common.config_def import ConfigError
from barnabas.common.errors import InvalidConfigurationError
from barnabas.network.reactor.channel import Authenticator
from barnabas.network.transport import TransportLayer
from barnabas.security.channel_factories import AuthenticatorFactory
from barnabas.security.sasl.channel_authenticator import SaslClientChannelAuthenticator, SaslServerChannelAuthenticator
from barnabas.security.sasl.client_authenticator import SaslClientAuthenticator
from barnabas.security.sasl.jaas import JaasEntry, jaas_for
from barnabas.security.sasl.mechanism_table import (
    ClientCredentials,
    ServerCallbacks,
    client_mechanism,
    server_mechanism,
)
from barnabas.security.sasl.oauth_token import TokenValidator
from barnabas.security.sasl.plain import PlainCredentials, PlainCredentialsFile
from barnabas.security.sasl.server_authenticator import SaslServerAuthenticator, SaslServerSettings
from barnabas.server.api_versions_handler import SpokenVersions
from barnabas.server.sasl_handler import refuse_during_authentication

if TYPE_CHECKING:
    from barnabas.broker.node.listener_security import Users
    from barnabas.security.sasl.gssapi import KerberosAcceptor
    from barnabas.security.sasl.jwks import RefreshingJwks
    from barnabas.security.sasl.token_validator import KeySet

JAAS_CONFIG: Final = "sasl.jaas.config"
SERVER_CALLBACK: Final = "sasl.server.callback.handler.class"
CREDENTIALS_FILE: Final = "credentials_file"
"""An option of PlainLoginModule that Apache Kafka does not have: a file with lines ``name=password``."""


class SaslListener:
    """Makes the authenticator of each new connection of a listener.

    The constructor raises `ConfigError` for settings that cannot work. With OAUTHBEARER and a key set of a URL there is
    a thread, which ends with `close`.
    """

    def __init__(
        self, config: KafkaConfig, listener: str, users: Users, versions: SpokenVersions, clock: Clock
    ) -> None:
        self._config = config
        self._listener = listener
        self._users = users
        self._clock = clock
        self._made_of = _sasl_settings(config, listener)
        self._refreshing: list[RefreshingJwks] = []
        enabled = config.listener_value(listener, "sasl.enabled.mechanisms")
        if not enabled:
            raise ConfigError(
                f"Listener {listener} uses SASL, but no mechanism is enabled: set sasl.enabled.mechanisms.",
                name="sasl.enabled.mechanisms",
            )
        try:
            mechanisms = {name: server_mechanism(name, self._callbacks(name)) for name in enabled}
        except InvalidConfigurationError as error:
            self.close()
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(f"Listener {listener}: {error}", name="sasl.enabled.mechanisms") from None
        self._settings = SaslServerSettings(
            mechanisms,
            partial(versions.api_versions_response, 0),
            max_reauth_ms={
                name: config.mechanism_value(listener, name, "connections.max.reauth.ms") for name in enabled
            },
            max_receive_size=config.value("sasl.server.max.receive.size"),
            foreign_response=refuse_during_authentication,
        )

    def is_made_of(self, config: KafkaConfig) -> bool:
        """Whether the settings of this listener are the same in another configuration."""
        return _sasl_settings(config, self._listener) == self._made_of

    def authenticator(self, _channel_id: str, _transport: TransportLayer) -> Authenticator:
        return SaslServerChannelAuthenticator(SaslServerAuthenticator(self._settings, clock=self._clock))

    def close(self) -> None:
        """Ends the threads that refresh keys. The authenticators of open connections keep the last keys."""
        for keys in self._refreshing:
            keys.close()

    def _callbacks(self, mechanism: str) -> ServerCallbacks:
        """Returns the sources of credentials of one mechanism."""
        if mechanism.startswith("SCRAM-"):
            return ServerCallbacks(scram=self._users.scram, delegation_tokens=self._users.delegation_tokens)
        own = self._config.mechanism_value(self._listener, mechanism, SERVER_CALLBACK)
        if mechanism == "PLAIN":
            return ServerCallbacks(plain=own() if own is not None else _plain_users(self._config, self._listener))
        if mechanism == "OAUTHBEARER":
            return ServerCallbacks(oauth=own() if own is not None else self._token_validator())
        if mechanism == "GSSAPI":
            return ServerCallbacks(kerberos=self._acceptor())
        return ServerCallbacks()

    def _acceptor(self) -> KerberosAcceptor:
        """Returns the keys of this service, from the keytab of the JAAS configuration."""
        from barnabas.security.sasl.gssapi import KerberosAcceptor, KerberosNames

        entry = jaas_entry(self._config, self._listener, "GSSAPI")
        if entry is None:
            raise InvalidConfigurationError(
                f"GSSAPI has no keytab: set listener.name.{self._listener.lower()}.gssapi.{JAAS_CONFIG}"
            )
        principal = entry.required("principal")
        rules = self._config.mechanism_value(self._listener, "GSSAPI", "sasl.kerberos.principal.to.local.rules")
        names = KerberosNames(principal.rpartition("@")[2], rules)
        try:
            return KerberosAcceptor(principal, entry.options.get("keyTab"), names)
        except ImportError as error:
            raise InvalidConfigurationError(str(error)) from None

    def _token_validator(self) -> TokenValidator:
        """Returns the validator of OAUTHBEARER tokens. Unsecured ones are accepted only if that is configured."""
        from barnabas.security.sasl.token_validator import (
            UNSECURED_OPTIONS,
            SignedTokenValidator,
            UnsecuredTokenValidator,
        )

        config, listener = self._config, self._listener
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
        self._refreshing.append(keys)
        return keys


def node_authenticator(config: KafkaConfig, listener: str, mechanism: str) -> AuthenticatorFactory:
    """Returns what authenticates this node on its connections to a listener of its cluster."""
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


# -- settings


def _sasl_settings(config: KafkaConfig, listener: str) -> dict[str, Any]:
    """Returns all settings that decide how a listener authenticates."""
    own = config.listener_values.get(listener, {})
    return config.with_prefix(listener, "sasl.") | {
        name: value for name, value in own.items() if ".sasl." in name or name.endswith("connections.max.reauth.ms")
    }


def jaas_entry(config: KafkaConfig, listener: str, mechanism: str) -> JaasEntry | None:
    """Returns the JAAS configuration of a listener's mechanism; None if it has none."""
    secret = config.mechanism_value(listener, mechanism, JAAS_CONFIG)
    if secret is None:
        return None
    try:
        return jaas_for(mechanism, secret.value)
    except InvalidConfigurationError as error:
        name = f"listener.name.{listener.lower()}.{mechanism.lower()}.{JAAS_CONFIG}"
        raise ConfigError(f"Configuration {name} is invalid: {error}", name=name) from None


def _plain_users(config: KafkaConfig, listener: str) -> Callable[[str, str], bool]:
    entry = jaas_entry(config, listener, "PLAIN")
    if entry is None:
        raise InvalidConfigurationError(f"PLAIN has no users: set listener.name.{listener.lower()}.plain.{JAAS_CONFIG}")
    path = entry.options.get(CREDENTIALS_FILE)
    return PlainCredentials.from_jaas(entry.options) if path is None else PlainCredentialsFile(path)
