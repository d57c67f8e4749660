"""The SASL mechanism of a client, made of its settings.

==============  ==========================================================================================
sasl.mechanism  credentials
==============  ==========================================================================================
PLAIN           ``username`` and ``password`` of ``sasl.jaas.config``
SCRAM-SHA-256   the same; ``tokenauth="true"`` for a delegation token: its id and its HMAC
SCRAM-SHA-512
OAUTHBEARER     a token: see `barnabas.clients.common.client_tokens`
==============  ==========================================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from barnabas.common.config_def import ConfigError, ConfigValues
from barnabas.common.errors import AuthenticationError, InvalidConfigurationError
from barnabas.security.sasl.jaas import LOGIN_MODULES, JaasEntry, jaas_for
from barnabas.security.sasl.mechanism import TOKEN_AUTH, SaslClient
from barnabas.security.sasl.mechanism_table import CLIENT_MECHANISMS, ClientCredentials
from barnabas.security.sasl.mechanism_table import client_mechanism as begin_with
from barnabas.security.sasl.oauthbearer import OAUTHBEARER

JAAS: Final = "sasl.jaas.config"
MECHANISM: Final = "sasl.mechanism"
_PLUG_INS: Final = ("sasl.client.callback.handler.class", "sasl.login.callback.handler.class", "sasl.login.class")


class ClientMechanism(NamedTuple):
    """A mechanism with the credentials of a client."""

    name: str
    begin: Callable[[], SaslClient]
    """Begins an exchange: one for each connection, and for each re-authentication."""
    close: Callable[[], None]
    """Ends the login, which may have a thread that renews tokens."""


def client_mechanism(values: ConfigValues) -> ClientMechanism:
    """Returns the mechanism of ``sasl.mechanism``; raises `ConfigError` if its credentials are missing or invalid.

    OAUTHBEARER obtains its first token here, and raises `SaslAuthenticationError` if it gets none.
    """
    name = values.get_str(MECHANISM)
    if name not in CLIENT_MECHANISMS:
        reason = "Kerberos is not supported, though it is Kafka's default; " if name == "GSSAPI" else ""
        raise ConfigError.invalid(MECHANISM, name, f"{reason}it must be one of {', '.join(CLIENT_MECHANISMS)}")
    for plug_in in _PLUG_INS:
        if values.get_optional_class(plug_in) is not None:
            raise ConfigError(
                f"{plug_in} is not supported; tokens may come from sasl_oauth_token_provider=, a function.",
                name=plug_in,
            )
    try:
        if name == OAUTHBEARER:
            from barnabas.clients.common.client_tokens import token_login

            login = token_login(values, jaas_entry(name, values, required=False))
            credentials = ClientCredentials(token=login.token, extensions=login.extensions)
            return ClientMechanism(name, begin_with(name, credentials), login.close)
        return ClientMechanism(name, begin_with(name, _password(name, values)), lambda: None)
    except ConfigError:
        raise
    except InvalidConfigurationError as error:
        if isinstance(error, AuthenticationError):
            raise
        raise ConfigError(str(error), name=JAAS) from None


def jaas_entry(mechanism: str, values: ConfigValues, *, required: bool = True) -> JaasEntry:
    """Returns the parsed ``sasl.jaas.config``; an entry without options if it is neither given nor required."""
    given = values.get_optional_password(JAAS)
    if given is not None:
        return jaas_for(mechanism, given.value)
    if required:
        raise ConfigError(
            f"{JAAS} is missing: {mechanism} needs a user name and a password. Set {JAAS}, or sasl.username and "
            "sasl.password.",
            name=JAAS,
        )
    return JaasEntry(LOGIN_MODULES[mechanism], "required", {})


def _password(mechanism: str, values: ConfigValues) -> ClientCredentials:
    entry = jaas_entry(mechanism, values)
    return ClientCredentials(
        entry.required("username"),
        entry.required("password"),
        delegation_token=entry.options.get(TOKEN_AUTH, "").lower() == "true",
    )
