"""Names that other Python clients have for Kafka's security settings.

A program that was written for kafka-python, aiokafka or confluent-kafka (librdkafka) keeps its settings. They are
translated to Kafka's names before anything else sees them:

==============================================  ============================  ======================================
setting                                         of                            Kafka's settings
==============================================  ============================  ======================================
``sasl.mechanisms``                             librdkafka                    ``sasl.mechanism``
``sasl.username``, ``sasl.password``            librdkafka                    ``sasl.jaas.config``
``sasl.plain.username``,                        kafka-python, aiokafka        ``sasl.jaas.config``
``sasl.plain.password``
``ssl.ca.location``                             librdkafka                    ``ssl.truststore.location``, type PEM
``ssl.cafile``                                  kafka-python                  ``ssl.truststore.location``, type PEM
``ssl.ca.pem``                                  librdkafka                    ``ssl.truststore.certificates``
``ssl.certificate.location``                    librdkafka                    ``ssl.keystore.certificate.chain``
``ssl.certfile``                                kafka-python                  ``ssl.keystore.certificate.chain``
``ssl.certificate.pem``                         librdkafka                    ``ssl.keystore.certificate.chain``
``ssl.key.location``                            librdkafka                    ``ssl.keystore.key``
``ssl.keyfile``                                 kafka-python                  ``ssl.keystore.key``
``ssl.key.pem``                                 librdkafka                    ``ssl.keystore.key``
``ssl.password``                                kafka-python                  ``ssl.key.password``
``ssl.check.hostname``                          kafka-python                  ``ssl.endpoint.identification.algorithm``
==============================================  ============================  ======================================

Two settings are Python objects, which no file can contain. Only keywords and mappings have them:

``sasl.oauth.token.provider``
    Returns tokens for OAUTHBEARER: a function, a coroutine function, or an object with such a method ``token``. It
    returns the token, or a tuple of the token and its expiry in seconds since 1970.
``ssl.context``
    An ``ssl.SSLContext`` that replaces all ``ssl.*`` settings.

A setting that is given under two names is an error. No error shows a value.

A properties file for Java may name Kafka's own Java classes, such as ``sasl.login.callback.handler.class``. Those are
ignored: the other settings have the same effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from barnabas.common.config_def import ConfigError, Password

TOKEN_PROVIDER: Final = "sasl.oauth.token.provider"  # noqa: S105 - a name
SSL_CONTEXT: Final = "ssl.context"
OBJECTS: Final = frozenset({TOKEN_PROVIDER, SSL_CONTEXT})
"""Settings that are Python objects."""

_JAVA_CLASSES: Final = frozenset(
    {
        "sasl.client.callback.handler.class",
        "sasl.login.callback.handler.class",
        "sasl.login.class",
        "sasl.oauthbearer.jwt.retriever.class",
        "sasl.oauthbearer.jwt.validator.class",
        "ssl.engine.factory.class",
    }
)
_JAVA_PACKAGE: Final = "org.apache.kafka.common.security."
_PEM: Final = "PEM"
_MAX_PEM_BYTES: Final = 1 << 20
_LOGIN_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_JAAS: Final = "sasl.jaas.config"
_USERNAME: Final = "sasl.username"
_PASSWORD: Final = "sasl.password"  # noqa: S105 - a name
_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _text(name: str, value: object) -> object:  # noqa: ARG001 - the signature of a translation
    return value


def _file(name: str, value: object) -> object:
    """Returns the content of a PEM file."""
    path = Path(str(value)).expanduser()
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_PEM_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{name}: cannot read {path}: {error.strerror}", name=name) from None
    if len(content) > _MAX_PEM_BYTES:
        raise ConfigError(f"{name}: {path} is too large for a PEM file: more than {_MAX_PEM_BYTES} bytes", name=name)
    try:
        return Password(content.decode("ascii"))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name}: {path} is not a PEM file: byte {error.start} is not ASCII", name=name) from None


def _identification(name: str, value: object) -> object:
    if str(value).lower() not in {"true", "false"}:
        raise ConfigError.invalid(name, value, "it must be true or false")
    return "https" if str(value).lower() == "true" else ""


class Alias(NamedTuple):
    """Another name of a setting."""

    kafka: str
    """Kafka's name."""
    translate: Callable[[str, object], object] = _text
    type_setting: str | None = None
    """The setting of the store type, which is then PEM."""


_TRUSTSTORE_TYPE: Final = "ssl.truststore.type"
_KEYSTORE_TYPE: Final = "ssl.keystore.type"
_CHAIN: Final = "ssl.keystore.certificate.chain"
_KEY: Final = "ssl.keystore.key"

ALIASES: Final[Mapping[str, Alias]] = {
    "sasl.mechanisms": Alias("sasl.mechanism"),
    "sasl.plain.username": Alias(_USERNAME),
    "sasl.plain.password": Alias(_PASSWORD),
    "ssl.ca.location": Alias("ssl.truststore.location", type_setting=_TRUSTSTORE_TYPE),
    "ssl.cafile": Alias("ssl.truststore.location", type_setting=_TRUSTSTORE_TYPE),
    "ssl.ca.pem": Alias("ssl.truststore.certificates", type_setting=_TRUSTSTORE_TYPE),
    "ssl.certificate.location": Alias(_CHAIN, _file, _KEYSTORE_TYPE),
    "ssl.certfile": Alias(_CHAIN, _file, _KEYSTORE_TYPE),
    "ssl.certificate.pem": Alias(_CHAIN, type_setting=_KEYSTORE_TYPE),
    "ssl.key.location": Alias(_KEY, _file, _KEYSTORE_TYPE),
    "ssl.keyfile": Alias(_KEY, _file, _KEYSTORE_TYPE),
    "ssl.key.pem": Alias(_KEY, type_setting=_KEYSTORE_TYPE),
    "ssl.password": Alias("ssl.key.password"),
    "ssl.check.hostname": Alias("ssl.endpoint.identification.algorithm", _identification),
}
"""The table above, except for the credentials, which two settings make together."""
NAMES: Final = frozenset({*ALIASES, _USERNAME, _PASSWORD, *OBJECTS})
"""All names that clients accept in addition to Kafka's."""


def with_kafka_names(properties: Mapping[str, object]) -> dict[str, object]:
    """Returns the settings under Kafka's names; raises `ConfigError` for one that is given twice.

    >>> with_kafka_names({"sasl.mechanisms": "PLAIN", "linger.ms": 5})
    {'linger.ms': 5, 'sasl.mechanism': 'PLAIN'}
    """
    found = {name: value for name, value in properties.items() if name not in ALIASES and not _is_java(name, value)}
    if NAMES.isdisjoint(properties):
        return found
    given_as: dict[str, str] = {}
    for name, value in properties.items():
        alias = ALIASES.get(name)
        if alias is None or value is None:
            continue
        other = given_as.get(alias.kafka, alias.kafka)
        if alias.kafka in found:
            raise _given_twice(name, other, alias.kafka)
        if alias.type_setting is not None:
            if alias.type_setting in properties:
                raise _given_twice(name, alias.type_setting, alias.type_setting)
            found[alias.type_setting] = _PEM
        found[alias.kafka] = alias.translate(name, value)
        given_as[alias.kafka] = name
    chain = given_as.get(_CHAIN)
    if chain is not None and _KEY not in found and ALIASES[chain].translate is _file:
        # One file has the key and the certificates: that is a key store.
        del found[_CHAIN]
        found["ssl.keystore.location"] = properties[chain]
    _make_jaas(found)
    return found


def _is_java(name: str, value: object) -> bool:
    """Whether the value is one of Kafka's own Java classes. The other settings have the same effect."""
    return name in _JAVA_CLASSES and isinstance(value, str) and value.strip().startswith(_JAVA_PACKAGE)


def _given_twice(name: str, other: str, kafka: str) -> ConfigError:
    same = "" if other == kafka else f", another name of {kafka}"
    return ConfigError(f"{name} cannot be given together with {other}{same}: both set {kafka}.", name=name)


def _make_jaas(properties: dict[str, object]) -> None:
    """Replaces user name and password by ``sasl.jaas.config``."""
    username, password = properties.pop(_USERNAME, None), properties.pop(_PASSWORD, None)
    if username is None and password is None:
        return
    if _JAAS in properties:
        raise _given_twice(_USERNAME if username is not None else _PASSWORD, _JAAS, _JAAS)
    for name, value, other in ((_USERNAME, username, _PASSWORD), (_PASSWORD, password, _USERNAME)):
        if value is None:
            raise ConfigError(f"{other} needs {name} as well.", name=name)
    mechanism = str(properties.get("sasl.mechanism", ""))
    module = _LOGIN_MODULES.get(mechanism)
    if module is None:
        raise ConfigError(
            f"{_USERNAME} and {_PASSWORD} need sasl.mechanism to be one of {', '.join(_LOGIN_MODULES)}"
            + (f", not {mechanism}." if mechanism else "."),
            name="sasl.mechanism",
        )
    properties[_JAAS] = Password(f"{module} required username={_quoted(username)} password={_quoted(password)};")


def _quoted(value: object) -> str:
    text = value.value if isinstance(value, Password) else str(value)
    return '"' + "".join(_ESCAPES.get(char, char) for char in text) + '"'
