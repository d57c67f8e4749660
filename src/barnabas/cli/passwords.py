"""Reads passwords: from a terminal, a file or the environment, but never from the command line.

A command line is visible to every user of the machine, and stays in the shell's history.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas.cli.console import CommandError, UsageError, reason, say, shown

if TYPE_CHECKING:
    from barnabas.cli.arguments import ArgumentParser

MAX_BYTES: Final = 64 * 1024
"""The maximum size of a password file: a larger one is the wrong file."""


def add_password(parser: ArgumentParser) -> None:
    """Adds the options of every command that needs a password. Without them it asks at the terminal."""
    group = parser.add_argument_group("password; default: ask at the terminal")
    source = group.add_mutually_exclusive_group()
    source.add_argument("--password-file", type=Path, metavar="FILE", help="the first line of this file; - for stdin")
    source.add_argument("--password-env", metavar="NAME", help="the value of this environment variable")


def read_password(password_file: Path | None, password_env: str | None, *, twice: bool = True) -> str:
    """Returns the password; at a terminal, `twice` has it typed again."""
    if password_file is not None:
        password = _first_line(password_file)
    elif password_env is not None:
        if password_env not in os.environ:
            raise UsageError(f"--password-env: the environment has no variable {password_env}")
        password = os.environ[password_env]
    else:
        password = _ask(twice)
    if not password:
        raise CommandError("the password must not be empty")
    return password


def _first_line(path: Path) -> str:
    try:
        if str(path) == "-":
            data = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with path.open("rb") as file:
                if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                    say(f"warning: other users may read {shown(str(path))}: chmod 600 it\n", sys.stderr)
                data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise CommandError(f"--password-file: {path} has more than {MAX_BYTES} bytes")
        return data.decode().partition("\n")[0].removesuffix("\r")
    except UnicodeDecodeError:
        raise CommandError(f"--password-file: {path} is not UTF-8") from None
    except OSError as error:
        raise CommandError(f"--password-file: {reason(error)}") from None


def _ask(twice: bool) -> str:
    if not sys.stdin.isatty():
        raise UsageError("no terminal to ask for the password: use --password-file or --password-env")
    from getpass import getpass

    try:
        password = getpass("Password: ")
        if twice and getpass("Password again: ") != password:
            raise CommandError("the passwords are not the same")
    except EOFError:
        raise CommandError("cancelled, nothing was changed") from None
    return password
