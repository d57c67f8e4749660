"""The entry point of ``barnabas``.

    barnabas start                    runs a broker on this machine, ready in well under a second
    barnabas container                runs a broker that KAFKA_* variables configure, in a container
    barnabas format                   formats data directories, as ``kafka-storage format`` does
    barnabas topics                   lists, creates, describes and deletes topics
    barnabas groups                   shows groups and their lag
    barnabas configs                  shows and changes settings of topics, brokers and groups
    barnabas transactions             shows transactions and aborts hanging ones
    barnabas cluster                  shows brokers, quorum, features and log directories
    barnabas produce                  sends lines of text as records
    barnabas perf                     measures the throughput of a cluster
    barnabas consume                  prints the records of a topic
    barnabas quotas                   shows, sets and explains quotas
    barnabas acls                     shows, adds and removes ACLs
    barnabas users                    shows, creates and deletes SCRAM users
    barnabas tokens                   creates, shows and expires delegation tokens
    barnabas secure                   writes certificates and settings for a broker with TLS and authentication
    barnabas telemetry                subscribes to metrics of clients
    barnabas pipeline                 builds tables of telemetry with Spark
    barnabas report                   renders these tables as a page with charts
    barnabas doctor                   finds out why a client cannot connect
    barnabas generate                 writes files to deploy and watch a broker: compose, systemd, grafana, prometheus
    barnabas completion               prints completion scripts for shells

A command that fails prints one line on the error stream and exits with 1. An invalid command line or configuration
exits with 2.
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
    "container": "barnabas.cli.container:add_container",
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
    "acls": "barnabas.cli.acls:add_acls",
    "users": "barnabas.cli.users:add_users",
    "tokens": "barnabas.cli.tokens:add_tokens",
    "secure": "barnabas.cli.secure:add_secure",
    "telemetry": "barnabas.cli.telemetry:add_telemetry",
    "pipeline": "barnabas.cli.pipeline:add_pipeline",
    "report": "barnabas.cli.report:add_report",
    "doctor": "barnabas.cli.doctor:add_doctor",
    "generate": "barnabas.cli.generate:add_generate",
    "completion": "barnabas.cli.completion:add_completion",
}
"""Where each command is defined. Only the module of the command that runs is loaded, so a broker starts sooner."""


class Version(argparse.Action):
    """Prints the version, and whether compiled code runs."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from barnabas.cli.banner import running_code

        say(f"barnabas {__version__} ({running_code()})\n", sys.stdout)
        parser.exit()


def make_parser(command: str | None = None) -> ArgumentParser:
    """Returns the parser of all commands, or of the named one only."""
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
    """Runs a command line and returns its exit code."""
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
        fail(f"{type(error).__name__}: {error} (a bug in barnabas; --log-level debug shows the traceback)")
        return EXIT_FAILED
    return 0


def main() -> None:
    """The entry point of the installed command."""
    # Objects that are created during startup live as long as the process; collecting would add a tenth of the time.
    gc.disable()
    import_quickly()
    sys.exit(run())


if __name__ == "__main__":
    main()
