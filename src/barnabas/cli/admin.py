"""The common parts of the admin commands: the client, output as text or JSON, errors."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from barnabas.cli.arguments import ArgumentParser
from barnabas.cli.cluster import Cluster, add_cluster, invalid_settings
from barnabas.cli.console import CommandError, UsageError, say, shown

if TYPE_CHECKING:
    from barnabas.clients.admin import KafkaAdminClient, Results

K = TypeVar("K")
V = TypeVar("V")

TIMEOUT_MS: Final = 30_000
"""The timeout for a person at a terminal. A program has twice that."""


def add_common(parser: ArgumentParser, *, json: bool = True) -> None:
    """Adds the options of every command that queries a cluster."""
    add_cluster(parser)
    if json:
        parser.add_argument("--json", dest="as_json", action="store_true", help="print JSON")


@contextmanager
def administered(cluster: Cluster, timeout_ms: int = TIMEOUT_MS) -> Iterator[KafkaAdminClient]:
    """Yields an admin client for the cluster. An error of the client ends the command with a one-line message."""
    from barnabas.clients.admin import KafkaAdminClient
    from barnabas.common.errors import ApiError, InvalidConfigurationError, ProtocolError

    # The command reports the client's error once, so the client's own warnings are dropped.
    logging.getLogger("barnabas").addHandler(logging.NullHandler())
    try:
        admin = KafkaAdminClient(admin_settings(cluster, timeout_ms), fail_fast=True)
    except InvalidConfigurationError as error:
        raise invalid_settings(error) from None
    with admin:
        try:
            yield admin
        except ApiError as error:
            raise CommandError(explain(error)) from None
        except ProtocolError as error:
            raise UsageError(f"a value does not fit into its request: {error}") from None


def admin_settings(cluster: Cluster, timeout_ms: int, client_id: str = "barnabas-cli") -> dict[str, Any]:
    """Returns the settings of a command's admin client: those of the user, and defaults for a command."""
    settings = cluster.properties(
        {
            "client.id": client_id,
            "enable.metrics.push": False,  # a command ends too soon to push metrics
        }
    )
    timeouts = {"default.api.timeout.ms", "request.timeout.ms"}
    return settings if timeouts & settings.keys() else settings | dict.fromkeys(timeouts, timeout_ms)


REMEDIES: Final = {
    "SECURITY_DISABLED": "brokers with authorizer.class.name set have ACLs; barnabas secure writes such settings",
    "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED": "connect with SASL or with a client certificate",
}
"""What to do about errors whose messages, which are the broker's, do not say it."""


def explain(error: Exception) -> str:
    """Returns the message of an error with Kafka's name for it, so that users can search for it."""
    from barnabas.common.errors import ApiError, AuthenticationError, BrokerNotAvailableError, Errors

    if isinstance(error, BrokerNotAvailableError | AuthenticationError):
        return f"{error} (run barnabas doctor to find the cause)"
    if not isinstance(error, ApiError):
        return str(error)
    code = Errors.for_exception(error)
    remedy = REMEDIES.get(code.name)
    return f"{str(error).rstrip('.')} ({code.name}" + (f"; {remedy})" if remedy else ")")


def explain_topic(name: str, error: Exception) -> str:
    """Returns the message of an error about a topic."""
    from barnabas.common.errors import UnknownTopicOrPartitionError

    if isinstance(error, UnknownTopicOrPartitionError):
        return f"topic {name} does not exist"
    return f"{name}: {explain(error)}"


def tell(text: str) -> None:
    say(f"{shown(text)}\n", sys.stdout)


def tell_outcome(results: Results[K, V], success: Callable[[K, V], str]) -> None:
    """Prints a line for each key that succeeded, then raises an error that names the keys that failed."""
    for key, value in results.items():
        tell(success(key, value))
    if results.errors:
        raise CommandError("; ".join(f"{key}: {explain(error)}" for key, error in results.errors.items()))


def confirm(question: str, assume_yes: bool) -> None:
    """Asks the user to confirm. Does nothing without a terminal, because a script cannot answer."""
    if assume_yes or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return
    say(f"{question} [y/N] ", sys.stdout)
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise CommandError("cancelled, nothing was changed")


def key_values(texts: list[str]) -> dict[str, str]:
    """Parses settings of the form ``key=value``."""
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"a setting must have the form key=value: {text!r}")
        found[key.strip()] = value
    return found


def add_states(parser: ArgumentParser, things: str, states: Sequence[str]) -> None:
    """Adds an option that selects groups or transactions by state."""
    parser.add_argument(
        "-s",
        "--state",
        dest="states",
        action="append",
        default=[],
        choices=states,
        metavar="STATE",
        help=f"only {things} in this state; may be repeated: {', '.join(states)}",
    )


def add_yes(parser: ArgumentParser) -> None:
    parser.add_argument("-y", "--yes", dest="assume_yes", action="store_true", help="do not ask for confirmation")
