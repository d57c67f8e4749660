"""The entry point of ``barnabas``.

    barnabas start                    a broker on this machine, ready in well under a second
    barnabas format                   prepares data directories, as ``kafka-storage format`` does
    barnabas topics                   list, create, describe and delete them
    barnabas groups                   who reads what, and how far behind they are
    barnabas configs                  settings of topics, brokers and groups
    barnabas transactions             which are open, and getting rid of one that hangs
    barnabas cluster                  brokers, quorum, features, disks
    barnabas produce                  sends lines of text as records
    barnabas perf                     measures how fast a cluster is
    barnabas consume                  shows what is in a topic, and what comes in
    barnabas quotas                   who may have how much, and why somebody has to wait
    barnabas telemetry                metrics that clients send of themselves
    barnabas pipeline                 tables of all that, made by Spark
    barnabas report                   a page with charts of those tables
    barnabas doctor                   why a client does not get through
    barnabas completion               completion of commands by the shell

A command that fails says why in one line, on the error stream, and exits with 1; a command line or a configuration that
makes no sense exits with 2.
"""

from __future__ import annotations

import argparse
import gc
import logging
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

from barnabas import __version__
from barnabas.cli.arguments import ArgumentParser
from barnabas.cli.console import CommandError, fail, say
from barnabas.cli.quick_imports import import_quickly
from barnabas.cli.stop_signals import EXIT_KILLED

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
DESCRIPTION: Final = "A Kafka-compatible streaming platform in Python: a broker for laptops, tests and the edge."
COMMANDS: Final = {
    "start": "barnabas.cli.start:add_start",
    "format": "barnabas.cli.format:add_format",
    "topics": "barnabas.cli.topics:add_topics",
    "groups": "barnabas.cli.groups:add_groups",
    "configs": "barnabas.cli.configs:add_configs",
    "transactions": "barnabas.cli.transactions:add_transactions",
    "cluster": "barnabas.cli.cluster_command:add_cluster_command",
    "produce": "barnabas.cli.produce:add_produce",
    "consume": "barnabas.cli.consume:add_consume",
    "perf": "barnabas.cli.perf:add_perf",
    "quotas": "barnabas.cli.quotas:add_quotas",
    "telemetry": "barnabas.cli.telemetry:add_telemetry",
    "pipeline": "barnabas.cli.pipeline:add_pipeline",
    "report": "barnabas.cli.report:add_report",
    "doctor": "barnabas.cli.doctor:add_doctor",
    "completion": "barnabas.cli.completion:add_completion",
}
"""Where each command is defined. One that is called is the only one that is loaded: a broker starts the sooner."""


class Version(argparse.Action):
    """Prints the version, and which code runs."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from barnabas.cli.banner import running_code  # noqa: PLC0415

        say(f"barnabas {__version__} ({running_code()})\n", sys.stdout)
        parser.exit()


def make_parser(command: str | None = None) -> ArgumentParser:
    """The parser of all commands, or of the one that is named."""
    parser = ArgumentParser(prog="barnabas", description=DESCRIPTION)
    parser.add_argument(
        "--version",
        action=Version,
        nargs=0,
        default=argparse.SUPPRESS,
        help="show the version, and whether compiled code runs",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=ArgumentParser)
    for name in [command] if command in COMMANDS else COMMANDS:
        module, _, function = COMMANDS[name].partition(":")
        getattr(import_module(module), function)(commands)
    return parser


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line; its exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    parser = make_parser(given[0] if given else None)
    try:
        options = vars(parser.parse_args(given))
        command = options.pop("run", None)
        if command is None:
            parser.print_help(sys.stderr)
            return EXIT_USAGE
        command(**options)
    except CommandError as error:
        fail(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        return EXIT_KILLED
    except Exception as error:
        logging.getLogger(__name__).debug("Unexpected error", exc_info=True)
        fail(f"{type(error).__name__}: {error} (a mistake in barnabas; --log-level debug shows where)")
        return EXIT_FAILED
    return 0


def main() -> None:
    """What the installed command runs."""
    # Nothing that is loaded from here on becomes garbage, and a collector that looks for it takes a tenth of the time.
    gc.disable()
    import_quickly()
    sys.exit(run())


if __name__ == "__main__":
    main()
