"""Combines files and options of a command line into the settings of a node."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.cli.console import UsageError, reason
from barnabas.cli.data_dir import default_data_dir
from barnabas.common.properties import PropertiesError, load_properties

if TYPE_CHECKING:
    from barnabas.broker.config.kafka_config import KafkaConfig

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 9092


def parse_overrides(overrides: Iterable[str]) -> dict[str, str]:
    """Parses ``["num.partitions=3"]`` into a mapping; the last value of a key wins."""
    parsed: dict[str, str] = {}
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"--override must have the form key=value: {override!r}")
        parsed[key.strip()] = value.strip()
    return parsed


def read_properties(path: Path) -> dict[str, str]:
    """Reads a ``server.properties`` file."""
    try:
        return dict(load_properties(path))
    except FileNotFoundError:
        raise UsageError(f"file not found: {path}") from None
    except (OSError, PropertiesError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {reason(error)}") from None


def node_settings(
    config: Path | None,
    overrides: dict[str, str],
    data_dir: Path | None,
    host: str | None = None,
    port: int | None = None,
) -> KafkaConfig:
    """Returns the settings of a node from a file and options, or from options alone."""
    from barnabas.broker.config.kafka_config import KafkaConfig
    from barnabas.common.config_def import ConfigError

    if config is not None and (host is not None or port is not None):
        # The file may have several listeners, and the options do not say which one they mean.
        raise UsageError("--host and --port cannot be used with --config: use --override listeners=... instead")
    try:
        if config is None:
            place = (data_dir or default_data_dir()).expanduser().absolute()
            return KafkaConfig.for_zero_configuration(
                place,
                host=DEFAULT_HOST if host is None else host,
                port=DEFAULT_PORT if port is None else port,
                overrides=overrides,
            )
        if data_dir is not None:
            overrides = {"log.dirs": str(data_dir.expanduser().absolute()), **overrides}
        return KafkaConfig.from_properties(read_properties(config) | overrides)
    except ConfigError as error:
        raise UsageError(str(error)) from None
