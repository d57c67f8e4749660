"""The options of every command that connects: the address, a file with settings, and single settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas import EmbeddedBroker
from barnabas.cli.arguments import ArgumentParser
from barnabas.cli.cluster import DEFAULT_BOOTSTRAP, Cluster, add_cluster
from barnabas.cli.console import UsageError
from barnabas.cli.main import make_parser, run
from unit.cli.test_command_tree import LEAVES

pytestmark = pytest.mark.mechanism("A13")

SECRET = "open-sesame"


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BARNABAS_BOOTSTRAP", raising=False)
    monkeypatch.delenv("BARNABAS_COMMAND_CONFIG", raising=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "client.properties"
    path.write_text(
        "bootstrap.servers=of-file:1\nsecurity.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nacks=1\nsome.plug.in=x\n"
        f"sasl.username=alice\nsasl.password={SECRET}\n"
    )
    return path


def parsed(*arguments: str) -> Cluster:
    parser = ArgumentParser()
    add_cluster(parser)
    cluster: Cluster = parser.parse_args(arguments).cluster
    return cluster


def test_the_address() -> None:
    assert parsed().bootstrap == DEFAULT_BOOTSTRAP
    assert parsed("-b", "a:1,b:2").bootstrap == "a:1,b:2"


def test_the_address_may_be_in_the_file(file: Path) -> None:
    assert parsed("--command-config", str(file)).bootstrap == "of-file:1"
    assert parsed("--command-config", str(file), "-X", "bootstrap.servers=of-option:2").bootstrap == "of-option:2"
    assert parsed("--command-config", str(file), "-b", "a:1").bootstrap == "a:1"


def test_the_environment_replaces_options(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARNABAS_COMMAND_CONFIG", str(file))
    assert parsed().properties()["security.protocol"] == "SASL_SSL"
    monkeypatch.setenv("BARNABAS_BOOTSTRAP", "of-environment:3")
    assert parsed().bootstrap == "of-environment:3"
    assert parsed("-b", "a:1").bootstrap == "a:1"


def test_the_command_line_overrides_the_file_in_any_order(file: Path) -> None:
    option, setting = ("--command-config", str(file)), ("-X", "sasl.mechanism=SCRAM-SHA-256")
    for arguments in ((*option, *setting), (*setting, *option)):
        found = parsed(*arguments).properties({"acks": "all", "client.id": "me"})
        assert found["sasl.mechanism"] == "SCRAM-SHA-256"
        assert (found["acks"], found["client.id"], found["some.plug.in"]) == ("1", "me", "x")


def test_a_value_may_have_equals_signs() -> None:
    jaas = 'x.PlainLoginModule required username="a" password="b=c";'
    assert parsed("-X", f"sasl.jaas.config={jaas}").properties()["sasl.jaas.config"] == jaas


def test_what_is_wrong_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"did you mean security\.protocol"):
        parsed("-X", "security.protcol=SSL").properties()
    with pytest.raises(UsageError, match="a setting must have the form name=value: 'ssl'"):
        parsed("-X", "ssl")
    with pytest.raises(UsageError, match=f"file not found: {tmp_path}/none"):
        parsed("--command-config", f"{tmp_path}/none").properties()


def test_a_file_with_credentials_that_everybody_may_read(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.chmod(0o640)
    parsed("--command-config", str(file)).properties()
    assert not capsys.readouterr().err
    file.chmod(0o644)
    parsed("--command-config", str(file)).properties()
    assert capsys.readouterr().err == (
        f"warning: every user of this machine may read {file}, which has credentials: chmod 600\n"
    )
    file.write_text("security.protocol=SSL\n")
    parsed("--command-config", str(file)).properties()
    assert not capsys.readouterr().err


def test_no_secret_is_shown(file: Path) -> None:
    cluster = parsed("--command-config", str(file), "-X", f"ssl.key.password={SECRET}")
    assert cluster.properties()
    assert SECRET not in repr(cluster)


def test_spark_gets_the_security_settings_of_the_file_and_all_of_the_command_line(file: Path) -> None:
    options = parsed("--command-config", str(file), "-X", "fetch.min.bytes=5").properties_for_spark()
    assert options == {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "alice",
        "kafka.sasl.password": SECRET,
        "kafka.fetch.min.bytes": "5",
    }


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_every_command_that_connects_has_the_options(path: tuple[str, ...]) -> None:
    options = {name for action in LEAVES[path]._actions for name in action.option_strings}
    if "--bootstrap-server" in options:
        assert {"-X", "--command-property", "--command-config"} <= options


@pytest.mark.parametrize(
    "command", [("topics", "list"), ("quotas", "list"), ("consume", "t"), ("produce", "t"), ("perf", "consume")]
)
def test_a_setting_reaches_the_client_of_each_kind(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    further = ("--topic", "t", "--num-records", "1") if command[0] == "perf" else ()
    assert run([*command, *further, "-X", "security.protocol=TLS"]) == 2
    assert "security.protocol cannot be TLS" in capsys.readouterr().err


def test_settings_of_other_programs_do_not_disturb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "client.properties"
    path.write_text("security.protocol=PLAINTEXT\nrequest.timeout.ms=60000\nacks=1\n")
    with EmbeddedBroker() as broker:
        arguments = ["-b", broker.bootstrap_servers, "--command-config", str(path)]
        assert run(["topics", "create", "t", *arguments]) == 0
        assert run(["topics", "list", "--json", *arguments]) == 0
        assert run(["quotas", "list", "--json", *arguments]) == 0
        assert run(["consume", "t", "--from-beginning", "--exit", *arguments]) == 0
    assert '"t"' in capsys.readouterr().out


def test_each_parser_has_its_own_cluster() -> None:
    first = make_parser("topics").parse_args(["topics", "list", "-b", "a:1"]).cluster
    second = make_parser("topics").parse_args(["topics", "list"]).cluster
    assert (first.bootstrap, second.bootstrap) == ("a:1", DEFAULT_BOOTSTRAP)
