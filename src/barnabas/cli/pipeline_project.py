"""``barnabas pipeline init`` and ``refresh``: declared projects for ``spark-pipelines``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas.cli.arguments import add_command
from barnabas.cli.cluster import Cluster, add_cluster, is_secret
from barnabas.cli.console import CommandError, UsageError, say

if TYPE_CHECKING:
    from barnabas.cli.arguments import Commands

INIT: Final = """Writes a project of Spark Declarative Pipelines: tables of the request log, client telemetry, quota
usage and of an example topic, in Python and SQL, with expectations and dead letters.

  barnabas pipeline init shop -b localhost:9092
  barnabas pipeline refresh shop"""
REFRESH: Final = """Updates the tables of a declared project once, with spark-pipelines: streaming tables read new
records, materialized views are computed again."""
ALL: Final = "all"
LOCAL: Final = "local[*,4]"
"""A server of its own, on all cores. Failed tasks are retried: on a busy laptop workers start slowly."""


def add_project_commands(actions: Commands) -> None:
    starting = add_command(actions, "init", init_command, "write a declared project", INIT)
    add_cluster(starting)
    starting.add_argument("directory", type=Path, metavar="DIR", help="the directory, new or empty")

    running = add_command(actions, "refresh", refresh_command, "update the tables of a declared project", REFRESH)
    running.add_argument("directory", type=Path, metavar="DIR", help="the directory of the project")
    running.add_argument("--dry-run", action="store_true", help="only check the definitions; needs no broker")
    running.add_argument("--tables", metavar="NAMES", help="update only these tables, separated by commas")
    running.add_argument(
        "--full", metavar="NAMES", help=f"empty these tables and read everything again; '{ALL}': all tables"
    )
    running.add_argument(
        "--remote",
        default=LOCAL,
        metavar="URL",
        help=f"a Spark Connect server, such as sc://host:15002; default: {LOCAL}, a server of its own",
    )


def init_command(directory: Path, cluster: Cluster) -> None:
    """Writes a project."""
    from barnabas.spark.pipelines.project import ProjectError, write_project

    settings = {"kafka.bootstrap.servers": cluster.bootstrap, **cluster.properties_for_spark()}
    for name, value in settings.items():
        if is_secret(name.removeprefix("kafka.")) and "${" not in value:
            raise UsageError(
                f"{name} would be readable in the project: give it as a variable of a config provider, such as "
                "${env:NAME}, with config.providers=env"
            )
    try:
        written = write_project(directory, settings)
    except ProjectError as error:
        raise UsageError(str(error)) from None
    root = directory.resolve()
    for file in written:
        say(f"{directory / file.relative_to(root)}\n", sys.stdout)
    say(f"\nNow: barnabas pipeline refresh {directory}\n", sys.stdout)


def refresh_command(directory: Path, dry_run: bool, tables: str | None, full: str | None, remote: str) -> None:
    """Runs ``spark-pipelines``."""
    from barnabas.spark.java_runtime import JavaMissingError
    from barnabas.spark.pipelines.project import ProjectError, run_project
    from barnabas.spark.pipelines.runner import PipelineError

    if dry_run and (tables or full):
        raise UsageError("--dry-run checks all tables: it takes neither --tables nor --full")
    if full == ALL and tables:
        raise UsageError(f"--full {ALL} updates all tables: it cannot be used with --tables")
    arguments = ["--remote", remote, "dry-run" if dry_run else "run"]
    if tables:
        arguments += ["--refresh", tables]
    if full:
        arguments += ["--full-refresh-all"] if full == ALL else ["--full-refresh", full]
    try:
        run_project(directory, arguments, lambda event: say(f"{event}\n", sys.stdout))
    except ProjectError as error:
        raise UsageError(str(error)) from None
    except (PipelineError, JavaMissingError) as error:
        raise CommandError(str(error)) from None
