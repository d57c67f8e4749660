"""Variables in ``kafka.*`` options, so that a query has no credentials in its options.

Spark keeps the options of a query in its plan, and passes them to executors. A variable is not a secret::

    .option("kafka.sasl.jaas.config", "${file:/etc/spark/kafka.properties:jaas}")
    .option("kafka.ssl.key.password", "${env:KEY_PASSWORD}")

Each process that connects to the cluster looks up the values for itself: the planning process beside the driver, and
the Python workers of the executors. So they are never part of a plan, of a checkpoint or of a task.

The providers ``env``, ``file`` and ``dir`` are Kafka's `EnvVarConfigProvider`, `FileConfigProvider` and
`DirectoryConfigProvider`, and need no configuration. ``kafka.config.providers``, with ``kafka.config.providers.*``,
replaces them: see `barnabas.common.config_providers`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from barnabas.common.config_providers import CONFIG_PROVIDERS, resolve_variables

_PROVIDERS: Final = {
    CONFIG_PROVIDERS: "env,file,dir",
    f"{CONFIG_PROVIDERS}.env.class": "EnvVarConfigProvider",
    f"{CONFIG_PROVIDERS}.file.class": "FileConfigProvider",
    f"{CONFIG_PROVIDERS}.dir.class": "DirectoryConfigProvider",
}


def is_provider_setting(name: str) -> bool:
    return name == CONFIG_PROVIDERS or name.startswith(f"{CONFIG_PROVIDERS}.")


def with_providers(properties: Mapping[str, str]) -> dict[str, str]:
    """Adds the three providers to settings that have variables, unless others are configured."""
    has_variables = any("${" in value for value in properties.values())
    if has_variables and CONFIG_PROVIDERS not in properties:
        return {**properties, **_PROVIDERS}
    return dict(properties)


def resolved(properties: Mapping[str, str]) -> dict[str, Any]:
    """Returns settings with the values of their variables, and without the settings of providers.

    Raises `ConfigError` for a variable without a value.
    """
    found = resolve_variables(with_providers(properties))
    return {name: value for name, value in found.items() if not is_provider_setting(name)}
