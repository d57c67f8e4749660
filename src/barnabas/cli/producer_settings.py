"""Creates producers for commands and reports invalid settings."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from barnabas.cli.cluster import invalid_settings
from barnabas.cli.console import CommandError, UsageError

if TYPE_CHECKING:
    from barnabas.clients.producer import KafkaProducer

MAX_BLOCK_MS: Final = 10_000
"""A shorter timeout than the default of a minute, because a person is waiting."""


def parse_settings(pairs: Iterable[str], option: str) -> dict[str, str]:
    """Parses producer settings of the form ``name=value``; rejects unknown names."""
    from barnabas.clients.producer.producer_config import CONFIG

    settings: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"{option}: a setting must have the form name=value: {pair!r}")
        if name not in CONFIG.keys and name not in {"key.serializer", "value.serializer"}:
            import difflib

            near = difflib.get_close_matches(name, CONFIG.keys, 1)
            raise UsageError(f"{option}: unknown setting {name}" + (f"; did you mean {near[0]}?" if near else ""))
        settings[name] = value
    return settings


@contextmanager
def producer_for(settings: Mapping[str, Any]) -> Iterator[KafkaProducer]:
    """Yields a producer with these settings. On normal exit, all records have been acknowledged or have failed."""
    from barnabas.clients.producer import KafkaProducer
    from barnabas.common.errors import InvalidConfigurationError

    # The command reports the producer's error once, so its own warnings are dropped.
    logging.getLogger("barnabas").addHandler(logging.NullHandler())
    try:
        producer = KafkaProducer({"max.block.ms": MAX_BLOCK_MS, **settings})
    except InvalidConfigurationError as error:
        raise invalid_settings(error) from None
    if not gc.isenabled():  # the command line disables it for a faster start
        gc.freeze()
        gc.enable()
    try:
        yield producer
    except BaseException:
        producer.close(0)
        raise
    producer.close()


def failed(error: BaseException) -> CommandError:
    return CommandError(str(error) or type(error).__name__)
