"""The listeners of the compared brokers, and what a client needs to use one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from barnabas.security.tls.local_authority import LocalAuthority
from benchmarks.broker_process import PLAINTEXT

SSL: Final = "SSL"
SASL_SSL: Final = "SASL_SSL"
MECHANISM: Final = "SCRAM-SHA-256"


@dataclass(frozen=True, slots=True)
class ClientListener:
    """A listener with the settings of clients, by the names that Java has and by those of librdkafka."""

    name: str = PLAINTEXT
    label: str = ""
    """What is added to the name of a case."""
    java: Mapping[str, str] = field(default_factory=dict)
    rdkafka: Mapping[str, str] = field(default_factory=dict)


WITHOUT_TLS: Final = ClientListener()


class Certificates:
    """An authority and a certificate for 127.0.0.1, as PEM files that both brokers and all clients read.

    Keys are EC P-256, which is what `barnabas secure` makes.
    """

    def __init__(self, directory: Path) -> None:
        authority = LocalAuthority.create()
        self.authority = directory / "authority.pem"
        self.authority.write_text(authority.pem)
        self._server = directory / "server.pem"
        self._server.write_text(authority.issue("broker", hosts=["localhost", "127.0.0.1"]).pem)
        self._server.chmod(0o600)

    @property
    def broker_settings(self) -> dict[str, object]:
        """The same for both brokers."""
        names = (PLAINTEXT, SSL, SASL_SSL)
        return {
            "listener.security.protocol.map": ",".join(["CONTROLLER:PLAINTEXT", *(f"{name}:{name}" for name in names)]),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self._server,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.authority,
            "sasl.enabled.mechanisms": MECHANISM,
            f"listener.name.{SASL_SSL.lower()}.{MECHANISM.lower()}.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
        }

    @property
    def tls(self) -> ClientListener:
        """TLS 1.3 without a client certificate."""
        return ClientListener(
            SSL,
            "TLS",
            {
                "security.protocol": SSL,
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self.authority),
            },
            {"security.protocol": "ssl", "ssl.ca.location": str(self.authority)},
        )
