"""The parser of command lines, and its error messages.

It uses ``argparse`` alone, because a broker should be ready within a few tenths of a second. A parser that builds its
options from annotations took longer to load and run than the rest of the command line together, and stayed in memory.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from barnabas.cli.console import UsageError, say

if TYPE_CHECKING:
    Commands: TypeAlias = argparse._SubParsersAction["ArgumentParser"]

HELP_WIDTH = 30
DEFAULT_COLUMNS = 80
_INVALID_CHOICE = re.compile(r"argument (\S+): invalid choice: '(.*)' \(choose from .*\)", re.DOTALL)
"""The message of argparse for a value that is not one of the choices."""


class ArgumentParser(argparse.ArgumentParser):
    """Raises a one-line `UsageError` instead of exiting."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(formatter_class=HelpFormatter, allow_abbrev=False, **settings)
        self.commands: argparse.Action | None = None
        """The action that takes the name of a subcommand, if the parser has any."""

    def add_subparsers(self, **settings: Any) -> Any:
        self.commands = super().add_subparsers(**settings)
        return self.commands

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Refuses unknown arguments here, where the options of the command are known, and not in the parser above."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown and self.commands is None:
            options = [option for action in self._actions for option in action.option_strings]
            self.error(unknown_arguments(unknown, options))
        return found, unknown

    def print_help(self, file: Any = None) -> None:
        # argparse would ignore an error of the output, and the interpreter would report it at exit.
        say(self.format_help(), file or sys.stdout)

    def error(self, message: str) -> NoReturn:
        wrong = _INVALID_CHOICE.fullmatch(message)
        if self.commands is not None and wrong is not None and wrong[1] == self.commands.metavar:
            raise UsageError(unknown_command(self.prog, wrong[2], list(self.commands.choices or ())))
        raise UsageError(f"{message} (see {self.prog} --help)")


def unknown_command(prog: str, given: str, known: Sequence[str]) -> str:
    """
    >>> unknown_command("barnabas", "topic", ["start", "topics"])
    'unknown command: barnabas topic; did you mean barnabas topics? (see barnabas --help)'
    """
    from difflib import get_close_matches  # for mistakes only

    close = get_close_matches(given, known, n=1) or [name for name in known if name.startswith(given[:3])][:1]
    hint = f"did you mean {prog} {close[0]}?" if close else f"known commands: {', '.join(known)}"
    return f"unknown command: {prog} {given}; {hint} (see {prog} --help)"


def unknown_arguments(given: Sequence[str], known: Sequence[str]) -> str:
    """
    >>> unknown_arguments(["--partitons=3"], ["--partitions", "-p"])
    'unrecognized arguments: --partitons=3; did you mean --partitions?'
    """
    from difflib import get_close_matches  # for mistakes only

    options = [argument.partition("=")[0] for argument in given if argument.startswith("--")]
    close = [match for option in options for match in get_close_matches(option, known, n=1)]
    return f"unrecognized arguments: {' '.join(given)}" + (f"; did you mean {close[0]}?" if close else "")


@cache
def terminal_width() -> int:
    """Returns the width of the terminal. Adding an option calls this, and ``shutil``, which has it, loads slowly."""
    try:
        columns = int(os.environ["COLUMNS"])
    except (KeyError, ValueError):
        columns = 0
    if columns > 0:
        return columns
    try:
        return os.get_terminal_size(sys.__stdout__.fileno() if sys.__stdout__ else 1).columns or DEFAULT_COLUMNS
    except (ValueError, OSError):
        return DEFAULT_COLUMNS


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Keeps the line breaks of descriptions and leaves room for long option names."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=HELP_WIDTH, width=terminal_width() - 2)

    def add_argument(self, action: argparse.Action) -> None:
        super().add_argument(action)
        if isinstance(action, argparse._SubParsersAction):
            # argparse does not count the extra indentation of command names, and breaks the line after a long one.
            longest = max(map(len, action.choices), default=0)
            self._action_max_length = max(self._action_max_length, longest + 2 * self._indent_increment)


def add_command(
    commands: Commands, name: str, run: Callable[..., None], summary: str, description: str
) -> ArgumentParser:
    """Adds a command that calls `run` with its options by name."""
    parser = commands.add_parser(name, help=summary, description=description)
    parser.set_defaults(run=run)
    return parser


def add_configuration(parser: ArgumentParser) -> None:
    """Adds the options of every command that configures a node."""
    parser.add_argument(
        "-c", "--config", type=Path, metavar="FILE", help="a server.properties file with Apache Kafka's settings"
    )
    parser.add_argument(
        "-o",
        "--override",
        dest="overrides",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting that overrides the file; may be repeated",
    )
    parser.add_argument(
        "-d", "--data-dir", type=Path, metavar="DIR", help="the data directory; default: the user's state directory"
    )


def port_number(text: str) -> int:
    """Parses a port for ``type=``; 0 means any free port."""
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"a port must be between 0 and 65535: {text!r}")
    return int(text)
