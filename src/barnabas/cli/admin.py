"""What the commands that look after a cluster have in common: a client, answers for people or programs, errors."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from barnabas.cli.arguments import ArgumentParser
from barnabas.cli.cluster import add_cluster
from barnabas.cli.console import CommandError, UsageError, say, shown

if TYPE_CHECKING:
    from barnabas.clients.admin import KafkaAdminClient, Results

K = TypeVar("K")
V = TypeVar("V")

TIMEOUT_MS: Final = 30_000
"""How long a person is made to wait; a program has twice that."""


def add_common(parser: ArgumentParser, *, json: bool = True) -> None:
    """The options of every command that asks a cluster something."""
    add_cluster(parser)
    if json:
        parser.add_argument("--json", dest="as_json", action="store_true", help="for other programs")


@contextmanager
def administered(bootstrap: str, timeout_ms: int = TIMEOUT_MS) -> Iterator[KafkaAdminClient]:
    """An admin client for the cluster; what goes wrong with it ends the command, in one line."""
    from barnabas.clients.admin import KafkaAdminClient  # noqa: PLC0415 - not for --help
    from barnabas.common.config_def import ConfigError  # noqa: PLC0415
    from barnabas.common.errors import ApiError  # noqa: PLC0415

    # What the client warns of is said once, as the reason why the command failed.
    logging.getLogger("barnabas").addHandler(logging.NullHandler())
    try:
        admin = KafkaAdminClient(
            bootstrap_servers=bootstrap,
            client_id="barnabas-cli",
            enable_metrics_push=False,  # a command is over before anybody could want to know
            default_api_timeout_ms=timeout_ms,
            request_timeout_ms=timeout_ms,
            fail_fast=True,
        )
    except ConfigError as error:
        raise UsageError(f"--bootstrap-server: {error}") from None
    with admin:
        try:
            yield admin
        except ApiError as error:
            raise CommandError(explain(error)) from None


def explain(error: Exception) -> str:
    """What an error says, with Kafka's name for it, which is what one can search for."""
    from barnabas.common.errors import ApiError, BrokerNotAvailableError, Errors  # noqa: PLC0415

    if isinstance(error, BrokerNotAvailableError):
        return f"{error} (barnabas doctor looks into it)"
    if not isinstance(error, ApiError):
        return str(error)
    return f"{str(error).rstrip('.')} ({Errors.for_exception(error).name})"


def explain_topic(name: str, error: Exception) -> str:
    """The same for a topic, of which it is mostly that there is none."""
    from barnabas.common.errors import UnknownTopicOrPartitionError  # noqa: PLC0415

    if isinstance(error, UnknownTopicOrPartitionError):
        return f"there is no topic {name}"
    return f"{name}: {explain(error)}"


def tell(text: str) -> None:
    say(f"{shown(text)}\n", sys.stdout)


def tell_outcome(results: Results[K, V], success: Callable[[K, V], str]) -> None:
    """A line for each key that worked; then an error that names those that did not."""
    for key, value in results.items():
        tell(success(key, value))
    if results.errors:
        raise CommandError("; ".join(f"{key}: {explain(error)}" for key, error in results.errors.items()))


def confirm(question: str, assume_yes: bool) -> None:
    """Asks a person who could still change their mind. A script has made up its own."""
    if assume_yes or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return
    say(f"{question} [y/N] ", sys.stdout)
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise CommandError("nothing was changed")


def key_values(texts: list[str]) -> dict[str, str]:
    """Settings as they are given on a command line."""
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"a setting is written as key=value, not as {text!r}")
        found[key.strip()] = value
    return found


def add_yes(parser: ArgumentParser) -> None:
    parser.add_argument("-y", "--yes", dest="assume_yes", action="store_true", help="do not ask first")
