"""Creates the SASL mechanism of a client from its settings.

==============  ==========================================================================================
sasl.mechanism  credentials
==============  ==========================================================================================
PLAIN           ``username`` and ``password`` of ``sasl.jaas.config``
SCRAM-SHA-256   the same; ``tokenauth="true"`` for a delegation token: its id and its HMAC
SCRAM-SHA-512
OAUTHBEARER     a token: see `barnabas.clients.common.client_tokens`
GSSAPI          ``useKeyTab``, ``keyTab`` and ``principal``, or ``ticketCache``, or the ticket cache of the user
==============  ==========================================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.common.config_def import ConfigError, ConfigValues
from barnabas.common.errors import AuthenticationError, InvalidConfigurationError
from barnabas.security.sasl.jaas import LOGIN_MODULES, JaasEntry, jaas_for
from barnabas.security.sasl.mechanism import TOKEN_AUTH, SaslClient
from barnabas.security.sasl.mechanism_table import (
    CLIENT_MECHANISMS,
    GSSAPI,
    OAUTHBEARER,
    ClientCredentials,
    gssapi_client,
)
from barnabas.security.sasl.mechanism_table import client_mechanism as begin_with

if TYPE_CHECKING:
    from barnabas.security.sasl.gssapi import KerberosLogin

JAAS: Final = "sasl.jaas.config"
MECHANISM: Final = "sasl.mechanism"
_PLUG_INS: Final = ("sasl.client.callback.handler.class", "sasl.login.callback.handler.class", "sasl.login.class")


class ClientMechanism(NamedTuple):
    """A mechanism with the credentials of a client."""

    name: str
    begin: Callable[[str], SaslClient]
    """Begins an exchange with a host: one for each connection, and for each re-authentication."""
    close: Callable[[], None]
    """Ends the login, which may have a thread that renews tokens."""


def client_mechanism(values: ConfigValues) -> ClientMechanism:
    """Returns the mechanism of ``sasl.mechanism``; raises `ConfigError` if its credentials are missing or invalid.

    OAUTHBEARER obtains its first token here, and raises `SaslAuthenticationError` if it gets none.
    """
    name = values.get_str(MECHANISM)
    if name not in {*CLIENT_MECHANISMS, GSSAPI}:
        raise ConfigError.invalid(MECHANISM, name, f"it must be one of {', '.join(CLIENT_MECHANISMS)}, {GSSAPI}")
    for plug_in in _PLUG_INS:
        if values.get_optional_class(plug_in) is not None:
            raise ConfigError(
                f"{plug_in} is not supported; set sasl_oauth_token_provider= to a function that returns tokens.",
                name=plug_in,
            )
    try:
        if name == OAUTHBEARER:
            from barnabas.clients.common.client_tokens import token_login

            login = token_login(values, jaas_entry(name, values, required=False))
            credentials = ClientCredentials(token=login.token, extensions=login.extensions)
            try:
                begin = begin_with(name, credentials)
            except BaseException:
                login.close()  # its thread would renew the token for ever
                raise
            return ClientMechanism(name, _for_any_host(begin), login.close)
        if name == GSSAPI:
            kerberos = ClientCredentials(kerberos=_kerberos_login(values))
            return ClientMechanism(name, partial(gssapi_client, kerberos), lambda: None)
        return ClientMechanism(name, _for_any_host(begin_with(name, _password(name, values))), lambda: None)
    except ConfigError:
        raise
    except InvalidConfigurationError as error:
        if isinstance(error, AuthenticationError):
            raise
        raise ConfigError(str(error), name=JAAS) from None


def _for_any_host(begin: Callable[[], SaslClient]) -> Callable[[str], SaslClient]:
    return lambda _host: begin()


def _kerberos_login(values: ConfigValues) -> KerberosLogin:
    """Returns the Kerberos credentials: a keytab or a ticket cache, by the options of Java's Krb5LoginModule."""
    from barnabas.security.sasl.gssapi import KerberosLogin

    options = jaas_entry(GSSAPI, values, required=False).options
    service = values.get_optional_str("sasl.kerberos.service.name") or options.get("serviceName")
    if not service:
        raise ConfigError(
            "sasl.kerberos.service.name is missing: GSSAPI, the default of sasl.mechanism, needs the service of the "
            f"brokers, often kafka. The other mechanisms are {', '.join(CLIENT_MECHANISMS)}.",
            name="sasl.kerberos.service.name",
        )
    keytab = options.get("keyTab") if options.get("useKeyTab", "").lower() == "true" else None
    try:
        return KerberosLogin(
            service, principal=options.get("principal"), keytab=keytab, ticket_cache=options.get("ticketCache")
        )
    except ImportError as error:
        raise ConfigError(str(error), name=MECHANISM) from None


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
