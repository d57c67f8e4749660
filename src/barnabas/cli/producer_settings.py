"""How commands come by a producer, and what they say when it cannot be had."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from barnabas.cli.console import CommandError, UsageError

if TYPE_CHECKING:
    from barnabas.clients.producer import KafkaProducer

MAX_BLOCK_MS: Final = 10_000
"""A person at a terminal gives up sooner than a program does, whose default is a minute."""


def parse_settings(pairs: Iterable[str], option: str) -> dict[str, str]:
    """Settings of a producer, given as ``name=value``; a name that there is none of is a mistake."""
    from barnabas.clients.producer.producer_config import CONFIG  # noqa: PLC0415 - not for --help

    settings: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"{option}: {pair!r} is not name=value")
        if name not in CONFIG.keys and name not in {"key.serializer", "value.serializer"}:
            import difflib  # noqa: PLC0415

            near = difflib.get_close_matches(name, CONFIG.keys, 1)
            raise UsageError(f"{option}: there is no setting {name}" + (f"; did you mean {near[0]}?" if near else ""))
        settings[name] = value
    return settings


@contextmanager
def producer_for(settings: Mapping[str, Any]) -> Iterator[KafkaProducer]:
    """A producer with these settings. Whatever was sent has an outcome when this is left in peace."""
    from barnabas.clients.producer import KafkaProducer  # noqa: PLC0415
    from barnabas.common.config_def import ConfigError  # noqa: PLC0415

    # What the producer warns of is said once, as the reason why the command failed.
    logging.getLogger("barnabas").addHandler(logging.NullHandler())
    try:
        producer = KafkaProducer({"max.block.ms": MAX_BLOCK_MS, **settings})
    except ConfigError as error:
        raise UsageError(str(error)) from None
    if not gc.isenabled():  # as the command line has it until it gets to work, for a quick start
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
