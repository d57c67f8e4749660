"""What command lines look like, and what is wrong with one.

``argparse`` and nothing prettier, because a broker is to answer within a few tenths of a second: a parser that builds
its options from annotations took longer to load and run than all the rest of the command line together, and stayed in
memory.
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

from barnabas.cli.console import UsageError

if TYPE_CHECKING:
    Commands: TypeAlias = argparse._SubParsersAction["ArgumentParser"]

HELP_WIDTH = 30
DEFAULT_COLUMNS = 80
_INVALID_CHOICE = re.compile(r"argument (\S+): invalid choice: '(.*)' \(choose from .*\)", re.DOTALL)
"""How argparse refuses a value that is not one of the choices."""


class ArgumentParser(argparse.ArgumentParser):
    """One that says what is wrong in one line, and leaves it to its caller to exit."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(formatter_class=HelpFormatter, allow_abbrev=False, **settings)
        self.commands: argparse.Action | None = None
        """The action that takes the name of a command, if there are any."""

    def add_subparsers(self, **settings: Any) -> Any:
        self.commands = super().add_subparsers(**settings)
        return self.commands

    def error(self, message: str) -> NoReturn:
        wrong = _INVALID_CHOICE.fullmatch(message)
        if self.commands is not None and wrong is not None and wrong[1] == self.commands.metavar:
            raise UsageError(unknown_command(self.prog, wrong[2], list(self.commands.choices or ())))
        raise UsageError(f"{message} (see {self.prog} --help)")


def unknown_command(prog: str, given: str, known: Sequence[str]) -> str:
    """
    >>> unknown_command("barnabas", "topic", ["start", "topics"])
    'there is no command barnabas topic; did you mean barnabas topics? (see barnabas --help)'
    """
    from difflib import get_close_matches  # noqa: PLC0415 - for mistakes only

    close = get_close_matches(given, known, n=1) or [name for name in known if name.startswith(given[:3])][:1]
    hint = f"did you mean {prog} {close[0]}?" if close else f"there are {', '.join(known)}"
    return f"there is no command {prog} {given}; {hint} (see {prog} --help)"


@cache
def terminal_width() -> int:
    """As many columns as there are. Each option that is added asks, and ``shutil`` with it is slow to import."""
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
    """Keeps the line breaks of descriptions, and gives names of options some room."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=HELP_WIDTH, width=terminal_width() - 2)

    def add_argument(self, action: argparse.Action) -> None:
        super().add_argument(action)
        if isinstance(action, argparse._SubParsersAction):
            # argparse forgets that the names of commands are indented once more, and breaks the line after a long one.
            longest = max(map(len, action.choices), default=0)
            self._action_max_length = max(self._action_max_length, longest + 2 * self._indent_increment)


def add_command(
    commands: Commands, name: str, run: Callable[..., None], summary: str, description: str
) -> ArgumentParser:
    """A command that calls `run` with its options by name."""
    parser = commands.add_parser(name, help=summary, description=description)
    parser.set_defaults(run=run)
    return parser


def add_configuration(parser: ArgumentParser) -> None:
    """The options of every command that is about a node."""
    parser.add_argument(
        "-c", "--config", type=Path, metavar="FILE", help="a server.properties file, with the settings of Apache Kafka"
    )
    parser.add_argument(
        "-o",
        "--override",
        dest="overrides",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting that counts more than the file's; may be repeated",
    )
    parser.add_argument(
        "-d", "--data-dir", type=Path, metavar="DIR", help="where to keep the data; without it, the user's state folder"
    )


def port_number(text: str) -> int:
    """For ``type=``: a port, or 0 for any that is free."""
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: those are from 0 to 65535")
    return int(text)
