"""``barnabas secure``: creates certificates, users and settings for a laptop or a test cluster without a PKI."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas.cli.arguments import add_command
from barnabas.cli.console import CommandError, reason, say

if TYPE_CHECKING:
    from barnabas.cli.arguments import Commands
    from barnabas.security.tls.local_authority import LocalAuthority

DESCRIPTION: Final = """\
Creates a certificate authority, a certificate for the broker, one for each user, and SCRAM users with random passwords.
Writes the settings of the broker, and of clients in Java, with librdkafka and in Python. It is meant for laptops and
tests; in production, use certificates of a managed authority. Existing files are never overwritten: if DIR already has
an authority, only missing files are created.

  barnabas secure ~/secrets --host kafka.local --user alice --user bob"""
AUTHORITY: Final = "authority.pem"
AUTHORITY_KEY: Final = "authority-key.pem"
SERVER: Final = "server.pem"
USERS: Final = "users.scram"
SERVER_PROPERTIES: Final = "server.properties"


def add_secure(commands: Commands) -> None:
    parser = add_command(commands, "secure", secure_command, "create certificates, users and settings", DESCRIPTION)
    parser.add_argument("directory", metavar="DIR", type=Path, help="where to write; created with mode 0700")
    parser.add_argument(
        "--host", action="append", default=[], dest="hosts", metavar="NAME", help="a name or address of the broker"
    )
    parser.add_argument(
        "--user", action="append", default=[], dest="users", metavar="NAME", help="a user; default: admin"
    )
    parser.add_argument("--port", type=int, default=9092, help="the broker's port in the settings (default: 9092)")


def secure_command(directory: Path, hosts: list[str], users: list[str], port: int) -> None:
    from barnabas.broker.node.local_security import LOCAL_HOSTS, new_password, scram_argument
    from barnabas.common.errors import InvalidConfigurationError

    names = list(dict.fromkeys(users or ["admin"]))
    everywhere = list(dict.fromkeys((*hosts, *LOCAL_HOSTS)))
    written: list[str] = []

    def write(name: str, text: str) -> None:
        path = directory / name
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
        written.append(name)

    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        authority = _authority(directory, write)
        if not (directory / SERVER).exists():
            write(SERVER, authority.issue("broker", everywhere).pem)
        passwords = {name: new_password() for name in names}
        new = [name for name in names if not (directory / f"{name}.pem").exists()]
        lines = [scram_argument(name, passwords[name]) for name in new]
        for name in new:
            write(f"{name}.pem", authority.issue(name).pem)
            for suffix, text in _client_settings(directory, everywhere[0], port, name, passwords[name]).items():
                write(f"{name}.{suffix}", text)
        if not (directory / SERVER_PROPERTIES).exists():
            write(USERS, "".join(f"{line}\n" for line in lines))
            write(SERVER_PROPERTIES, _server_settings(directory, everywhere[0], port, names[0]))
    except InvalidConfigurationError as error:
        raise CommandError(str(error)) from None
    except (OSError, ValueError, ImportError) as error:
        raise CommandError(f"cannot write to {directory}: {reason(error)}") from None
    say("".join(f"{directory / name}\n" for name in written) or "All files exist already.\n", sys.stdout)
    say(
        f"\nStart the broker:\n"
        f"  barnabas format --config {directory / SERVER_PROPERTIES} --add-scram @{directory / USERS}\n"
        f"  barnabas start --config {directory / SERVER_PROPERTIES}\n"
        f"Connect as {names[0]}:\n"
        f"  barnabas topics list --command-config {directory / names[0]}.properties\n",
        sys.stdout,
    )


def _authority(directory: Path, write: Callable[[str, str], None]) -> LocalAuthority:
    from barnabas.security.tls.local_authority import LocalAuthority

    path = directory / AUTHORITY_KEY
    if path.exists():
        return LocalAuthority.load(path.read_bytes())
    made = LocalAuthority.create()
    write(AUTHORITY_KEY, made.private_pem)
    write(AUTHORITY, made.pem)
    return made


def _server_settings(directory: Path, host: str, port: int, super_user: str) -> str:
    return f"""\
process.roles=broker,controller
node.id=1
listeners=CLIENTS://:{port},CONTROLLER://127.0.0.1:{port + 1}
advertised.listeners=CLIENTS://{host}:{port}
controller.quorum.voters=1@127.0.0.1:{port + 1}
controller.listener.names=CONTROLLER
inter.broker.listener.name=CLIENTS
listener.security.protocol.map=CLIENTS:SASL_SSL,CONTROLLER:SSL
sasl.enabled.mechanisms=SCRAM-SHA-256
sasl.mechanism.inter.broker.protocol=SCRAM-SHA-256
ssl.keystore.type=PEM
ssl.keystore.location={directory / SERVER}
ssl.truststore.type=PEM
ssl.truststore.location={directory / AUTHORITY}
listener.name.controller.ssl.client.auth=required
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:{super_user};User:CN=broker
log.dirs={directory / "data"}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""


def _client_settings(directory: Path, host: str, port: int, name: str, password: str) -> dict[str, str]:
    """Returns the client settings of a user, by file suffix."""
    address = f"{host}:{port}"
    return {
        "properties": f"""\
# For Java, Kafka's tools, our clients and commands.
bootstrap.servers={address}
security.protocol=SASL_SSL
ssl.truststore.type=PEM
ssl.truststore.location={directory / AUTHORITY}
sasl.mechanism=SCRAM-SHA-256
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
  username="{name}" password="{password}";
""",
        "librdkafka.conf": f"""\
# For librdkafka: kcat -F FILE, or the settings of confluent-kafka.
bootstrap.servers={address}
security.protocol=SASL_SSL
ssl.ca.location={directory / AUTHORITY}
sasl.mechanisms=SCRAM-SHA-256
sasl.username={name}
sasl.password={password}
""",
    }
