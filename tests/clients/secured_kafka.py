"""Apache Kafka with a listener for each way to be secured, in one process.

=============  ================  =========================================================================
listener       protocol          what is special
=============  ================  =========================================================================
PLAINTEXT      PLAINTEXT
TLS            SSL               clients need no certificate
MUTUAL         SSL               clients need a certificate
EXPIRED        SSL               the broker's certificate has expired
ELSEWHERE      SSL               the broker's certificate is for another host
SASL           SASL_PLAINTEXT    PLAIN, SCRAM-SHA-256, SCRAM-SHA-512; OAUTHBEARER with unsecured tokens
SASLTLS        SASL_SSL          the same; OAUTHBEARER with tokens signed by `SecuredKafka.signing_key`
PLAINONLY      SASL_PLAINTEXT    PLAIN and no other mechanism; sessions end after `SESSION_MS`
=============  ================  =========================================================================
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import rsa

from oracles.kafka_server import KafkaServer, free_ports
from tls_fixtures import PKI, Identity

USER = "alice"
SECRET = "alice-secret-4711"
"""The password of alice, for every mechanism."""
KEY_ID = "castle-key"
AUDIENCE = "castle"
ISSUER = "https://issuer.example"
PROTOCOLS = {
    "PLAINTEXT": "PLAINTEXT",
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "EXPIRED": "SSL",
    "ELSEWHERE": "SSL",
    "SASL": "SASL_PLAINTEXT",
    "SASLTLS": "SASL_SSL",
    "PLAINONLY": "SASL_PLAINTEXT",
}
SESSION_MS = 2_000
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_MODULES = "org.apache.kafka.common.security"
_PLAIN = f'{_MODULES}.plain.PlainLoginModule required user_{USER}="{SECRET}";'
_SCRAM = f"{_MODULES}.scram.ScramLoginModule required;"
_OAUTHBEARER = f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required;"


class SecuredKafka:
    """Apache Kafka with the listeners above."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ports = dict(zip(PROTOCOLS, free_ports(len(PROTOCOLS)), strict=True))
        self.signing_key = rsa.generate_private_key(65537, 2048)
        self.ca = self.write("ca.pem", PKI.authority.pem)
        self.other_ca = self.write("other-ca.pem", PKI.other_authority.pem)
        self.client = self.write("client.pem", PKI.client.pem)
        self.client_certificate = self.write("client-cert.pem", PKI.client.chain_pem)
        self.client_key = self.write("client-key.pem", PKI.client.key_pem())
        self.jwks = self.write("jwks.json", json.dumps({"keys": [_jwk(self.signing_key)]}))
        settings: dict[str, Any] = self._settings()
        self.server = KafkaServer(directory, **settings)
        self.server.port = self.ports["PLAINTEXT"]
        self.server.format_options = [
            f"--add-scram={name}=[name={USER},password={SECRET}]" for name in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        ]
        self.server.jvm_options = [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self.jwks.as_uri()}"]

    def write(self, name: str, text: str) -> Path:
        path = self.directory / name
        path.write_text(text)
        path.chmod(0o600)
        return path

    def start(self) -> None:
        self.server.format()
        self.server.start()

    def stop(self) -> None:
        self.server.stop()

    def address(self, listener: str) -> str:
        return f"localhost:{self.ports[listener]}"

    def settings(self, listener: str, **further: object) -> dict[str, Any]:
        """The settings of a client of this listener, as keywords, without credentials."""
        found: dict[str, Any] = {
            "bootstrap_servers": self.address(listener),
            "security_protocol": PROTOCOLS[listener],
        }
        if PROTOCOLS[listener].endswith("SSL"):
            found |= {"ssl_truststore_location": str(self.ca), "ssl_truststore_type": "PEM"}
        return found | further

    def _settings(self) -> dict[str, str]:
        controller = free_ports(1)[0]
        addresses = [f"{name}://127.0.0.1:{port}" for name, port in self.ports.items()]
        settings = {
            "listeners": ",".join([*addresses, f"CONTROLLER://127.0.0.1:{controller}"]),
            "advertised.listeners": ",".join(f"{name}://localhost:{port}" for name, port in self.ports.items()),
            "listener.security.protocol.map": ",".join(
                f"{name}:{protocol}" for name, protocol in ({**PROTOCOLS, "CONTROLLER": "PLAINTEXT"}).items()
            ),
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "connection.failed.authentication.delay.ms": "1",
            "num.network.threads": "1",
            "num.io.threads": "2",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca),
            "ssl.keystore.type": "PEM",
        }
        identities: Mapping[str, Identity] = {
            "tls": PKI.server,
            "mutual": PKI.server,
            "expired": PKI.expired,
            "elsewhere": PKI.wrong_host,
            "sasltls": PKI.server,
        }
        for name, identity in identities.items():
            settings[f"listener.name.{name}.ssl.keystore.location"] = str(self.write(f"{name}.pem", identity.pem))
        settings["listener.name.mutual.ssl.client.auth"] = "required"
        settings["listener.name.plainonly.sasl.enabled.mechanisms"] = "PLAIN"
        settings["listener.name.plainonly.plain.sasl.jaas.config"] = _PLAIN
        settings["listener.name.plainonly.plain.connections.max.reauth.ms"] = str(SESSION_MS)
        for name in ("sasl", "sasltls"):
            prefix = f"listener.name.{name}"
            settings |= {
                f"{prefix}.plain.sasl.jaas.config": _PLAIN,
                f"{prefix}.scram-sha-256.sasl.jaas.config": _SCRAM,
                f"{prefix}.scram-sha-512.sasl.jaas.config": _SCRAM,
                f"{prefix}.oauthbearer.sasl.jaas.config": _OAUTHBEARER,
            }
        validator = f"{_MODULES}.oauthbearer.OAuthBearerValidatorCallbackHandler"
        settings |= {
            "listener.name.sasltls.oauthbearer.sasl.server.callback.handler.class": validator,
            "listener.name.sasltls.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": self.jwks.as_uri(),
            "listener.name.sasltls.oauthbearer.sasl.oauthbearer.expected.audience": AUDIENCE,
            "listener.name.sasltls.oauthbearer.sasl.oauthbearer.expected.issuer": ISSUER,
        }
        return settings

    # -- tokens

    def signed_token(self, **claims: object) -> str:
        """A token of the issuer that the listener SASLTLS trusts."""
        import jwt

        now = int(time.time())
        usual = {"sub": USER, "iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + 600, "scope": "kafka"}
        return jwt.encode(usual | claims, self.signing_key, "RS256", headers={"kid": KEY_ID})

    @staticmethod
    def unsecured_token(**claims: object) -> str:
        """A token without a signature."""
        now = time.time()
        header, body = {"alg": "none"}, {"sub": USER, "iat": now, "exp": now + 600} | claims
        return f"{_base64(json.dumps(header).encode())}.{_base64(json.dumps(body).encode())}."


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _jwk(key: rsa.RSAPrivateKey) -> dict[str, str]:
    numbers = key.public_key().public_numbers()
    return {
        "kty": "RSA",
        "kid": KEY_ID,
        "alg": "RS256",
        "use": "sig",
        "n": _base64(numbers.n.to_bytes(256)),
        "e": _base64(numbers.e.to_bytes(3)),
    }
