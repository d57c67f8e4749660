"""Connects commands to a cluster and reports connection errors."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from barnabas.cli.arguments import ArgumentParser
from barnabas.cli.console import CommandError, UsageError

if TYPE_CHECKING:
    from barnabas.clients.common.blocking_client import BlockingClient

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
HTTP_TIMEOUT_S: Final = 10


def add_cluster(parser: ArgumentParser) -> None:
    """Adds the option of every command that connects to a cluster."""
    parser.add_argument(
        "-b",
        "--bootstrap-server",
        dest="bootstrap",
        default=os.environ.get("BARNABAS_BOOTSTRAP", DEFAULT_BOOTSTRAP),
        metavar="HOST:PORT",
        help=f"a broker, or several separated by commas; default: $BARNABAS_BOOTSTRAP, or {DEFAULT_BOOTSTRAP}",
    )


@contextmanager
def connected(bootstrap: str) -> Iterator[BlockingClient]:
    """Yields a client for the cluster. An error of the client ends the command."""
    from barnabas.clients.common.blocking_client import BlockingClient, ClientError
    from barnabas.common.config_def import ConfigError

    # The command reports the client's error once, so the client's own warnings are dropped.
    logging.getLogger("barnabas").addHandler(logging.NullHandler())
    try:
        client = BlockingClient(bootstrap, client_id="barnabas-cli")
    except ConfigError as error:
        raise UsageError(f"--bootstrap-server: {error}") from None
    with client:
        try:
            yield client
        except ClientError as error:
            raise CommandError(str(error)) from None


def http_document(address: str, path: str) -> dict[str, Any]:
    """Reads a JSON page of a broker's HTTP endpoint; raises `CommandError` if it cannot."""
    base = address if "://" in address else f"http://{address}"
    url = f"{base.rstrip('/')}{path}"
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"not the address of an HTTP endpoint: {address!r}")
    import urllib.error  # takes as long to load as all the rest of the command line
    import urllib.request

    try:
        with urllib.request.urlopen(url, timeout=HTTP_TIMEOUT_S) as response:  # noqa: S310 - http or https
            document = json.load(response)
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise CommandError(f"cannot read {url}: {reason}") from None
    if not isinstance(document, dict):
        raise CommandError(f"unexpected document at {url}: this is not the HTTP endpoint of a broker")
    return document
