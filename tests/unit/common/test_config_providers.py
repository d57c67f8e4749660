"""Config providers: where values come from, what is refused, and that no error shows a secret."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.config.dynamic_broker_config import DynamicBrokerConfig
from barnabas.broker.config.kafka_config import KafkaConfig
from barnabas.clients.admin import AdminClientConfig
from barnabas.clients.producer.producer_config import ProducerConfig
from barnabas.common.config_def import ConfigError
from barnabas.common.config_providers import MAX_FILE_BYTES, resolve_variables

pytestmark = pytest.mark.mechanism("A12")

JAVA = "org.apache.kafka.common.config.provider"
PROVIDERS = {
    "config.providers": "file, dir,env",
    "config.providers.file.class": f"{JAVA}.FileConfigProvider",
    "config.providers.dir.class": "DirectoryConfigProvider",
    "config.providers.env.class": f"{JAVA}.EnvVarConfigProvider",
}
SECRET = "s3cret-value"


@pytest.fixture
def secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a properties file and a file for one secret, and a variable in the environment."""
    directory = tmp_path / "secrets"
    directory.mkdir()
    (directory / "tls.properties").write_text(f"keystore.password = {SECRET}\nempty=\nport=9093\n")
    (directory / "password").write_text(f"{SECRET}\n")
    for file in directory.iterdir():
        file.chmod(0o600)
    monkeypatch.setenv("TOKEN_KEY", SECRET)
    return directory


def test_each_provider(secrets: Path) -> None:
    found = resolve_variables(
        {
            **PROVIDERS,
            "a": f"${{file:{secrets}/tls.properties:keystore.password}}",
            "b": f"${{dir:{secrets}:password}}",
            "c": "${env:TOKEN_KEY}",
            "d": f"x-${{env:TOKEN_KEY}}-${{file:{secrets}/tls.properties:port}}-y",
            "e": f"${{file:{secrets}/tls.properties:empty}}",
            "f": "no variable, ${vault:path:key} and $HOME",
            "g": 7,
        }
    )
    assert {name: found[name] for name in "abcdefg"} == {
        "a": SECRET,
        "b": f"{SECRET}\n",
        "c": SECRET,
        "d": f"x-{SECRET}-9093-y",
        "e": "",
        "f": "no variable, ${vault:path:key} and $HOME",
        "g": 7,
    }


def test_without_providers_nothing_is_a_variable() -> None:
    assert resolve_variables({"a": "${env:HOME}"}) == {"a": "${env:HOME}"}


def test_a_value_is_not_searched_for_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTER", "${env:INNER}")
    monkeypatch.setenv("INNER", "inner")
    assert resolve_variables({**PROVIDERS, "a": "${env:OUTER}"})["a"] == "${env:INNER}"


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        ("${file:SECRETS/none.properties:key}", "No such file"),
        ("${file:SECRETS/tls.properties:other}", r"a has the variable .*, which has no value"),
        ("${file:SECRETS:key}", "Is a directory"),
        ("${dir:SECRETS:other}", "which has no value"),
        ("${dir:SECRETS/password:x}", "is not a directory"),
        ("${dir:SECRETS:../secrets/password}", "must not have directories"),
        ("${env:NO_SUCH_VARIABLE}", "which has no value"),
        ("${env:path:TOKEN_KEY}", "has no paths"),
    ],
)
def test_a_variable_without_a_value(secrets: Path, variable: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        resolve_variables({**PROVIDERS, "a": variable.replace("SECRETS", str(secrets)), "b": "${env:TOKEN_KEY}"})
    assert SECRET not in str(raised.value)


def test_paths_can_be_limited(secrets: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.properties"
    outside.write_text(f"key={SECRET}")
    (secrets / "link").symlink_to(outside)
    limited = {
        **PROVIDERS,
        "config.providers.file.param.allowed.paths": f"{secrets}, {tmp_path / 'secrets' / 'password'}",
        "config.providers.dir.param.allowed.paths": str(secrets),
    }
    inside = f"${{file:{secrets}/tls.properties:port}}"
    assert resolve_variables({**limited, "a": inside, "b": f"${{dir:{secrets}:password}}"})["a"] == "9093"
    for variable in (
        f"${{file:{outside}:key}}",
        f"${{file:{secrets}/../outside.properties:key}}",
        f"${{file:{secrets}/link:key}}",
        f"${{dir:{secrets}:link}}",
        f"${{dir:{tmp_path}:outside.properties}}",
    ):
        with pytest.raises(ConfigError, match=r"is not in allowed\.paths") as raised:
            resolve_variables({**limited, "a": variable})
        assert SECRET not in str(raised.value)


def test_variables_of_the_environment_can_be_limited(secrets: Path) -> None:
    assert secrets.exists()
    limited = {**PROVIDERS, "config.providers.env.param.allowlist.pattern": "KAFKA_.*"}
    with pytest.raises(ConfigError, match="which has no value"):
        resolve_variables({**limited, "a": "${env:TOKEN_KEY}"})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"config.providers": "vault"}, r"config\.providers\.vault\.class is missing"),
        ({"config.providers": "v", "config.providers.v.class": "nowhere.Provider"}, "there is no such class"),
        ({"config.providers": "v", "config.providers.v.class": "Unheard"}, "known ones are FileConfigProvider"),
        ({"config.providers.file.param.allowed.paths": "relative"}, "absolute paths: relative"),
        ({"config.providers.file.param.allowed.paths": "/no/such/path"}, "does not exist"),
        ({"config.providers.env.param.allowlist.pattern": "("}, "not a regular expression"),
    ],
)
def test_providers_that_make_no_sense(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve_variables({**PROVIDERS, **settings})


def test_a_file_that_is_too_large_or_no_properties_file(secrets: Path) -> None:
    (secrets / "large").write_bytes(b"x" * (MAX_FILE_BYTES + 1))
    (secrets / "odd").write_text(f"key={SECRET}\\u12")
    for name, message in (("large", "more than"), ("odd", "is not a properties file")):
        (secrets / name).chmod(0o600)
        with pytest.raises(ConfigError, match=message) as raised:
            resolve_variables({**PROVIDERS, "a": f"${{file:{secrets}/{name}:key}}"})
        assert SECRET not in str(raised.value)


def test_a_file_that_others_may_read_is_warned_about(secrets: Path, caplog: pytest.LogCaptureFixture) -> None:
    setting = {**PROVIDERS, "a": f"${{dir:{secrets}:password}}"}
    with caplog.at_level(logging.WARNING):
        resolve_variables(setting)
        assert not caplog.records
        (secrets / "password").chmod(0o644)
        resolve_variables(setting)
    assert "Other users may read" in caplog.text
    assert SECRET not in caplog.text


class Vault:
    """A provider of somebody else."""

    def configure(self, parameters: Mapping[str, str]) -> None:
        self.url = parameters["url"]

    def get(self, path: str, keys: Iterable[str]) -> Mapping[str, str]:
        return {key: f"{self.url}/{path}/{key}" for key in keys}


def test_a_class_of_ones_own() -> None:
    found = resolve_variables(
        {
            "config.providers": ["vault"],
            "config.providers.vault.class": f"{__name__}.Vault",
            "config.providers.vault.param.url": "https://vault",
            "a": "${vault:kafka:password}",
        }
    )
    assert found["a"] == "https://vault/kafka/password"


@given(st.text(max_size=60), st.text(alphabet="${}:env fileTOKEN/", max_size=40))
def test_any_text_is_resolved_or_refused(first: str, second: str) -> None:
    for text in (first, second, first + second):
        try:
            resolve_variables({**PROVIDERS, "a": text})
        except ConfigError:
            continue


NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "controller.quorum.voters": "1@127.0.0.1:0",
    "log.dirs": "unused",
}


def test_a_broker_resolves_its_file(secrets: Path, caplog: pytest.LogCaptureFixture) -> None:
    variable = f"${{file:{secrets}/tls.properties:keystore.password}}"
    config = KafkaConfig.from_properties({**NODE, **PROVIDERS, "delegation.token.secret.key": variable})
    key = config.delegation_token_secret_key
    assert key is not None
    assert key.value == SECRET
    assert SECRET not in repr(config)
    assert config.originals["delegation.token.secret.key"] == variable
    assert "config.providers" not in caplog.text, "no warning of unknown settings"


def test_dynamic_settings_have_variables_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THREADS", "3")
    monkeypatch.setenv("LITERAL", "${env:THREADS}")
    static = KafkaConfig.from_properties({**NODE, **PROVIDERS, "delegation.token.secret.key": "${env:LITERAL}"})
    dynamic = DynamicBrokerConfig(static)
    dynamic.update_configs(broker={"num.io.threads": "5"}, default={})
    key = dynamic.current.delegation_token_secret_key
    assert key is not None
    assert key.value == "${env:THREADS}", "resolved once, however often settings change"
    dynamic.update_configs(broker={"max.connections.per.ip.overrides": "192.0.2.7:${env:THREADS}"})
    assert dynamic.current.value("max.connections.per.ip.overrides") == "192.0.2.7:3"
    assert dynamic.current_dynamic_broker_configs["max.connections.per.ip.overrides"].endswith("${env:THREADS}")


def test_clients_resolve_their_settings(secrets: Path) -> None:
    assert secrets.exists()
    given = {"bootstrap.servers": "localhost:9092", **PROVIDERS, "client.id": "${env:TOKEN_KEY}"}
    assert ProducerConfig.of(given).client_id == SECRET
    assert AdminClientConfig.of(given).client_id == SECRET
