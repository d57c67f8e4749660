"""The settings of a subscription to client metrics (resource type CLIENT_METRICS, KIP-714)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from barnabas.broker.config.terms import INT, LIST, MEDIUM, distinct
from barnabas.common.client_pattern import ClientPattern
from barnabas.common.config_def import ConfigDef
from barnabas.common.errors import (
    InvalidConfigurationError,
    InvalidRegularExpressionError,
    InvalidRequestError,
)

SHORTEST_INTERVAL_MS: Final = 100
LONGEST_INTERVAL_MS: Final = 60 * 60 * 1000

MATCH_PARAMETERS: Final = frozenset({
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
})  # fmt: skip
"""The properties of a client that a subscription can match."""

CLIENT_METRICS_CONFIG_DEF: Final = (
    ConfigDef()
    .define(
        "metrics",
        LIST,
        "",
        distinct(empty=True, null=False),
        MEDIUM,
        "Prefixes of the names of the metrics that clients push; * for all metrics.",
    )
    .define(
        "interval.ms", INT, 5 * 60 * 1000, None, MEDIUM, "How often clients push the metrics, from 100 ms to one hour."
    )
    .define(
        "match",
        LIST,
        "",
        distinct(empty=True, null=False),
        MEDIUM,
        "The clients that this subscription applies to, as name=pattern pairs that must all match. Empty: all clients.",
    )
)


def parse_matching_patterns(patterns: Iterable[str]) -> dict[str, ClientPattern]:
    """Parses ``name=pattern`` pairs into regular expressions by name. A pattern must match the whole value.

    >>> parse_matching_patterns(["client_software_name=apache-kafka-java", "client_id=app-[0-9]+"]).keys()
    dict_keys(['client_software_name', 'client_id'])
    """
    found = {}
    for entry in patterns:
        name, separator, pattern = entry.partition("=")
        name = name.strip()
        if not separator or "=" in pattern or name not in MATCH_PARAMETERS:
            raise InvalidConfigurationError(
                f"Invalid match {entry!r}: it must have the form name=pattern, with one of the names "
                f"{', '.join(sorted(MATCH_PARAMETERS))}."
            )
        try:
            found[name] = ClientPattern(pattern.strip(), f"The pattern for {name}")
        except InvalidRegularExpressionError as error:
            raise InvalidConfigurationError(str(error)) from None
    return found


def validate_client_metrics_config(name: str, settings: Mapping[str, str]) -> None:
    """Raises an error if a subscription cannot have these settings."""
    if not name:
        raise InvalidRequestError("A metrics subscription must have a name.")
    for key in settings:
        if key not in CLIENT_METRICS_CONFIG_DEF.keys:
            raise InvalidRequestError(f"Unknown client metrics configuration: {key}")
    values = CLIENT_METRICS_CONFIG_DEF.parse(settings)
    interval = values.get_int("interval.ms")
    if not SHORTEST_INTERVAL_MS <= interval <= LONGEST_INTERVAL_MS:
        raise InvalidRequestError(
            f"interval.ms must be between {SHORTEST_INTERVAL_MS} and {LONGEST_INTERVAL_MS}: {interval}"
        )
    parse_matching_patterns(values.get_list("match"))
