"""``format --add-scram``: users of a cluster that has not started yet."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.config.kafka_config import KafkaConfig
from barnabas.broker.node.initial_credentials import parse_scram_argument, scram_records
from barnabas.broker.node.storage_formatter import FormatError, format_storage
from barnabas.cli import main
from barnabas.clients.admin import KafkaAdminClient
from barnabas.common.errors import InvalidConfigurationError
from barnabas.embedded import EmbeddedBroker
from barnabas.protocol.internal.metadata import UserScramCredentialRecord
from barnabas.raft.bootstrap_file import BOOTSTRAP_FILE, read_bootstrap_file
from barnabas.security.sasl.scram import HASHES, SCRAM_SHA_256, ScramClient, ScramCredential, ScramServer
from oracles.java import OracleUnavailableError
from oracles.kafka_server import KafkaServer, ensure_available, run_tool

pytestmark = pytest.mark.mechanism("A06")

ALICE = "SCRAM-SHA-256=[name=alice,password=hush]"


def users_of(directory: Path) -> list[UserScramCredentialRecord]:
    """The users in a bootstrap file."""
    records = [record.message for record in read_bootstrap_file(directory / BOOTSTRAP_FILE)]
    return [record for record in records if isinstance(record, UserScramCredentialRecord)]


@pytest.mark.parametrize("mechanism", list(HASHES))
def test_the_user_can_log_in(mechanism: str) -> None:
    record = parse_scram_argument(f' {mechanism}=[name=alice,password="s=e-cret",iterations=8192] ')

    class Store:
        def credential(self, _mechanism: str, _username: str) -> ScramCredential:
            return ScramCredential(record.salt, record.stored_key, record.server_key, record.iterations)

    client, server = ScramClient(mechanism, "alice", "s=e-cret"), ScramServer(mechanism, Store())
    final = client.evaluate(server.evaluate(client.initial_response()))
    assert final is not None
    server.evaluate(final)
    assert (server.complete, record.name, record.iterations) == (True, "alice", 8192)


def test_a_salted_password() -> None:
    salt, salted = b"salt", hashlib.pbkdf2_hmac("sha256", b"hush", b"salt", 4096)
    text = f"name=alice,salt={base64.b64encode(salt).decode()}"
    with_password = parse_scram_argument(f"SCRAM-SHA-256=[{text},password=hush]")
    salted_text = base64.b64encode(salted).decode()
    assert parse_scram_argument(f'SCRAM-SHA-256=[{text},saltedpassword="{salted_text}"]') == with_password


@pytest.mark.mechanism("A12")
@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("hush", "must have the form MECHANISM="),
        ("SCRAM-SHA-256=name=a,password=hush", "must have the form MECHANISM="),
        ("SCRAM-SHA-1=[name=a,password=hush]", "must be one of SCRAM-SHA-256, SCRAM-SHA-512, not 'SCRAM-SHA-1'"),
        ("SCRAM-SHA-256=[password=hush]", "You must supply 'name'"),
        ("SCRAM-SHA-256=[name=a]", "one of 'password' or 'saltedpassword'"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=aHVzaA==]", "'salt' with 'saltedpassword'"),
        ("SCRAM-SHA-256=[name=a,salt=?,password=hush]", "salt is not base64"),
        ("SCRAM-SHA-256=[name=a,password=ha,hush]", "no equals sign; a password must not contain a comma"),
        ("SCRAM-SHA-256=[name=a,password=ha,hush=1]", "another was given"),
        ("SCRAM-SHA-256=[name=a,password=hush,iterations=4095]", "from 4096 to 16384"),
        ("SCRAM-SHA-256=[name=a,password=hush,iterations=16385]", "from 4096 to 16384"),
        ("SCRAM-SHA-256=[name=a,password=hush,iterations=many]", "from 4096 to 16384"),
    ],
)
def test_errors_show_no_value(argument: str, message: str) -> None:
    with pytest.raises(InvalidConfigurationError) as caught:
        parse_scram_argument(argument)
    assert message in str(caught.value)
    assert "hush" not in str(caught.value)


@given(st.text(max_size=60))
def test_any_text_parses_or_is_refused(text: str) -> None:
    for argument in (text, f"SCRAM-SHA-256=[{text}]"):
        with contextlib.suppress(InvalidConfigurationError):
            parse_scram_argument(argument)


def test_a_user_twice() -> None:
    other = ALICE.replace("256", "512")
    assert len(scram_records([ALICE, other])) == 2
    with pytest.raises(InvalidConfigurationError, match="user alice is given twice"):
        scram_records([ALICE, other, ALICE])


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.touch(0o600)
    path.write_text(f"# the first users\n\n{ALICE}\n SCRAM-SHA-512=[name=bob,password=hush]\n")
    assert [record.name for record in scram_records([f"@{path}"])] == ["alice", "bob"]
    path.chmod(0o644)
    with pytest.raises(InvalidConfigurationError, match="every user of this machine"):
        scram_records([f"@{path}"])


def test_a_cluster_starts_with_the_users(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    assert main.run(["format", f"--data-dir={data}", "--add-scram", ALICE, "-S", ALICE.replace("256", "512")]) == 0
    out = capsys.readouterr().out
    assert "Added 2 SCRAM credential(s)" in out
    assert "hush" not in out
    with EmbeddedBroker(data) as broker, KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers) as admin:
        described = admin.describe_user_scram_credentials(["alice"])
    assert [(info.mechanism, info.iterations) for info in described["alice"]] == [(1, 4096), (2, 4096)]


def test_what_cannot_be_done(tmp_path: Path) -> None:
    config = KafkaConfig.for_zero_configuration(tmp_path / "data")
    with pytest.raises(FormatError, match=r"3\.4.* does not support SCRAM"):
        format_storage(config, release_version="3.4", add_scram=[ALICE])
    with pytest.raises(FormatError, match="must have the form"):
        format_storage(config, add_scram=["?"])
    assert not (tmp_path / "data").exists()
    format_storage(config)
    assert format_storage(config, ignore_formatted=True, add_scram=[ALICE]).users == 0
    with EmbeddedBroker(tmp_path / "data"):
        pass
    (tmp_path / "data" / "meta.properties").unlink()
    with pytest.raises(FormatError, match="only to a new metadata log"):
        format_storage(config, cluster_id="5L6g3nShT-eMCtK--X86sw", add_scram=[ALICE])


@pytest.mark.java
def test_kafkas_own_tool_makes_the_same_record(tmp_path: Path) -> None:
    try:
        ensure_available()
    except OracleUnavailableError as reason:
        if os.environ.get("CI") == "true":
            pytest.fail(str(reason))
        pytest.skip(str(reason))
    server = KafkaServer(tmp_path)
    argument = f'{SCRAM_SHA_256}=[name=alice,password=hush,iterations=5000,salt="c2FsdHNhbHQ="]'
    run_tool(
        "kafka.tools.StorageTool", "format", "-t", "5L6g3nShT-eMCtK--X86sw", "-c", str(server.config_file),
        "--standalone", "--add-scram", argument,
    )  # fmt: skip
    assert users_of(server.data) == scram_records([argument])
