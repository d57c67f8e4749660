"""The settings of an admin client."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from barnabas.clients.common.client_config import (
    LOW,
    MEDIUM,
    client_properties,
    define_common,
    define_security,
    refuse_unknown,
)
from barnabas.common.config_def import ConfigDef, ConfigError, ConfigValues, Range, Type

_MAX_INT32: Final = 2**31 - 1
_client_ids = itertools.count(1)


def _definition() -> ConfigDef:
    definition = define_common(ConfigDef(), receive_buffer_bytes=65_536, connections_max_idle_ms=300_000)
    definition.define(
        "default.api.timeout.ms",
        Type.INT,
        60_000,
        Range.at_least(0),
        MEDIUM,
        "How long an operation may take, including all retries.",
    )
    definition.define(
        "retries",
        Type.INT,
        _MAX_INT32,
        Range.between(0, _MAX_INT32),
        LOW,
        "How many times a failed request is retried.",
    )
    return define_security(definition)


CONFIG: Final = _definition()
"""The definitions of all settings of an admin client."""


@dataclass(frozen=True, slots=True)
class AdminClientConfig:
    """The validated settings of an admin client.

    ``default.api.timeout.ms`` limits a whole operation, and ``request.timeout.ms`` each attempt. So the first must not
    be shorter than the second. If only one of them is set, the default of the other is adjusted.
    """

    bootstrap_servers: tuple[str, ...]
    client_id: str
    default_api_timeout_ms: int
    request_timeout_ms: int
    retries: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    metadata_max_age_ms: int
    values: ConfigValues
    """Every setting, by Kafka's name."""

    @classmethod
    def of(cls, config: Mapping[str, object] | None = None, **keywords: object) -> AdminClientConfig:
        """Parses settings from a mapping with Kafka's names, from keywords, or from both."""
        refuse_unknown(keywords, CONFIG)
        given = {name: _plain(value) for name, value in client_properties(config, keywords).items()}
        values = CONFIG.parse(given)
        api_ms, request_ms = values.get_int("default.api.timeout.ms"), values.get_int("request.timeout.ms")
        if api_ms < request_ms:
            if values.is_set("default.api.timeout.ms") and values.is_set("request.timeout.ms"):
                raise ConfigError(
                    f"The specified value of default.api.timeout.ms must be no smaller than the value of "
                    f"request.timeout.ms: {api_ms} < {request_ms}.",
                    name="default.api.timeout.ms",
                )
            if values.is_set("default.api.timeout.ms"):
                request_ms = api_ms
            else:
                api_ms = request_ms
        return cls(
            bootstrap_servers=values.get_list("bootstrap.servers"),
            client_id=values.get_str("client.id") or f"adminclient-{next(_client_ids)}",
            default_api_timeout_ms=api_ms,
            request_timeout_ms=request_ms,
            retries=values.get_int("retries"),
            retry_backoff_ms=values.get_int("retry.backoff.ms"),
            retry_backoff_max_ms=values.get_int("retry.backoff.max.ms"),
            metadata_max_age_ms=values.get_int("metadata.max.age.ms"),
            values=values,
        )


def _plain(value: object) -> Any:
    if isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping | type):
        return tuple(value)
    return value
