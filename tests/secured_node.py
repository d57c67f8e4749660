"""A node whose listeners are secured in every way, and the settings of our clients for each of them.

=============  ================  ==========================================================================
listener       protocol          clients
=============  ================  ==========================================================================
TLS            SSL               with or without a certificate; the principal is its common name
PASSWORDS      SASL_PLAINTEXT    PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER with unsecured tokens
BOTH           SASL_SSL          the same over TLS
=============  ================  ==========================================================================

The controller's listener uses SASL_SSL, and so do the broker's connections to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from barnabas import EmbeddedBroker, KafkaAdminClient, KafkaProducer
from barnabas.clients.admin import NewTopic
from barnabas.security.acl import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from tls_fixtures import PKI, Identity

WAIT_S: Final = 60
ADMIN: Final = ("admin", "admin-secret")
ALICE: Final = ("alice", "alice-secret")
JAAS: Final = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'username="{ADMIN[0]}" password="{ADMIN[1]}" '
    + " ".join(f'user_{name}="{password}"' for name, password in (ADMIN, ALICE))
    + ";"
)
OAUTH: Final = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
    'unsecuredValidatorAllowableClockSkewMs="3000";'
)
LETTERS: Final = ResourcePattern(ResourceType.TOPIC, "letters", PatternType.LITERAL)
ALLOW: Final = AclPermissionType.ALLOW
PROTOCOLS: Final = {"TLS": "SSL", "PASSWORDS": "SASL_PLAINTEXT", "BOTH": "SASL_SSL"}


def store(directory: Path, identity: Identity, name: str = "server") -> Path:
    """Writes a PEM key store."""
    path = directory / f"{name}.pem"
    path.write_text(identity.key_pem() + identity.chain_pem)
    path.chmod(0o600)
    return path


def settings(directory: Path) -> dict[str, str]:
    """Returns the settings of the node."""
    authority = directory / "authority.pem"
    authority.write_text(PKI.authority.pem)
    names = [*PROTOCOLS, "CONTROLLER"]
    return {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in names),
        "advertised.listeners": ",".join(f"{name}://127.0.0.1:0" for name in PROTOCOLS),
        "listener.security.protocol.map": ",".join(f"{name}:{PROTOCOLS.get(name, 'SASL_SSL')}" for name in names),
        "inter.broker.listener.name": "BOTH",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store(directory, PKI.server)),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority),
        "listener.name.tls.ssl.client.auth": "requested",
        "listener.name.tls.ssl.principal.mapping.rules": "RULE:^CN=([^,]+),.*$/$1/L,DEFAULT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        **{
            f"listener.name.{name.lower()}.plain.sasl.jaas.config": JAAS for name in ("PASSWORDS", "BOTH", "CONTROLLER")
        },
        **{f"listener.name.{name.lower()}.oauthbearer.sasl.jaas.config": OAUTH for name in ("PASSWORDS", "BOTH")},
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
        "delegation.token.secret.key": "the-secret-key-of-all-tokens",
    }


@contextmanager
def secured_node(directory: Path, changes: Mapping[str, str] | None = None) -> Iterator[EmbeddedBroker]:
    """Runs the node, with a topic that alice may use."""
    with EmbeddedBroker(overrides={**settings(directory), **(changes or {})}) as running:
        with KafkaAdminClient(**secured(running, directory, "PASSWORDS", ADMIN)) as admin:
            admin.create_topics([NewTopic("letters", 1)])
            admin.create_acls([AclBinding(LETTERS, AccessControlEntry("User:alice", "*", AclOperation.ALL, ALLOW))])
        yield running


def address(node: EmbeddedBroker, listener: str) -> str:
    server = node.server.broker
    assert server is not None
    return next(f"{one.host}:{one.port}" for one in server.advertised if one.listener_name == listener)


def secured(
    node: EmbeddedBroker, directory: Path, listener: str, user: tuple[str, str] | None = None
) -> dict[str, Any]:
    """Settings of our clients for a listener."""
    authority = directory / "trusted.pem"
    authority.write_text(PKI.authority.pem)
    found: dict[str, Any] = {
        "bootstrap_servers": address(node, listener),
        "security_protocol": PROTOCOLS[listener],
        "request_timeout_ms": WAIT_S * 1000,
    }
    if "SSL" in PROTOCOLS[listener]:
        found |= {"ssl_truststore_type": "PEM", "ssl_truststore_location": str(authority)}
    if user is not None:
        found |= {"sasl_mechanism": "PLAIN", "sasl_username": user[0], "sasl_password": user[1]}
    return found


def with_certificate(directory: Path) -> dict[str, str]:
    return {"ssl_keystore_type": "PEM", "ssl_keystore_location": str(store(directory, PKI.client, "client"))}


def send(found: dict[str, Any]) -> int:
    """Sends a record with our producer; returns its offset."""
    with KafkaProducer(**found) as producer:
        return producer.send("letters", b"a letter").result(WAIT_S).offset
