"""No secret leaves a broker: neither in logs, descriptions, errors, metrics and reprs, nor in its files (A12).

A broker gets a different secret in every place where one can be, and is then used, misused and looked at. Everything
that it says is searched for all of them.
"""

from __future__ import annotations

import base64
import json
import logging
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from barnabas import EmbeddedBroker
from barnabas.cli.main import run
from barnabas.clients.admin import (
    AlterConfigOp,
    ConfigResource,
    KafkaAdminClient,
    ScramCredentialUpsertion,
    ScramMechanism,
)
from barnabas.common.errors import ApiError
from barnabas.protocol.internal.metadata import ConfigRecord, UserScramCredentialRecord
from barnabas.protocol.message import Request
from barnabas.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from barnabas.protocol.messages.alter_user_scram_credentials import ScramCredentialUpsertion as SentUpsertion
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from oracles.side_by_side import Connection

pytestmark = pytest.mark.mechanism("A12")

TRACE: Final = 5
FILE, VARIABLE, USER, TOKEN, DYNAMIC, INVALID, PLAIN = (
    f"zq-{name}-9f27c1" for name in ("file", "variable", "user", "token", "dynamic", "invalid", "plain")
)
SECRETS: Final = (FILE, VARIABLE, USER, TOKEN, DYNAMIC, INVALID, PLAIN)
JAAS: Final = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'username="admin" password="{FILE}" user_admin="{FILE}";'
)


@pytest.fixture(scope="module")
def said(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[dict[str, str], Path]:
    """All that a broker has said, by where, and its data directory."""
    directory = tmp_path_factory.mktemp("broker")
    lines: list[str] = []
    handler = Lines(lines)
    root = logging.getLogger()
    level = root.level
    barnabas = logging.getLogger("barnabas")
    barnabas_level = barnabas.level
    root.addHandler(handler)
    root.setLevel(TRACE)
    barnabas.setLevel(TRACE)
    found: dict[str, str] = {}
    try:
        use(directory, found)
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
        barnabas.setLevel(barnabas_level)
    found["log"] = "\n".join(lines)
    return found, directory / "data"


class Lines(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__(TRACE)
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(self.format(record))


def use(directory: Path, found: dict[str, str]) -> None:
    secrets = directory / "secrets.properties"
    secrets.write_text(f"key={VARIABLE}\n")
    secrets.chmod(0o600)
    overrides = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "barnabas.http.listener": "127.0.0.1:0",
        "config.providers": "file",
        "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
        "delegation.token.secret.key": f"${{file:{secrets}:key}}",
        "ssl.keystore.password": FILE,
        "ssl.key.password": FILE,
        "ssl.keystore.key": FILE,
        "ssl.truststore.password": FILE,
        "sasl.jaas.config": JAAS,
        "listener.name.plaintext.plain.sasl.jaas.config": JAAS,
        "listener.name.plaintext.ssl.keystore.password": FILE,
        "some.plugin.password": FILE,
    }
    with EmbeddedBroker(directory / "data", overrides=overrides) as broker:
        bootstrap = broker.bootstrap_servers
        describe(bootstrap, found)
        change(bootstrap, found)
        misuse(int(bootstrap.rpartition(":")[2]), found)
        look(broker, found)


def describe(bootstrap: str, found: dict[str, str]) -> None:
    with KafkaAdminClient(bootstrap_servers=bootstrap, sasl_jaas_config=JAAS, ssl_key_password=FILE) as admin:
        found["repr of a client"] = f"{admin!r} {admin.config!r}"
        for resource in (ConfigResource.broker(1), ConfigResource.broker(None)):
            described = admin.describe_configs([resource], include_synonyms=True, include_documentation=True)
            found[f"configs of {resource}"] = repr(described)
            assert "delegation.token.secret.key" in found[f"configs of {resource}"] or resource.name == ""


def change(bootstrap: str, found: dict[str, str]) -> None:
    broker = ConfigResource.broker(1)
    password = "listener.name.plaintext.ssl.keystore.password"
    with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
        upsertion = ScramCredentialUpsertion("alice", ScramMechanism.SCRAM_SHA_256, USER.encode())
        found["repr of a user"] = repr(upsertion)
        admin.alter_user_scram_credentials([upsertion])
        found["users"] = repr(admin.describe_user_scram_credentials())
        admin.incremental_alter_configs({broker: [AlterConfigOp(password, DYNAMIC)]})
        admin.incremental_alter_configs({broker: [AlterConfigOp("a.plugins.password", DYNAMIC)]})
        found["dynamic configs"] = repr(admin.describe_configs([broker], include_synonyms=True))
        for name, changes in {
            "a bad value beside a password": {password: INVALID, "num.io.threads": "many"},
            "a password without a listener": {"ssl.keystore.password": INVALID},
            "a password that is not dynamic": {"delegation.token.secret.key": INVALID},
        }.items():
            try:
                admin.incremental_alter_configs({broker: [AlterConfigOp(*one) for one in changes.items()]})
            except ApiError as error:
                found[name] = f"{error!r} {error}"


def misuse(port: int, found: dict[str, str]) -> None:
    requests: list[tuple[Request, int]] = [
        (SaslAuthenticateRequest(auth_bytes=f"\0alice\0{PLAIN}".encode()), 2),
        (RenewDelegationTokenRequest(hmac=TOKEN.encode()), 2),
        (
            AlterUserScramCredentialsRequest(
                upsertions=[SentUpsertion(name="eve", mechanism=9, iterations=1, salted_password=USER.encode())]
            ),
            0,
        ),
        (
            IncrementalAlterConfigsRequest(
                resources=[
                    AlterConfigsResource(
                        resource_type=4,
                        resource_name="nobody",
                        configs=[AlterableConfig(name="ssl.key.password", value=INVALID)],
                    )
                ]
            ),
            1,
        ),
    ]
    connection = Connection(port)
    for request, version in requests:
        connection.send(request, version)
        response = connection.receive(request.api_key, version)
        found[f"{request.api_key.title} and its response"] = f"{request!r} {response!r}"
    connection.close()


def look(broker: EmbeddedBroker, found: dict[str, str]) -> None:
    server: Any = broker._server
    image = server.broker.cache.image
    found["reprs"] = " ".join(
        map(
            repr,
            (
                broker,
                server,
                server.config,
                server.config.values,
                server.broker.tokens,
                server.broker.dynamic_config.current,
                server.controller.controller._config,
                image.scram,
                ConfigRecord(resource_name="1", name="ssl.key.password", value=FILE),
                UserScramCredentialRecord(name="alice", stored_key=USER.encode(), server_key=USER.encode()),
            ),
        )
    )
    for path in ("/metrics", "/health", "/quotas"):
        with urllib.request.urlopen(f"{server.http_address}{path}", timeout=30) as page:
            found[path] = page.read().decode()


def forms(secret: str) -> Iterator[bytes]:
    """How a secret may look: as it is, in Base64, in hexadecimal, as JSON."""
    data = secret.encode()
    yield from (data, base64.b64encode(data), data.hex().encode(), json.dumps(secret).encode())


def leaks(text: bytes, secrets: tuple[str, ...] = SECRETS) -> list[str]:
    return [secret for secret in secrets if any(form in text for form in forms(secret))]


def excerpts(text: str) -> list[str]:
    return [line[:400] for line in text.splitlines() if leaks(line.encode())][:5]


def test_no_secret_is_said(said: tuple[dict[str, str], Path]) -> None:
    everything, _ = said
    assert len(everything["log"]) > 10_000, "the log was recorded"
    leaking = {where: excerpts(text) for where, text in everything.items() if leaks(text.encode())}
    assert not leaking, "\n".join(f"{where}: {lines}" for where, lines in leaking.items())


def test_no_secret_is_written(said: tuple[dict[str, str], Path]) -> None:
    """A dynamic password without a variable is in the metadata log, as in Kafka."""
    _, data = said
    never = tuple(secret for secret in SECRETS if secret != DYNAMIC)
    for file in data.rglob("*"):
        if file.is_file():
            assert leaks(file.read_bytes(), never) == [], file


def test_commands_print_none(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    overrides = {"ssl.keystore.password": FILE, "delegation.token.secret.key": FILE, "sasl.jaas.config": JAAS}
    commands: list[Callable[[], list[str]]] = [
        lambda: ["configs", "get", "--broker", "1", "--all", "--json"],
        lambda: ["configs", "get", "--broker", "1", "--all"],
        lambda: ["cluster", "describe", "--json"],
        lambda: ["doctor"],
    ]
    with EmbeddedBroker(tmp_path / "data", overrides=overrides) as broker:
        for command in commands:
            run([*command(), "-b", broker.bootstrap_servers])
    out, err = capsys.readouterr()
    assert "delegation.token.secret.key" in out
    assert leaks((out + err).encode()) == []


def test_a_leak_would_be_found() -> None:
    assert leaks(f"password={FILE}".encode()) == [FILE]
    assert leaks(base64.b64encode(TOKEN.encode())) == [TOKEN]
