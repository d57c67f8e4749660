"""The ``ssl.*`` settings of a listener or a client, as one frozen value.

They are defined, with types and defaults, in `broker.config.security_config_def` and `clients.common.client_config`.
Parsed values of either become an `SslSettings`::

    SslSettings.of(values)  # of a node or a client
    SslSettings.of(values, {"ssl.client.auth": "required"})  # with the overrides of a listener
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

from barnabas.common.config_def import ConfigError, Password
from barnabas.common.dataclass import dataclass

PROTOCOLS: Final = ("TLSv1.2", "TLSv1.3")
"""The supported versions, oldest first."""


class ClientAuth(Enum):
    """Whether a listener asks clients for a certificate."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class SslSettings:
    """One listener's or client's settings. Secrets are `Password`, which shows nothing."""

    keystore_type: str = "JKS"
    keystore_location: str | None = None
    keystore_password: Password | None = None
    key_password: Password | None = None
    keystore_key: Password | None = None
    keystore_certificate_chain: Password | None = None
    truststore_type: str = "JKS"
    truststore_location: str | None = None
    truststore_password: Password | None = None
    truststore_certificates: Password | None = None
    protocol: str = "TLSv1.3"
    enabled_protocols: tuple[str, ...] = PROTOCOLS
    cipher_suites: tuple[str, ...] = ()
    client_auth: ClientAuth = ClientAuth.NONE
    endpoint_identification_algorithm: str = "https"
    allow_dn_changes: bool = False
    allow_san_changes: bool = False

    @classmethod
    def of(cls, values: Mapping[str, Any], overrides: Mapping[str, Any] | None = None) -> SslSettings:
        """Takes parsed values, of which those of other settings are ignored. A missing one has its default."""
        merged = {**values, **(overrides or {})}

        def get(name: str, default: Any = None) -> Any:
            found = merged.get(name)
            return default if found is None else found

        return cls(
            keystore_type=get("ssl.keystore.type", "JKS"),
            keystore_location=get("ssl.keystore.location"),
            keystore_password=_password(get("ssl.keystore.password")),
            key_password=_password(get("ssl.key.password")),
            keystore_key=_password(get("ssl.keystore.key")),
            keystore_certificate_chain=_password(get("ssl.keystore.certificate.chain")),
            truststore_type=get("ssl.truststore.type", "JKS"),
            truststore_location=get("ssl.truststore.location"),
            truststore_password=_password(get("ssl.truststore.password")),
            truststore_certificates=_password(get("ssl.truststore.certificates")),
            protocol=get("ssl.protocol", "TLSv1.3"),
            enabled_protocols=_items(get("ssl.enabled.protocols", PROTOCOLS)),
            cipher_suites=_items(get("ssl.cipher.suites", ())),
            client_auth=_client_auth(get("ssl.client.auth", "none")),
            # Null means the same as an empty string.
            endpoint_identification_algorithm=merged.get("ssl.endpoint.identification.algorithm", "https") or "",
            allow_dn_changes=_boolean("ssl.allow.dn.changes", get("ssl.allow.dn.changes", False)),
            allow_san_changes=_boolean("ssl.allow.san.changes", get("ssl.allow.san.changes", False)),
        )


def _password(value: Password | str | None) -> Password | None:
    return Password(value) if isinstance(value, str) else value


def _items(value: Any) -> tuple[str, ...]:
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else tuple(value)


def _boolean(name: str, value: Any) -> bool:
    if isinstance(value, str):
        if value.lower() not in {"true", "false"}:
            raise ConfigError.invalid(name, value, "it must be true or false")
        return value.lower() == "true"
    return bool(value)


def _client_auth(value: str | ClientAuth) -> ClientAuth:
    try:
        return ClientAuth(value.lower() if isinstance(value, str) else value)
    except ValueError:
        raise ConfigError.invalid("ssl.client.auth", value, "it must be none, requested or required") from None
