"""``barnabas format``: gives data directories their identity, as ``kafka-storage format`` does.

A cluster is born with this. Each directory gets a ``meta.properties`` with the ids of cluster, node and directory,
and the one of the metadata log a ``bootstrap.checkpoint`` with the feature levels that the first controller starts
the cluster with. A directory that is formatted already is left alone, or an error without ``--ignore-formatted``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas.cli.arguments import add_command, add_configuration
from barnabas.cli.console import CommandError, reason, say
from barnabas.cli.settings import node_settings, parse_overrides

if TYPE_CHECKING:
    from barnabas.cli.arguments import Commands

DESCRIPTION: Final = """\
Gives empty data directories the identity of a cluster and a node, as `kafka-storage format` does.
`barnabas start` without --config does this by itself."""


def add_format(commands: Commands) -> None:
    parser = add_command(commands, "format", format_command, "prepare data directories", DESCRIPTION)
    add_configuration(parser)
    parser.add_argument("-t", "--cluster-id", metavar="ID", help="the id of the cluster; without it, a new one")
    parser.add_argument(
        "-r", "--release-version", metavar="X.Y", help="the metadata.version to begin with; without it, the newest"
    )
    parser.add_argument(
        "-g", "--ignore-formatted", action="store_true", help="leave directories alone that are formatted already"
    )


def format_command(
    config: Path | None,
    overrides: list[str],
    data_dir: Path | None,
    cluster_id: str | None,
    release_version: str | None,
    ignore_formatted: bool,
) -> None:
    settings = node_settings(config, parse_overrides(overrides), data_dir)
    from barnabas.broker.storage_formatter import FormatError, format_storage  # noqa: PLC0415 - not before --help
    from barnabas.common.errors import BarnabasError  # noqa: PLC0415

    try:
        report = format_storage(
            settings, cluster_id=cluster_id, release_version=release_version, ignore_formatted=ignore_formatted
        )
    except FormatError as error:
        raise CommandError(str(error)) from None
    except (BarnabasError, OSError) as error:
        raise CommandError(f"the directories cannot be formatted: {reason(error)}") from None
    say("".join(f"{line}\n" for line in report.lines()), sys.stdout)
