"""Output of commands to people, and their errors."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import IO


class CommandError(Exception):
    """Ends a command. The user sees only its message."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class UsageError(CommandError):
    """Reports an invalid command line or configuration."""

    def __init__(self, message: str) -> None:
        super().__init__(message, 2)


def is_colored(stream: IO[str]) -> bool:
    """Returns whether the stream is a terminal that accepts colors (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def fail(message: str) -> None:
    """Prints an error message, in red on a terminal."""
    label = "\x1b[1;31merror:\x1b[0m" if is_colored(sys.stderr) else "error:"
    say(f"{label} {shown(message)}\n", sys.stderr)


def shown(text: str) -> str:
    """Escapes text for a terminal, except newlines and tabs: names that clients choose may contain escape sequences."""
    if text.isprintable():
        return text
    from barnabas.common.log_safety import escape  # names are printable nearly always

    return escape(text, keep_newlines=True)


def say(text: str, stream: IO[str]) -> None:
    """Writes text and flushes. A closed pipe (``barnabas start | head -3``) must not stop a broker.

    Raises `CommandError` if standard output cannot be written for another reason, such as a full disk.
    """
    try:
        stream.write(text)
        stream.flush()
    except OSError as error:
        output_failed(stream, error)


def output_failed(stream: IO[str], error: OSError) -> None:
    """Discards further output to a stream that could not be written, and raises `CommandError` unless it is a pipe
    whose reader is gone. An error of the error stream has nowhere to go."""
    # Otherwise the interpreter flushes again at exit, and reports the error then.
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    if stream is not sys.stderr and not isinstance(error, BrokenPipeError):
        raise CommandError(f"cannot write to standard output: {reason(error)}") from None


def reason(error: BaseException) -> str:
    """Returns the message of an error, without the number that Python puts in front of a system error."""
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}"
    return str(error) or type(error).__name__
