"""Directories whose files are not synced, because they are deleted after the process ends.

A sync makes a file survive a power cut. It takes milliseconds, and a broker makes about thirty between start and stop:
most of the time of a broker for one test, whose directory is deleted at the end. So a directory can be declared
*scratch*, and files in it are not synced, as on a file system mounted without barriers. Only a crash of the operating
system can lose data: a process that dies loses nothing that it has written.

Scratch directories are registered per process: a broker that keeps its data may run next to one that does not.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

_lock = threading.Lock()
"""Guards changes of `_prefixes`. Reads need no lock, because the tuple is replaced as a whole."""
_prefixes: tuple[str, ...] = ()


def declare_scratch(directory: Path) -> None:
    """Turns off syncs for files in the directory, until :func:`forget_scratch`."""
    global _prefixes  # noqa: PLW0603 - see the module
    with _lock:
        _prefixes = (*_prefixes, _prefix(directory))


def forget_scratch(directory: Path) -> None:
    global _prefixes  # noqa: PLW0603
    with _lock:
        _prefixes = tuple(prefix for prefix in _prefixes if prefix != _prefix(directory))


def is_scratch(path: str | os.PathLike[str]) -> bool:
    """Whether the file or directory is in a scratch directory, so that it is not synced."""
    return bool(_prefixes) and f"{os.fspath(path)}{os.sep}".startswith(_prefixes)


def _prefix(directory: Path) -> str:
    """Appends the separator, so that ``/data`` does not match ``/data-1``."""
    return f"{directory}{os.sep}"
