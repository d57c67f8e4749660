"""PLAIN: the message, the credentials, and what a client learns from a refusal."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.common.errors import IllegalSaslStateError, InvalidConfigurationError, SaslAuthenticationError
from barnabas.security.sasl.plain import (
    MAX_MESSAGE,
    PlainClient,
    PlainCredentials,
    PlainCredentialsFile,
    PlainServer,
)

pytestmark = pytest.mark.mechanism("A05")

INVALID = "Authentication failed: Invalid username or password"
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20)


def server(**passwords: str) -> PlainServer:
    return PlainServer(PlainCredentials(passwords))


def refusal(token: bytes, **passwords: str) -> str:
    """The message that the client gets."""
    refusing = server(**passwords)
    with pytest.raises(SaslAuthenticationError) as caught:
        refusing.evaluate(token)
    assert not refusing.complete
    return str(caught.value)


@given(NAMES, NAMES)
def test_the_right_password_authenticates(name: str, password: str) -> None:
    client, accepting = PlainClient(name, password), server(**{name: password})
    assert accepting.evaluate(client.initial_response()) == b""
    assert accepting.complete
    assert (accepting.authorization_id, dict(accepting.negotiated)) == (name, {})
    assert client.evaluate(b"") is None
    assert client.complete


def test_an_unknown_user_and_a_wrong_password_are_told_apart_nowhere() -> None:
    assert refusal(b"\0alice\0wrong", alice="right") == INVALID
    assert refusal(b"\0nobody\0right", alice="right") == INVALID


def test_both_compare_a_digest_of_the_same_length(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[int, int]] = []

    def compare(left: bytes, right: bytes) -> bool:
        compared.append((len(left), len(right)))
        return False

    monkeypatch.setattr("barnabas.security.sasl.plain.hmac.compare_digest", compare)
    credentials = PlainCredentials({"alice": "right"})
    for name, password in (("alice", "x" * 1000), ("nobody", "x")):
        assert not credentials(name, password)
    assert compared == [(32, 32), (32, 32)]


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (b"\0\0secret", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"alice\0secret", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"a\0b\0c\0d\0e", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0alice\0\xff", "Invalid SASL/PLAIN response: it is not UTF-8"),
        (
            b"bob\0alice\0secret",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
    ],
)
def test_messages_that_are_refused(token: bytes, message: str) -> None:
    assert refusal(token, alice="secret") == message


def test_the_authorization_id_may_repeat_the_name() -> None:
    accepting = server(alice="secret")
    accepting.evaluate(b"alice\0alice\0secret")
    assert accepting.authorization_id == "alice"


def test_a_long_message_is_refused_unread() -> None:
    assert "more than the maximum" in refusal(b"\0alice\0" + b"x" * MAX_MESSAGE, alice="x" * MAX_MESSAGE)


def test_a_failing_callback_refuses(caplog: pytest.LogCaptureFixture) -> None:
    def broken(_name: str, _password: str) -> bool:
        raise OSError("the directory is down")

    failing = PlainServer(broken)
    with pytest.raises(SaslAuthenticationError, match="credentials for user could not be verified"):
        failing.evaluate(b"\0alice\0secret")
    assert "secret" not in caplog.text


@pytest.mark.parametrize("result", [None, 1, "yes"])
def test_only_true_authenticates(result: object) -> None:
    with pytest.raises(SaslAuthenticationError, match=INVALID):
        PlainServer(lambda _name, _password: result).evaluate(b"\0alice\0secret")  # type: ignore[arg-type,return-value]


def test_one_message_per_exchange() -> None:
    accepting, refusing = server(alice="secret"), server(alice="secret")
    accepting.evaluate(b"\0alice\0secret")
    with pytest.raises(SaslAuthenticationError):
        refusing.evaluate(b"\0alice\0wrong")
    for used in (accepting, refusing):
        with pytest.raises(IllegalSaslStateError):
            used.evaluate(b"\0alice\0secret")
    with pytest.raises(IllegalSaslStateError):
        _ = refusing.authorization_id


@given(st.binary(max_size=100))
def test_no_bytes_but_the_right_ones_authenticate(token: bytes) -> None:
    tried = server(alice="secret")
    try:
        tried.evaluate(token)
    except SaslAuthenticationError:
        assert not tried.complete
    else:
        assert token in {b"\0alice\0secret", b"alice\0alice\0secret"}


class TestClient:
    def test_settings_that_cannot_be_sent(self) -> None:
        for name, password in (("", "x"), ("x", ""), ("a\0b", "x"), ("x", "a\0b")):
            with pytest.raises(InvalidConfigurationError):
                PlainClient(name, password)

    def test_a_challenge_is_an_error(self) -> None:
        client = PlainClient("alice", "secret")
        with pytest.raises(IllegalSaslStateError):
            client.evaluate(b"")
        client.initial_response()
        with pytest.raises(SaslAuthenticationError, match="unexpected PLAIN challenge of 3 bytes"):
            client.evaluate(b"abc")
        assert not client.complete


class TestSources:
    def test_jaas_options(self) -> None:
        credentials = PlainCredentials.from_jaas(
            {"user_alice": "a", "username": "admin", "password": "b", "user_": "c"}
        )
        assert credentials("alice", "a")
        assert not credentials("admin", "b")

    def test_a_file_is_read_again_after_a_change(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        path = tmp_path / "users"
        path.touch(0o600)
        path.write_text("# who may come\n\nalice=se=cret\n bob = with blanks \n")
        credentials = PlainCredentialsFile(path)
        assert credentials("alice", "se=cret")
        assert credentials("bob", " with blanks ")
        path.write_text("carol=another secret\n")
        assert credentials("carol", "another secret")
        assert not credentials("alice", "se=cret")
        with caplog.at_level(logging.ERROR):
            path.write_text("carol\n")
            assert credentials("carol", "another secret")
            path.unlink()
            assert credentials("carol", "another secret")
        assert "line 1: expected name=password" in caplog.text
        assert "cannot read credentials file" in caplog.text
        assert "another" not in caplog.text + repr(credentials)

    def test_a_user_twice(self, tmp_path: Path) -> None:
        path = tmp_path / "users"
        path.touch(0o600)
        path.write_text("alice=a\nalice=b\n")
        with pytest.raises(InvalidConfigurationError, match="line 2: user alice is listed twice"):
            PlainCredentialsFile(path)


@pytest.mark.mechanism("A12")
class TestSecrets:
    def test_a_file_that_everybody_may_read_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "users"
        path.write_text("alice=secret\n")
        path.chmod(0o644)
        with pytest.raises(InvalidConfigurationError, match=r"accessible to every user .*0644.*chmod 600"):
            PlainCredentialsFile(path)

    def test_a_file_that_its_group_may_read_is_logged(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        path = tmp_path / "users"
        path.write_text("alice=secret\n")
        path.chmod(0o640)
        PlainCredentialsFile(path)
        assert "Others may read or change the credentials file" in caplog.text

    def test_no_secret_in_a_repr(self) -> None:
        used = server(alice="hush-hush")
        client = PlainClient("alice", "hush-hush")
        used.evaluate(client.initial_response())
        credentials = PlainCredentials({"alice": "hush-hush"})
        assert "hush" not in repr((used, client, credentials, vars(credentials), vars(used)))
