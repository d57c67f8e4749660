"""``barnabas format``: formats data directories, as ``kafka-storage format`` does.

Each directory gets a ``meta.properties`` with the IDs of cluster, node and directory. The directory of the metadata log
also gets a ``bootstrap.checkpoint`` with the feature levels of the new cluster. A directory that is already formatted
is an error, or is skipped with ``--ignore-formatted``.
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
Formats empty data directories with the IDs of a cluster and a node, as `kafka-storage format` does.
`barnabas start` without --config does this automatically."""


def add_format(commands: Commands) -> None:
    parser = add_command(commands, "format", format_command, "format data directories", DESCRIPTION)
    add_configuration(parser)
    parser.add_argument("-t", "--cluster-id", metavar="ID", help="the cluster ID; default: a new one")
    parser.add_argument(
        "-r", "--release-version", metavar="X.Y", help="the initial metadata.version; default: the latest"
    )
    parser.add_argument(
        "-S",
        "--add-scram",
        action="append",
        default=[],
        metavar="SPEC",
        help="add a user: 'SCRAM-SHA-256=[name=alice,password=secret]', or @FILE with one per line; may be repeated",
    )
    parser.add_argument(
        "-g", "--ignore-formatted", action="store_true", help="skip directories that are already formatted"
    )


def format_command(
    config: Path | None,
    overrides: list[str],
    data_dir: Path | None,
    cluster_id: str | None,
    release_version: str | None,
    add_scram: list[str],
    ignore_formatted: bool,
) -> None:
    settings = node_settings(config, parse_overrides(overrides), data_dir)
    from barnabas.broker.node.storage_formatter import FormatError, format_storage
    from barnabas.common.errors import BarnabasError

    try:
        report = format_storage(
            settings,
            cluster_id=cluster_id,
            release_version=release_version,
            ignore_formatted=ignore_formatted,
            add_scram=add_scram,
        )
    except FormatError as error:
        raise CommandError(str(error)) from None
    except (BarnabasError, OSError) as error:
        raise CommandError(f"cannot format the directories: {reason(error)}") from None
    say("".join(f"{line}\n" for line in report.lines()), sys.stdout)
