"""``barnabas acls``, ``users`` and ``tokens`` against a broker with an authorizer."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from barnabas import EmbeddedBroker
from barnabas.cli import tokens
from barnabas.cli.main import run
from barnabas.clients.admin import DelegationToken
from unit.cli.command_line import Terminal, environment

PASSWORD = "correct-horse-battery"
CASTLE = "User:CN=alice,O=Castle"


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(
        overrides={
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }
    ) as started:
        yield started


class Shell:
    def __init__(self, broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> None:
        self.bootstrap = broker.bootstrap_servers
        self._capture = capsys

    def __call__(self, *arguments: str, expect: int = 0) -> str:
        code = run([*arguments, "-b", self.bootstrap])
        out, err = self._capture.readouterr()
        assert code == expect, out + err
        assert PASSWORD not in out + err
        return out if expect == 0 else err

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json"))

    def fails(self, *arguments: str, code: int = 1) -> str:
        text = self(*arguments, expect=code)
        assert text.count("\n") == 1, "one line"
        return text.removeprefix("error: ").rstrip("\n")


@pytest.fixture
def shell(
    broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Shell]:
    monkeypatch.setenv("COLUMNS", "160")
    shell = Shell(broker, capsys)
    yield shell
    for one in shell.json("acls", "list"):
        option = {"TransactionalId": "transactional-id", "User": "user-principal"}.get(
            one["resource_type"], one["resource_type"].lower()
        )
        names = [] if option == "cluster" else [one["resource_name"]]
        run(["acls", "remove", f"--{option}", *names, "-b", shell.bootstrap])
    capsys.readouterr()


def found(shell: Shell, *options: str) -> list[tuple[str, ...]]:
    return sorted(tuple(one.values()) for one in shell.json("acls", "list", *options))


# -- acls


def test_acls_are_added_listed_and_removed(shell: Shell) -> None:
    assert shell("acls", "list") == "There are no ACLs.\n"
    added = shell(
        "acls", "add", "--allow-principal", CASTLE, "--operation", "read", "--operation", "describe-configs",
        "--topic", "orders", "--allow-host", "192.0.2.7",
    )  # fmt: skip
    assert added.splitlines() == [
        f"added: ALLOW Read to {CASTLE} from 192.0.2.7 on Topic:LITERAL:orders",
        f"added: ALLOW DescribeConfigs to {CASTLE} from 192.0.2.7 on Topic:LITERAL:orders",
    ]
    shell("acls", "add", "--deny-principal", "User:*", "--topic", "ord", "--pattern-type", "prefixed")
    assert found(shell) == [
        ("Topic", "ord", "Prefixed", "User:*", "*", "All", "Deny"),
        ("Topic", "orders", "Literal", CASTLE, "192.0.2.7", "DescribeConfigs", "Allow"),
        ("Topic", "orders", "Literal", CASTLE, "192.0.2.7", "Read", "Allow"),
    ]
    assert len(found(shell, "--topic", "orders")) == 2
    assert len(found(shell, "--topic", "orders", "--pattern-type", "match")) == 3
    assert len(found(shell, "--principal", "User:*")) == 1
    assert found(shell, "--group", "orders") == []
    assert "Castle" in shell("acls", "list", "--topic", "orders")
    removed = shell("acls", "remove", "--allow-principal", CASTLE, "--operation", "Read", "--topic", "orders")
    assert removed.endswith("removed: 1\n")
    assert len(found(shell)) == 2
    shell("acls", "remove", "--topic", "orders", "--topic", "ord", "--yes")
    assert found(shell) == []
    assert shell.fails("acls", "remove", "--topic", "orders") == "there are no such ACLs"


def test_what_producers_and_consumers_need(shell: Shell) -> None:
    shell("acls", "add", "--allow-principal", "User:p", "--producer", "--topic", "t", "--transactional-id", "x")
    shell("acls", "add", "--allow-principal", "User:c", "--consumer", "--topic", "t", "--group", "g")
    shell("acls", "add", "--allow-principal", "User:i", "--producer", "--idempotent", "--topic", "t.", "--pattern-type", "prefixed")  # noqa: E501  # fmt: skip
    rights = {(row[3], row[0], row[2], row[5]) for row in found(shell)}
    assert rights == {
        ("User:p", "Topic", "Literal", "Write"),
        ("User:p", "Topic", "Literal", "Describe"),
        ("User:p", "Topic", "Literal", "Create"),
        ("User:p", "TransactionalId", "Literal", "Write"),
        ("User:p", "TransactionalId", "Literal", "Describe"),
        ("User:c", "Topic", "Literal", "Read"),
        ("User:c", "Topic", "Literal", "Describe"),
        ("User:c", "Group", "Literal", "Read"),
        ("User:i", "Topic", "Prefixed", "Write"),
        ("User:i", "Topic", "Prefixed", "Describe"),
        ("User:i", "Topic", "Prefixed", "Create"),
        ("User:i", "Cluster", "Literal", "IdempotentWrite"),
    }
    shell("acls", "remove", "--allow-principal", "User:c", "--consumer", "--topic", "t", "--group", "g")
    assert not found(shell, "--principal", "User:c")


def test_every_kind_of_resource(shell: Shell) -> None:
    allow = ("acls", "add", "--allow-principal", "User:a")
    shell(*allow, "--cluster", "--operation", "ClusterAction")
    shell(*allow, "--group", "*", "--operation", "DESCRIBE")
    shell(*allow, "--transactional-id", "x", "--operation", "TwoPhaseCommit")
    shell(*allow, "--delegation-token", "id", "--operation", "Describe")
    shell(*allow, "--user-principal", "User:bob", "--operation", "CreateTokens")
    assert [row[:2] for row in found(shell)] == [
        ("Cluster", "kafka-cluster"),
        ("DelegationToken", "id"),
        ("Group", "*"),
        ("TransactionalId", "x"),
        ("User", "User:bob"),
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["add", "--topic", "t"], "name a principal: --allow-principal or --deny-principal"),
        (["add", "--allow-principal", "User:a"], "name a resource"),
        (["add", "--allow-principal", "alice", "--topic", "t"], "a principal must have the form type:name"),
        (["add", "--allow-principal", "User:a", "--topic", "t", "--operation", "Raed"], "unknown operation 'Raed'"),
        (
            ["add", "--allow-principal", "User:a", "--group", "g", "--operation", "Write"],
            "a Group resource has no operation Write; it has Read, Delete, Describe, ",
        ),
        (["add", "--allow-principal", "User:a", "--consumer", "--topic", "t"], "--consumer needs --group"),
        (["add", "--allow-principal", "User:a", "--producer", "--group", "t"], "need --topic"),
        (["add", "--deny-principal", "User:a", "--producer", "--topic", "t"], "only grant permissions"),
        (["add", "--allow-principal", "User:a", "--idempotent", "--topic", "t"], "--idempotent needs --producer"),
        (
            ["add", "--allow-principal", "User:a", "--producer", "--topic", "t", "--operation", "Read"],
            "imply their operations",
        ),
        (["add", "--allow-host", "192.0.2.1", "--topic", "t"], "--allow-host needs --allow-principal"),
        (["add", "--allow-principal", "User:a", "--topic", "t", "--pattern-type", "any"], "invalid choice"),
        (["remove", "--topic", "t", "--operation", "Read"], "name the principal whose operations are removed"),
    ],
)
def test_options_that_make_no_sense(shell: Shell, arguments: list[str], message: str) -> None:
    assert message in shell.fails("acls", *arguments, code=2)


def test_a_broker_without_an_authorizer_has_no_acls(capsys: pytest.CaptureFixture[str]) -> None:
    with EmbeddedBroker() as plain:
        shell = Shell(plain, capsys)
        assert "(SECURITY_DISABLED; brokers with authorizer.class.name set have ACLs" in shell.fails("acls", "list")


# -- users


def test_users_are_created_changed_and_deleted(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "secret"
    file.write_text(f"{PASSWORD}\nnot this\n")
    file.chmod(0o600)
    monkeypatch.setenv("ALICES_PASSWORD", PASSWORD)
    assert shell("users", "list") == "There are no SCRAM users.\n"
    assert shell("users", "create", "alice", "--password-file", str(file)) == "created alice (SCRAM-SHA-512)\n"
    second = ("-m", "SCRAM-SHA-256", "--password-env", "ALICES_PASSWORD", "--iterations", "8192")
    assert shell("users", "create", "alice", *second) == "created alice (SCRAM-SHA-256)\n"
    assert shell.json("users", "list") == {"alice": {"SCRAM-SHA-256": 8192, "SCRAM-SHA-512": 4096}}
    assert "SCRAM-SHA-256" in shell("users", "list", "alice")
    assert "use barnabas users alter" in shell.fails("users", "create", "alice", *second)
    assert shell("users", "alter", "alice", *second[:4]) == "set the password of alice (SCRAM-SHA-256)\n"
    assert shell.json("users", "list", "alice") == {"alice": {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096}}
    assert "use barnabas users create" in shell.fails("users", "alter", "bob", *second)
    assert shell("users", "delete", "alice", "-m", "SCRAM-SHA-256") == "deleted alice (SCRAM-SHA-256)\n"
    assert shell("users", "delete", "alice", "--yes") == "deleted alice (SCRAM-SHA-512)\n"
    assert shell.fails("users", "delete", "alice") == "user alice has no SCRAM password"
    assert "RESOURCE_NOT_FOUND" in shell.fails("users", "list", "alice")


def test_the_password_of_a_file_that_others_may_read(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(PASSWORD)
    file.chmod(0o644)
    code = run(["users", "create", "carol", "--password-file", str(file), "-b", shell.bootstrap])
    assert code == 0
    assert "warning: other users may read" in shell._capture.readouterr().err
    shell("users", "delete", "carol")


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "must not be empty"), (b"\n", "must not be empty"), (b"\xff", "is not UTF-8"), (b"x" * 65_537, "more than")],
)
def test_a_file_without_a_password(shell: Shell, tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "secret"
    file.write_bytes(content)
    file.chmod(0o600)
    assert message in shell.fails("users", "create", "dave", "--password-file", str(file))


def test_where_passwords_do_not_come_from(shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert "no terminal to ask" in shell.fails("users", "create", "dave", code=2)
    assert "no variable NO_SUCH" in shell.fails("users", "create", "dave", "--password-env", "NO_SUCH", code=2)
    assert "No such file" in shell.fails("users", "create", "dave", "--password-file", str(tmp_path / "none"))
    assert "between 4096 and 16384" in shell.fails("users", "create", "dave", "--iterations", "1", code=2)
    assert "unrecognized arguments" in shell.fails("users", "create", "dave", "--password", "x", code=2)


@pytest.mark.mechanism("A12")
def test_a_password_that_is_typed_is_not_shown(broker: EmbeddedBroker) -> None:
    arguments = ("users", "create", "typist", "-b", broker.bootstrap_servers)
    with Terminal(*arguments, env=environment()) as terminal:
        terminal.read_until("Password: ")
        terminal.type_in(f"{PASSWORD}\n")
        terminal.read_until("Password again: ")
        terminal.type_in(f"{PASSWORD}\n")
        terminal.read_until("created typist")
        assert PASSWORD not in terminal.text
        assert terminal.wait() == 0
    with Terminal(*arguments[:2], "other", *arguments[3:], env=environment()) as terminal:
        terminal.read_until("Password: ")
        terminal.type_in(f"{PASSWORD}\n")
        terminal.read_until("Password again: ")
        terminal.type_in("something else\n")
        terminal.read_until("the passwords are not the same")
        assert terminal.wait() == 1


# -- tokens

TOKEN = DelegationToken("id-1", b"secret", "User:alice", "User:alice", ("User:bob",), 0, 3_600_000, 7_200_000)


class FakeAdmin:
    """An authenticated client of a cluster with one token."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def describe_delegation_tokens(self, owners: Any = None) -> list[DelegationToken]:
        self.calls.append(owners)
        return [TOKEN]

    def create_delegation_token(self, **options: Any) -> DelegationToken:
        self.calls.append(options)
        return TOKEN

    def renew_delegation_token(self, hmac: bytes, *, period_ms: int) -> int:
        self.calls.append((hmac, period_ms))
        return 5_000

    expire_delegation_token = renew_delegation_token


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> FakeAdmin:
    fake = FakeAdmin()

    @contextmanager
    def administered(_bootstrap: str) -> Iterator[FakeAdmin]:
        yield fake

    monkeypatch.setattr(tokens, "administered", administered)
    return fake


def test_a_token_is_created_and_its_secret_shown_once(shell: Shell, admin: FakeAdmin) -> None:
    created = shell("tokens", "create", "--renewer", "User:bob", "--max-lifetime", "2h")
    assert created.splitlines() == [
        "token     id-1",
        "password  c2VjcmV0",
        "owner     User:alice",
        "expires   1970-01-01T01:00:00.000Z, at the latest 1970-01-01T02:00:00.000Z",
    ]
    assert admin.calls == [{"owner": None, "renewers": ["User:bob"], "max_lifetime_ms": 7_200_000}]
    assert shell.json("tokens", "create")["password"] == "c2VjcmV0"
    for listed in (shell("tokens", "list"), shell("tokens", "list", "--json")):
        assert "id-1" in listed
        assert "c2VjcmV0" not in listed
    shell("tokens", "list", "--owner", "User:alice")
    assert admin.calls[-1] == ["User:alice"]


def test_a_token_is_renewed_and_expired_by_its_id(shell: Shell, admin: FakeAdmin) -> None:
    assert shell("tokens", "renew", "id-1", "--period", "1h") == "id-1 expires at 1970-01-01T00:00:05.000Z\n"
    assert admin.calls[-1] == (b"secret", 3_600_000)
    assert shell("tokens", "expire", "id-1") == "id-1 expired\n"
    assert admin.calls[-1] == (b"secret", -1)
    assert "expires at" in shell("tokens", "expire", "id-1", "--period", "5s")
    assert "there is no token id-2" in shell.fails("tokens", "renew", "id-2")


def test_what_is_refused_about_tokens(shell: Shell) -> None:
    assert "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" in shell.fails("tokens", "create")
    assert "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" in shell.fails("tokens", "list")
    assert "type:name" in shell.fails("tokens", "create", "--owner", "bob", code=2)
    assert "--period" in shell.fails("tokens", "renew", "x", "--period", "soon", code=2)
    assert "must be positive" in shell.fails("tokens", "expire", "x", "--period", "0s", code=2)
