"""The ``kafka.*`` options of a writer: Kafka producer settings, except those that the sink sets itself."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from barnabas.clients.common.client_config import define_common, define_security
from barnabas.clients.common.security_aliases import NAMES
from barnabas.clients.producer.producer_config import CONFIG, ProducerConfig
from barnabas.common.config_def import ConfigDef, ConfigError
from barnabas.spark.client_settings import ClientSettings
from barnabas.spark.config_variables import is_provider_setting, with_providers
from barnabas.spark.option_definitions import PREFIX

TRANSACTION_TIMEOUT: Final = "transaction.timeout.ms"
DEFAULT_TRANSACTION_TIMEOUT_MS: Final = 15 * 60_000
"""The default maximum of a broker (``transaction.max.timeout.ms``)."""

_TWO_PHASE_COMMIT: Final = "transaction.two.phase.commit.enable"

REFUSED: Final = {
    "key.serializer": "Keys are strings or bytes; make them with DataFrame operations.",
    "value.serializer": "Values are strings or bytes; make them with DataFrame operations.",
    "interceptor.classes": "Rows are sent in columns; there are no record objects for an interceptor.",
    "transactional.id": "Each task has its own; set transactionalIdPrefix instead.",
    _TWO_PHASE_COMMIT: "Set the option twoPhaseCommit instead.",
}
"""Producer settings that are not options, and why."""

_DEFAULTS: Final[Mapping[str, str]] = {
    "client.id": "barnabas-spark-sink",
    # A task's producer lives for seconds. Telemetry would add a request at its start and its end.
    "enable.metrics.push": "false",
}

_OF_EVERY_CLIENT: Final = frozenset({*define_security(define_common(ConfigDef())).keys, *NAMES})


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """Settings of the tasks' producers, and of the client that completes their transactions."""

    properties: Mapping[str, str] = field(repr=False)
    """The producer settings as given, by Kafka's names. They may contain credentials, so repr does not show them."""
    client: ClientSettings
    max_block_ms: int
    """How long a step of a transaction may take, including retries."""

    @classmethod
    def of(cls, options: Mapping[str, str], *, exactly_once: bool) -> SinkSettings:
        """Makes settings from the options that begin with ``kafka.``; raises `ConfigError` if they are invalid."""
        given = {
            name[len(PREFIX) :].lower(): value for name, value in options.items() if name.lower().startswith(PREFIX)
        }
        for name, reason in REFUSED.items():
            if name in given:
                raise ConfigError(f"Kafka option {PREFIX}{name} is not supported here. {reason}", name=PREFIX + name)
        for name in sorted(given):
            if name not in CONFIG.keys and name not in NAMES and not is_provider_setting(name):
                close = difflib.get_close_matches(name, CONFIG.keys, 1)
                hint = f" Did you mean {PREFIX}{close[0]}?" if close else ""
                raise ConfigError(f"There is no Kafka option {PREFIX}{name} for this sink.{hint}", name=PREFIX + name)
        client = ClientSettings.of(
            {
                PREFIX + name: value
                for name, value in given.items()
                if name in _OF_EVERY_CLIENT or is_provider_setting(name)
            }
        )
        # The producer of a task looks up the values of variables.
        properties = {**_DEFAULTS, **with_providers(given)}
        # Find conflicting settings now, not in the first task.
        checked = ProducerConfig.of({**properties, "transactional.id": "checked"} if exactly_once else properties)
        return cls(properties, client, checked.max_block_ms)

    @property
    def has_transaction_timeout(self) -> bool:
        return TRANSACTION_TIMEOUT in self.properties

    def of_transactions(self, transactional_id: str, *, two_phase_commit: bool) -> dict[str, str]:
        """Returns the settings of the producer of a task that writes in a transaction."""
        properties = {**self.properties, "transactional.id": transactional_id}
        if two_phase_commit:
            properties[_TWO_PHASE_COMMIT] = "true"
        else:
            properties.setdefault(TRANSACTION_TIMEOUT, str(DEFAULT_TRANSACTION_TIMEOUT_MS))
        return properties
