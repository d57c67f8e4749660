"""Config providers: settings whose values are in files or in the environment (A12, KIP-297, KIP-421).

A secret in ``server.properties`` is in every copy of the file. A variable is not a secret::

    config.providers=file,env
    config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider
    config.providers.file.param.allowed.paths=/etc/barnabas/secrets
    config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider

    ssl.keystore.password=${file:/etc/barnabas/secrets/tls.properties:keystore.password}
    delegation.token.secret.key=${env:TOKEN_KEY}

=========================== ============================== =========================================================
class                       variable                       value
=========================== ============================== =========================================================
``FileConfigProvider``      ``${name:file:key}``           the property ``key`` of a properties file
``DirectoryConfigProvider`` ``${name:directory:file}``     the whole content of a file
``EnvVarConfigProvider``    ``${name:VARIABLE}``           an environment variable
=========================== ============================== =========================================================

The classes have Kafka's names, with or without the Java package. Any other name is that of a Python class with
``configure(parameters)`` and ``get(path, keys)``.

A variable whose provider is not configured is an ordinary string. Other variables without a value are errors; Kafka
leaves them as they are, so that the text of the variable becomes the password. Errors never show values.

Dynamic settings may have variables, too, if they are strings: then a password is not in the metadata log.
"""

from __future__ import annotations

import logging
import os
import re
import stat
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol

from barnabas.common.config_def import ConfigError
from barnabas.common.properties import PropertiesError, parse_properties

logger = logging.getLogger(__name__)

CONFIG_PROVIDERS: Final = "config.providers"
PREFIX: Final = "config.providers."
ALLOWED_PATHS: Final = "allowed.paths"
ALLOWLIST_PATTERN: Final = "allowlist.pattern"
MAX_FILE_BYTES: Final = 1 << 20
"""The maximum size of a file with secrets: a larger one is the wrong file."""
_VARIABLE: Final = re.compile(r"\$\{([^}]*?):(([^}]*?):)?([^}]*?)\}")


class ConfigProvider(Protocol):
    """Looks up values."""

    def configure(self, parameters: Mapping[str, str]) -> None:
        """Receives the settings ``config.providers.<name>.param.*``, without this prefix."""
        ...

    def get(self, path: str, keys: Iterable[str]) -> Mapping[str, str]:
        """Returns the values of the keys that exist. Raises `ValueError` or `OSError` if the path is unusable."""
        ...


class FileConfigProvider:
    """Reads properties files."""

    def __init__(self) -> None:
        self._allowed = AllowedPaths("")

    def configure(self, parameters: Mapping[str, str]) -> None:
        self._allowed = AllowedPaths(parameters.get(ALLOWED_PATHS, ""))

    def get(self, path: str, keys: Iterable[str]) -> Mapping[str, str]:
        data = read_secret_file(self._allowed.check(path))
        try:
            found = parse_properties(data.decode("iso-8859-1"))
        except PropertiesError:
            raise ValueError(f"{path} is not a properties file") from None  # the message could show a line
        return {key: found[key] for key in keys if key in found}


class DirectoryConfigProvider:
    """Reads a file for each key, as Kubernetes and Docker mount secrets."""

    def __init__(self) -> None:
        self._allowed = AllowedPaths("")

    def configure(self, parameters: Mapping[str, str]) -> None:
        self._allowed = AllowedPaths(parameters.get(ALLOWED_PATHS, ""))

    def get(self, path: str, keys: Iterable[str]) -> Mapping[str, str]:
        directory = self._allowed.check(path)
        if not directory.is_dir():
            raise ValueError(f"{path} is not a directory")
        found = {}
        for key in keys:
            if key in {"", ".", ".."} or "/" in key:
                raise ValueError(f"the name of a file must not have directories: {key!r}")
            file = self._allowed.check(str(directory / key))
            if file.is_file():
                try:
                    found[key] = read_secret_file(file).decode()
                except UnicodeDecodeError:
                    raise ValueError(f"{file} is not UTF-8") from None
        return found


class EnvVarConfigProvider:
    """Reads environment variables."""

    def __init__(self) -> None:
        self._pattern = re.compile(".*")

    def configure(self, parameters: Mapping[str, str]) -> None:
        text = parameters.get(ALLOWLIST_PATTERN, "") or ".*"
        try:
            self._pattern = re.compile(text)
        except re.error as error:
            raise ValueError(f"{ALLOWLIST_PATTERN} is not a regular expression: {error}") from None

    def get(self, path: str, keys: Iterable[str]) -> Mapping[str, str]:
        if path:
            raise ValueError(f"the environment has no paths: {path!r}")
        return {key: os.environ[key] for key in keys if key in os.environ and self._pattern.fullmatch(key)}


class AllowedPaths:
    """The directories and files that variables may name; all of them if the list is empty.

    Links are followed before the check, so a link cannot lead out of an allowed directory.
    """

    def __init__(self, text: str) -> None:
        self._allowed = [self._existing(Path(one.strip())) for one in text.split(",") if one.strip()]

    @staticmethod
    def _existing(path: Path) -> Path:
        if not path.is_absolute():
            raise ValueError(f"{ALLOWED_PATHS} must have absolute paths: {path}")
        if not path.exists():
            raise ValueError(f"{ALLOWED_PATHS} has a path that does not exist: {path}")
        return path.resolve()

    def check(self, text: str) -> Path:
        """Returns the path; raises `ValueError` if it is not allowed."""
        path = Path(text)
        if self._allowed and not any(path.resolve().is_relative_to(allowed) for allowed in self._allowed):
            raise ValueError(f"{text} is not in {ALLOWED_PATHS}")
        return path


def read_secret_file(path: Path) -> bytes:
    """Reads a file with secrets, and warns if other users may read it."""
    with path.open("rb") as file:
        if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o007:
            logger.warning("Other users may read %s, which contains secrets: chmod 600 it", path)
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise ValueError(f"{path} has more than {MAX_FILE_BYTES} bytes")
    return data


KAFKA_CLASSES: Final[Mapping[str, type[ConfigProvider]]] = {
    "FileConfigProvider": FileConfigProvider,
    "DirectoryConfigProvider": DirectoryConfigProvider,
    "EnvVarConfigProvider": EnvVarConfigProvider,
}
_JAVA_PACKAGE: Final = "org.apache.kafka.common.config.provider."


def resolve_variables(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings with the values of their variables; raises `ConfigError` for one without a value.

    Values of variables are not searched for variables again.
    """
    providers = _make_providers(properties)
    if not providers:
        return dict(properties)
    wanted: dict[tuple[str, str], set[str]] = {}
    for name, value in properties.items():
        for provider, path, key in _variables(name, value, providers):
            wanted.setdefault((provider, path), set()).add(key)
    found = {place: _get(providers[place[0]], place, keys) for place, keys in wanted.items()}

    def resolved(name: str, value: str) -> str:
        def value_of(match: re.Match[str]) -> str:
            provider, path, key = match[1], match[3] or "", match[4]
            if provider not in providers:
                return match[0]
            values = found[provider, path]
            if key not in values:
                raise ConfigError(f"Configuration {name} has the variable {match[0]}, which has no value.", name=name)
            return values[key]

        return _VARIABLE.sub(value_of, value)

    return {
        name: resolved(name, value) if isinstance(value, str) and not name.startswith(CONFIG_PROVIDERS) else value
        for name, value in properties.items()
    }


def _variables(name: str, value: object, providers: Mapping[str, ConfigProvider]) -> Iterable[tuple[str, str, str]]:
    if isinstance(value, str) and "${" in value and not name.startswith(CONFIG_PROVIDERS):
        for match in _VARIABLE.finditer(value):
            if match[1] in providers:
                yield match[1], match[3] or "", match[4]


def _make_providers(properties: Mapping[str, Any]) -> dict[str, ConfigProvider]:
    given = properties.get(CONFIG_PROVIDERS) or ()
    names = [one.strip() for one in (given.split(",") if isinstance(given, str) else given)]
    return {name: _make_provider(name, properties) for name in names if name}


def _make_provider(name: str, properties: Mapping[str, Any]) -> ConfigProvider:
    setting = f"{PREFIX}{name}.class"
    chosen = str(properties.get(setting) or "").strip()
    if not chosen:
        raise ConfigError(f"Configuration {setting} is missing: config.providers names {name}.", name=setting)
    prefix = f"{PREFIX}{name}.param."
    parameters = {key.removeprefix(prefix): str(value) for key, value in properties.items() if key.startswith(prefix)}
    provider = _provider_class(setting, chosen)()
    try:
        provider.configure(parameters)
    except ValueError as error:
        raise ConfigError(f"Configuration {prefix}*: {error}.", name=setting) from None
    return provider


def _provider_class(setting: str, name: str) -> type[ConfigProvider]:
    known = KAFKA_CLASSES.get(name.removeprefix(_JAVA_PACKAGE))
    if known is not None:
        return known
    module, _, attribute = name.rpartition(".")
    try:
        found: type[ConfigProvider] = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError):
        names = ", ".join(KAFKA_CLASSES)
        raise ConfigError.invalid(setting, name, f"there is no such class; known ones are {names}") from None
    return found


def _get(provider: ConfigProvider, place: tuple[str, str], keys: set[str]) -> Mapping[str, str]:
    name, path = place
    try:
        return provider.get(path, keys)
    except OSError as error:
        raise ConfigError(f"The config provider {name} cannot read {path}: {error.strerror}.", name=name) from None
    except ValueError as error:
        raise ConfigError(f"The config provider {name} cannot be used: {error}.", name=name) from None
