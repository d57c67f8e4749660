"""``barnabas container``: runs a broker in a container, configured by the variables of Apache Kafka's image.

    KAFKA_NUM_PARTITIONS=3                   num.partitions; "_" stands for ".", "__" for "_", "___" for "-"
    KAFKA_ADVERTISED_LISTENERS=...           the addresses for clients; also the listeners, without KAFKA_LISTENERS
    CLUSTER_ID=...                           for data directories that are not formatted yet
    KAFKA_LOG4J_ROOT_LOGLEVEL=WARN           the log level
    KAFKA_SSL_KEYSTORE_FILENAME=...          a file in /etc/kafka/secrets; ..._CREDENTIALS: the file of its password
    /mnt/shared/config/server.properties     a file with settings; variables override it

If ``process.roles`` is set, the node has exactly the given settings. Otherwise the container is a single node, broker
and controller, and the given settings override its defaults; Apache Kafka's image uses such defaults only if no setting
is given. Variables for a Java virtual machine have no effect, and a warning names them.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas.cli.arguments import add_command
from barnabas.cli.console import UsageError, reason
from barnabas.cli.data_dir import default_data_dir
from barnabas.cli.logs import configure_logging
from barnabas.cli.settings import read_properties
from barnabas.cli.start import add_logging, run_broker

if TYPE_CHECKING:
    from barnabas.broker.config.kafka_config import KafkaConfig
    from barnabas.cli.arguments import Commands

logger = logging.getLogger(__name__)

DESCRIPTION: Final = """\
Runs a broker that is configured by variables (KAFKA_NODE_ID, KAFKA_ADVERTISED_LISTENERS, CLUSTER_ID, ...) and by
/mnt/shared/config/server.properties, in the same way as Apache Kafka's image. Formats empty data directories."""

PREFIX: Final = "KAFKA_"
MOUNTED: Final = Path("/mnt/shared/config")
SECRETS: Final = Path("/etc/kafka/secrets")
DEFAULT_CLUSTER_ID: Final = "5L6g3nShT-eMCtK--X86sw"
"""The default of Apache Kafka's image: containers without CLUSTER_ID belong to the same cluster."""
HEALTH: Final = "127.0.0.1:9644"
"""The HTTP address that the image's health check uses."""
LOG_LEVEL: Final = "KAFKA_LOG4J_ROOT_LOGLEVEL"
LEVELS: Final = {
    "TRACE": "debug",
    "DEBUG": "debug",
    "INFO": "info",
    "WARN": "warning",
    "ERROR": "error",
    "FATAL": "error",
}
FOR_JAVA: Final = frozenset(
    {
        "KAFKA_GC_LOG_OPTS",
        "KAFKA_HEAP_OPTS",
        "KAFKA_JMX_HOSTNAME",
        "KAFKA_JMX_OPTS",
        "KAFKA_JMX_PORT",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_LOG4J_LOGGERS",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_OPTS",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL",
    }
)
NO_SETTINGS: Final = FOR_JAVA | {LOG_LEVEL, "KAFKA_VERSION"}
STORES: Final = ("keystore", "truststore")


def add_container(commands: Commands) -> None:
    parser = add_command(commands, "container", container_command, "run a broker in a container", DESCRIPTION)
    add_logging(parser)


def container_command(log_level: str | None, log_format: str) -> None:
    """Runs a broker with the settings in the variables of this process."""
    log = configure_logging(log_level or level_of(os.environ), log_format)
    settings = container_settings(os.environ, MOUNTED, SECRETS)
    without_effect = sorted(FOR_JAVA & os.environ.keys())
    if without_effect:
        logger.warning(
            "These variables have no effect, because there is no Java virtual machine: %s", ", ".join(without_effect)
        )
    run_broker(
        settings,
        lambda: format_directories(settings, os.environ.get("CLUSTER_ID", "")),
        log,
        quiet=log_format == "json",
    )


def format_directories(settings: KafkaConfig, cluster_id: str) -> None:
    """Formats unformatted directories with this cluster id; checks the id of the others."""
    from barnabas.broker.node.storage_formatter import format_if_empty, format_storage

    if cluster_id:
        format_storage(settings, cluster_id=cluster_id, ignore_formatted=True)
    else:
        format_if_empty(settings, cluster_id=DEFAULT_CLUSTER_ID)


def container_settings(environment: Mapping[str, str], mounted: Path, secrets: Path) -> KafkaConfig:
    """Returns the settings of the node from a mounted file and variables."""
    from barnabas.broker.config.kafka_config import KafkaConfig, zero_configuration
    from barnabas.common.config_def import ConfigError

    file = mounted / "server.properties"
    given = (read_properties(file) if file.exists() else {}) | settings_of(environment)
    given |= stores_of(environment, secrets)
    roles = given.get("process.roles", "broker,controller")
    if roles == "controller":
        if given.pop("advertised.listeners", ""):
            raise UsageError("KAFKA_ADVERTISED_LISTENERS must not be set for a node that is only a controller")
    elif given.get("advertised.listeners") and not given.get("listeners"):
        given["listeners"] = everywhere(given["advertised.listeners"])
    given.setdefault("barnabas.http.listener", HEALTH)
    data_dir = default_data_dir()
    try:
        if "process.roles" in given:
            return KafkaConfig.from_properties({"log.dirs": str(data_dir), **given})
        if "listeners" not in given:
            given.setdefault("advertised.listeners", "PLAINTEXT://localhost:9092")
        elif "CONTROLLER://" not in given["listeners"]:
            given["listeners"] += ",CONTROLLER://127.0.0.1:0"
        return KafkaConfig.from_properties(zero_configuration(data_dir, "", 9092, 0, given))
    except ConfigError as error:
        raise UsageError(str(error)) from None


def settings_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Converts variables to settings.

    >>> settings_of({"KAFKA_NODE_ID": "3", "KAFKA_A_B__C___D": "x", "KAFKA_OPTS": "-Xmx1g", "HOME": "/"})
    {'node.id': '3', 'a.b_c-d': 'x'}
    """
    found: dict[str, str] = {}
    for name, value in environment.items():
        if not name.startswith(PREFIX) or name in NO_SETTINGS or _is_of_a_store(name):
            continue
        key = name.removeprefix(PREFIX).lower()
        found[re.sub("_+", lambda match: _SEPARATORS.get(len(match[0]), match[0]), key)] = value
    return found


_SEPARATORS: Final = {1: ".", 2: "_", 3: "-"}


def _is_of_a_store(name: str) -> bool:
    return name.startswith("KAFKA_SSL_") and name.endswith(("_FILENAME", "_CREDENTIALS"))


def stores_of(environment: Mapping[str, str], secrets: Path) -> dict[str, str]:
    """Returns the settings of key store and trust store; their files and passwords are in a directory of secrets."""
    found: dict[str, str] = {}
    for store in STORES:
        name = environment.get(f"KAFKA_SSL_{store.upper()}_FILENAME")
        if name:
            found[f"ssl.{store}.location"] = str(_secret(secrets, name, f"KAFKA_SSL_{store.upper()}_FILENAME"))
    for setting, variable in (
        ("ssl.keystore.password", "KAFKA_SSL_KEYSTORE_CREDENTIALS"),
        ("ssl.key.password", "KAFKA_SSL_KEY_CREDENTIALS"),
        ("ssl.truststore.password", "KAFKA_SSL_TRUSTSTORE_CREDENTIALS"),
    ):
        name = environment.get(variable)
        if name:
            path = _secret(secrets, name, variable)
            try:
                found[setting] = path.read_text(encoding="utf-8").rstrip("\n")
            except OSError as error:
                raise UsageError(f"{variable}: {reason(error)}") from None
    return found


def _secret(secrets: Path, name: str, variable: str) -> Path:
    path = secrets / name
    if not path.exists():
        raise UsageError(f"{variable}: file not found: {path}")
    return path


def everywhere(listeners: str) -> str:
    """Makes listeners bind to all interfaces.

    >>> everywhere("PLAINTEXT://kafka.example.com:9092,V6://[::1]:9093")
    'PLAINTEXT://0.0.0.0:9092,V6://0.0.0.0:9093'
    """
    return re.sub(r"://(\[[^\]]*\]|[^:,]*):", "://0.0.0.0:", listeners)


def level_of(environment: Mapping[str, str]) -> str | None:
    """Converts the level of a Java logger; raises `UsageError` if the level is unknown."""
    level = environment.get(LOG_LEVEL, "")
    if level and level.upper() not in LEVELS:
        raise UsageError(f"{LOG_LEVEL} must be one of {', '.join(LEVELS)}: {level!r}")
    return LEVELS[level.upper()] if level else None
