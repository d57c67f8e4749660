"""Security for a broker on this machine, without an infrastructure of keys: a certificate and SCRAM users, made now."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Final, NamedTuple

from barnabas.common.errors import InvalidConfigurationError
from barnabas.network.server.endpoint import SASL_PROTOCOLS, TLS_PROTOCOLS, SecurityProtocol

MECHANISM: Final = "SCRAM-SHA-256"
LOCAL_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
_PASSWORD_BYTES: Final = 18


def new_password() -> str:
    return secrets.token_urlsafe(_PASSWORD_BYTES)


def scram_argument(name: str, password: str) -> str:
    """Returns a user in the form of `barnabas.broker.node.initial_credentials`."""
    if any(character in name + password for character in ",[]") or not (name and password):
        raise InvalidConfigurationError("names and passwords must not be empty, nor contain commas or brackets")
    return f"{MECHANISM}=[name={name},password={password}]"


class LocalSecurity(NamedTuple):
    """The settings of a secured broker, and of its clients."""

    protocol: SecurityProtocol
    users: Mapping[str, str]
    """Passwords by name. The first user is that of `client_settings`."""
    authority: str = ""
    """The certificate that clients trust, in PEM format."""
    key: str = ""
    certificate: str = ""

    def __repr__(self) -> str:
        """Leaves out the secrets."""
        return f"LocalSecurity({self.protocol.name}, users {', '.join(self.users) or 'none'})"

    @classmethod
    def create(cls, protocol: str, users: Mapping[str, str] | None, host: str) -> LocalSecurity:
        """Makes certificates and passwords; raises `InvalidConfigurationError` for an unknown protocol."""
        if protocol not in SecurityProtocol.__members__:
            raise InvalidConfigurationError(
                f"security must be one of {', '.join(SecurityProtocol.__members__)}: {protocol}"
            )
        kind = SecurityProtocol[protocol]
        if users is None:
            users = {"admin": new_password()} if kind in SASL_PROTOCOLS else {}
        for name, password in users.items():
            scram_argument(name, password)
        if kind not in TLS_PROTOCOLS:
            return cls(kind, users)
        from barnabas.security.tls.local_authority import LocalAuthority

        authority = LocalAuthority.create()
        issued = authority.issue("broker", list(dict.fromkeys((*LOCAL_HOSTS, *([host] if host else [])))))
        return cls(kind, users, authority.pem, issued.key, issued.certificate)

    @property
    def initial_users(self) -> list[str]:
        return [scram_argument(name, password) for name, password in self.users.items()]

    def broker_settings(self, host: str, port: int) -> dict[str, str]:
        """Returns the settings of a node whose one listener for clients is secured."""
        bracketed = f"[{host}]" if ":" in host else host
        found = {
            "listeners": f"SECURED://{bracketed}:{port},CONTROLLER://127.0.0.1:0",
            "listener.security.protocol.map": f"SECURED:{self.protocol.name},CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "SECURED",
        }
        if self.protocol in SASL_PROTOCOLS:
            found |= {"sasl.enabled.mechanisms": MECHANISM, "sasl.mechanism.inter.broker.protocol": MECHANISM}
        if self.protocol in TLS_PROTOCOLS:
            found |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.key": self.key,
                "ssl.keystore.certificate.chain": self.certificate,
                "ssl.truststore.type": "PEM",
                "ssl.truststore.certificates": self.authority,
            }
        return found

    @property
    def client_settings(self) -> dict[str, str]:
        """Returns what a client of the first user sets, under Kafka's keys, without the address."""
        found = {"security.protocol": self.protocol.name}
        if self.protocol in TLS_PROTOCOLS:
            found |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": self.authority}
        if self.protocol in SASL_PROTOCOLS and self.users:
            name, password = next(iter(self.users.items()))
            found |= {
                "sasl.mechanism": MECHANISM,
                "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
                f'username="{name}" password="{password}";',
            }
        return found
