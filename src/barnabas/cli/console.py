"""How commands talk to people."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import IO


class CommandError(Exception):
    """A command cannot go on; the message is all that the user gets to see."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class UsageError(CommandError):
    """The command line or a configuration makes no sense."""

    def __init__(self, message: str) -> None:
        super().__init__(message, 2)


def is_colored(stream: IO[str]) -> bool:
    """Whether there is a person with a terminal who has nothing against colors (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def fail(message: str) -> None:
    """Says what went wrong, in red where there is a person to see it."""
    label = "\x1b[1;31merror:\x1b[0m" if is_colored(sys.stderr) else "error:"
    say(f"{label} {shown(message)}\n", sys.stderr)


def shown(text: str) -> str:
    """Text for a terminal: names that clients have chosen may contain escape sequences. Lines and tabs stay."""
    if text.isprintable():
        return text
    from barnabas.common.log_safety import escape  # noqa: PLC0415 - names are printable nearly always

    return escape(text, keep_newlines=True)


def say(text: str, stream: IO[str]) -> None:
    """Writes it at once. Nobody listening any more (``barnabas start | head -3``) is no reason to stop a broker."""
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        # Or the interpreter tries again when it ends, and complains then.
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def reason(error: BaseException) -> str:
    """What an error says, without the number that Python puts in front of those of the system."""
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}"
    return str(error) or type(error).__name__
