"""The SASL mechanism of a client, made of its settings.

==============  ==========================================================================================
sasl.mechanism  credentials
==============  ==========================================================================================
PLAIN           ``username`` and ``password`` of ``sasl.jaas.config``
SCRAM-SHA-256   the same; ``tokenauth="true"`` for a delegation token: its id and its HMAC
SCRAM-SHA-512
==============  ==========================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

from barnabas.common.config_def import ConfigError, ConfigValues
from barnabas.common.errors import InvalidConfigurationError
from barnabas.security.sasl.jaas import JaasEntry, jaas_for
from barnabas.security.sasl.mechanism import TOKEN_AUTH, SaslClient
from barnabas.security.sasl.plain import PlainClient
from barnabas.security.sasl.scram import ScramClient

JAAS: Final = "sasl.jaas.config"
MECHANISM: Final = "sasl.mechanism"


class ClientMechanism(NamedTuple):
    """A mechanism with the credentials of a client."""

    name: str
    begin: Callable[[], SaslClient]
    """Begins an exchange: one for each connection, and for each re-authentication."""


def client_mechanism(values: ConfigValues) -> ClientMechanism:
    """Returns the mechanism of ``sasl.mechanism``; raises `ConfigError` if its credentials are missing or invalid."""
    name = values.get_str(MECHANISM)
    make = _MECHANISMS.get(name)
    if make is None:
        raise ConfigError.invalid(MECHANISM, name, f"it must be one of {', '.join(_MECHANISMS)}")
    try:
        begin = make(name, values)
        begin()  # finds invalid credentials now, not on the first connection
    except ConfigError:
        raise
    except InvalidConfigurationError as error:
        raise ConfigError(str(error), name=JAAS) from None
    return ClientMechanism(name, begin)


def _jaas(mechanism: str, values: ConfigValues) -> JaasEntry:
    given = values.get_optional_password(JAAS)
    if given is None:
        raise ConfigError(
            f"{JAAS} is missing: {mechanism} needs a user name and a password. Set {JAAS}, or sasl.username and "
            "sasl.password.",
            name=JAAS,
        )
    return jaas_for(mechanism, given.value)


def _plain(mechanism: str, values: ConfigValues) -> Callable[[], SaslClient]:
    entry = _jaas(mechanism, values)
    return partial(PlainClient, entry.required("username"), entry.required("password"))


def _scram(mechanism: str, values: ConfigValues) -> Callable[[], SaslClient]:
    entry = _jaas(mechanism, values)
    is_token = entry.options.get(TOKEN_AUTH, "").lower() == "true"
    extensions = {TOKEN_AUTH: "true"} if is_token else None
    return partial(ScramClient, mechanism, entry.required("username"), entry.required("password"), extensions)


_MECHANISMS: Final[Mapping[str, Callable[[str, ConfigValues], Callable[[], SaslClient]]]] = {
    "PLAIN": _plain,
    "SCRAM-SHA-256": _scram,
    "SCRAM-SHA-512": _scram,
}
