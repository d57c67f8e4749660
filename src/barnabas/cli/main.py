"""The entry point of ``barnabas``.

    barnabas start                    a broker on this machine, ready in well under a second
    barnabas format                   prepares data directories, as ``kafka-storage format`` does
    barnabas quotas                   who may have how much, and why somebody has to wait
    barnabas telemetry                metrics that clients send of themselves

A command that fails says why in one line, on the error stream, and exits with 1; a command line or a configuration that
makes no sense exits with 2.
"""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Sequence
from typing import Final

from barnabas import __version__
from barnabas.cli.arguments import ArgumentParser
from barnabas.cli.console import CommandError, fail
from barnabas.cli.format import add_format
from barnabas.cli.quotas import add_quotas
from barnabas.cli.start import add_start
from barnabas.cli.stop_signals import EXIT_KILLED
from barnabas.cli.telemetry import add_telemetry

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
DESCRIPTION: Final = "A Kafka-compatible streaming platform in Python: a broker for laptops, tests and the edge."


def make_parser() -> ArgumentParser:
    parser = ArgumentParser(prog="barnabas", description=DESCRIPTION)
    parser.add_argument("--version", action="version", version=f"barnabas {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=ArgumentParser)
    add_start(commands)
    add_format(commands)
    add_quotas(commands)
    add_telemetry(commands)
    return parser


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line; its exit code."""
    parser = make_parser()
    try:
        options = vars(parser.parse_args(arguments))
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
    sys.exit(run())


if __name__ == "__main__":
    main()
