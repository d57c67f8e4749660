"""Reads files with secrets, and checks who may read them (A12)."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path
from typing import Final

from barnabas.common.errors import InvalidConfigurationError

log = logging.getLogger(__name__)

MAX_BYTES: Final = 16 << 20


def read_secret_file(path: str | Path, purpose: str) -> str:
    """Returns the text of a file with secrets, for example of ``purpose="credentials file"``.

    A file that every user of the machine may read is refused. One that its group may read is only logged, because a
    service often gets its secrets that way.
    """
    try:
        with Path(path).open("rb") as file:
            status = os.fstat(file.fileno())  # of the open file: its path may change meanwhile
            check_access(path, purpose, status, refuse=True)
            if status.st_size > MAX_BYTES:
                raise InvalidConfigurationError(f"{purpose} {path} is too large: {status.st_size} bytes")
            return file.read(MAX_BYTES).decode("utf-8")
    except OSError as error:
        raise InvalidConfigurationError(f"cannot read {purpose} {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InvalidConfigurationError(f"{purpose} {path} is not UTF-8 at byte {error.start}") from None


def check_access(path: str | Path, purpose: str, status: os.stat_result, *, refuse: bool) -> None:
    """Warns of a file that others than its owner may read or change.

    With ``refuse``, a file that every user of the machine may read or change raises `InvalidConfigurationError`.
    """
    mode = status.st_mode
    if os.name != "posix":
        return
    if refuse and mode & (stat.S_IROTH | stat.S_IWOTH):
        raise InvalidConfigurationError(
            f"{purpose} {path} is accessible to every user of this machine (mode {stat.S_IMODE(mode):04o}): chmod 600"
        )
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        log.warning(
            "Others may read or change the %s %s (mode %03o); allow its owner only: chmod 600",
            purpose,
            path,
            stat.S_IMODE(mode),
        )
