"""Connects commands to a cluster and reports connection errors.

Every command that connects takes the same three options, as Kafka's tools do (KIP-1147):

    barnabas topics list -b kafka.example.com:9093 --command-config client.properties -X sasl.mechanism=PLAIN

``$BARNABAS_BOOTSTRAP`` and ``$BARNABAS_COMMAND_CONFIG`` replace the first two.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import stat
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from barnabas.cli.arguments import ArgumentParser
from barnabas.cli.console import CommandError, UsageError, say

if TYPE_CHECKING:
    from barnabas.clients.common.blocking_client import BlockingClient
    from barnabas.common.errors import InvalidConfigurationError

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
HTTP_TIMEOUT_S: Final = 10


class Cluster:
    """The address of a cluster and the client settings to connect to it. Shows no values: they may be secrets."""

    __slots__ = ("_bootstrap", "_file", "_given", "_path")

    def __init__(self, bootstrap: str | None = None, path: str | None = None) -> None:
        self._bootstrap = os.environ.get("BARNABAS_BOOTSTRAP") if bootstrap is None else bootstrap
        self._path = os.environ.get("BARNABAS_COMMAND_CONFIG") if path is None else path
        self._file: dict[str, str] | None = None
        """The settings of the file, once it has been read."""
        self._given: dict[str, str] = {}
        """The settings of the command line, which override those of the file."""

    @property
    def bootstrap(self) -> str:
        """The bootstrap servers, separated by commas."""
        if self._bootstrap is not None:
            return self._bootstrap
        return {**self._of_file(), **self._given}.get("bootstrap.servers", DEFAULT_BOOTSTRAP)

    @bootstrap.setter
    def bootstrap(self, servers: str) -> None:
        self._bootstrap = servers

    @property
    def is_default(self) -> bool:
        """Whether no cluster was named, so the default address applies."""
        return self._bootstrap is None and "bootstrap.servers" not in {**self._of_file(), **self._given}

    def use_file(self, path: str) -> None:
        self._path, self._file = path, None

    def set(self, pair: str) -> None:
        """Takes a setting of the form ``name=value``."""
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"-X: a setting must have the form name=value: {pair!r}")
        self._given[name.strip()] = value

    def properties(self, defaults: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Returns the settings of a client, by Kafka's names. They override the defaults."""
        self._check_names()
        return {**(defaults or {}), **self._of_file(), **self._given, "bootstrap.servers": self.bootstrap}

    def properties_for_spark(self) -> dict[str, str]:
        """Returns options of the source: the security settings of the file, and all settings of the command line."""
        from barnabas.clients.common.client_security import SECURITY
        from barnabas.clients.common.security_aliases import NAMES

        self._check_names()
        secured = {name: value for name, value in self._of_file().items() if name in SECURITY.keys or name in NAMES}
        return {f"kafka.{name}": value for name, value in {**secured, **self._given}.items()}

    def _of_file(self) -> dict[str, str]:
        if self._file is None:
            self._file = self._read(Path(self._path).expanduser()) if self._path else {}
        return self._file

    @staticmethod
    def _read(path: Path) -> dict[str, str]:
        from barnabas.cli.settings import read_properties

        found = read_properties(path)
        # The group may read it: a service often gets its secrets that way.
        if os.name == "posix" and path.stat().st_mode & stat.S_IROTH and any(map(is_secret, found)):
            say(f"warning: every user of this machine may read {path}, which has credentials: chmod 600\n", sys.stderr)
        return found

    def _check_names(self) -> None:
        """Refuses unknown settings of the command line. A file may have settings for other programs."""
        if not self._given:
            return
        from barnabas.clients.admin.admin_config import CONFIG as ADMIN
        from barnabas.clients.common.security_aliases import NAMES, OBJECTS
        from barnabas.clients.consumer.consumer_config import CONFIG as CONSUMER
        from barnabas.clients.producer.producer_config import CONFIG as PRODUCER

        known = {*ADMIN.keys, *CONSUMER.keys, *PRODUCER.keys, *NAMES} - OBJECTS
        known |= {"key.serializer", "value.serializer", "key.deserializer", "value.deserializer"}
        for name in self._given:
            if name not in known:
                import difflib

                near = difflib.get_close_matches(name, known, 1)
                raise UsageError(f"-X: unknown setting {name}" + (f"; did you mean {near[0]}?" if near else ""))

    def __repr__(self) -> str:
        return f"Cluster({self._bootstrap}, {self._path}, {', '.join(self._given)})"


def is_secret(name: str) -> bool:
    """Returns whether a setting is a credential."""
    return "password" in name or "secret" in name or name in {"sasl.jaas.config", "ssl.keystore.key", "ssl.key.pem"}


class _ClusterOption(argparse.Action, ABC):
    """An option that changes the `Cluster` of a command."""

    def __call__(
        self, _parser: argparse.ArgumentParser, namespace: argparse.Namespace, value: Any, *_option: object
    ) -> None:
        self.apply(getattr(namespace, self.dest), value)

    @abstractmethod
    def apply(self, cluster: Cluster, value: str) -> None:
        """Applies the value of the option."""


class _Servers(_ClusterOption):
    def apply(self, cluster: Cluster, value: str) -> None:
        cluster.bootstrap = value


class _File(_ClusterOption):
    def apply(self, cluster: Cluster, value: str) -> None:
        cluster.use_file(value)


class _Setting(_ClusterOption):
    def apply(self, cluster: Cluster, value: str) -> None:
        cluster.set(value)


def add_cluster(parser: ArgumentParser, *setting_options: str) -> None:
    """Adds the options of every command that connects to a cluster; the command gets a `Cluster`.

    ``setting_options`` are further names of ``-X``.
    """
    parser.set_defaults(cluster=Cluster())
    group = parser.add_argument_group("cluster")
    group.add_argument(
        "-b",
        "--bootstrap-server",
        dest="cluster",
        action=_Servers,
        metavar="HOST:PORT",
        help=f"a broker, or several separated by commas; default: $BARNABAS_BOOTSTRAP, or {DEFAULT_BOOTSTRAP}",
    )
    group.add_argument(
        "--command-config",
        dest="cluster",
        action=_File,
        metavar="FILE",
        help="a properties file with client settings (security.protocol, ...); default: $BARNABAS_COMMAND_CONFIG",
    )
    group.add_argument(
        "-X",
        "--command-property",
        *setting_options,
        dest="cluster",
        action=_Setting,
        metavar="NAME=VALUE",
        help="a client setting that overrides the file; may be repeated",
    )


@contextmanager
def connected(cluster: Cluster) -> Iterator[BlockingClient]:
    """Yields a client for the cluster. An error of the client ends the command."""
    from barnabas.clients.common.blocking_client import BlockingClient, ClientError
    from barnabas.clients.common.client_security import ClientSecurity
    from barnabas.common.errors import AuthenticationError, InvalidConfigurationError

    # The command reports the client's error once, so the client's own warnings are dropped.
    logging.getLogger("barnabas").addHandler(logging.NullHandler())
    try:
        factory = ClientSecurity(cluster.properties()).channel_factory()
        client = BlockingClient(cluster.bootstrap, client_id="barnabas-cli", channel_factory=factory)
    except InvalidConfigurationError as error:
        raise invalid_settings(error) from None
    with client:
        try:
            yield client
        except (ClientError, AuthenticationError) as error:
            raise CommandError(str(error)) from None


def invalid_settings(error: InvalidConfigurationError) -> CommandError:
    """Returns the error of a command whose client could not be created: a wrong setting, or a failed login."""
    from barnabas.common.errors import AuthenticationError

    if isinstance(error, AuthenticationError):
        return CommandError(str(error))
    name = getattr(error, "name", None)
    return UsageError(f"--bootstrap-server: {error}" if name in {None, "bootstrap.servers"} else str(error))


def http_document(address: str, path: str) -> dict[str, Any]:
    """Reads a JSON page of a broker's HTTP endpoint; raises `CommandError` if it cannot."""
    base = address if "://" in address else f"http://{address}"
    url = f"{base.rstrip('/')}{path}"
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"not the address of an HTTP endpoint: {address!r}")
    import urllib.error  # takes as long to load as the rest of the command line
    import urllib.request

    try:
        with urllib.request.urlopen(url, timeout=HTTP_TIMEOUT_S) as response:  # noqa: S310 - http or https
            document = json.load(response)
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise CommandError(f"cannot read {url}: {reason}") from None
    if not isinstance(document, dict):
        raise CommandError(f"unexpected document at {url}: this is not the HTTP endpoint of a broker")
    return document
