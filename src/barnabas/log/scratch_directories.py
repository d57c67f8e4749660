"""Directories whose files are of no use after the process that writes them.

A sync makes a file outlive a power cut. It costs milliseconds, a broker makes about thirty of them between its start
and its stop, and where the whole directory is thrown away at the end nobody will ever look for what they saved: that is
most of what a broker for one test would take. So a directory can be declared *scratch*, and files in it are not synced.
It is what mounting a file system without barriers does, for one directory. Whatever the operating system itself
outlives is safe all the same: a process that dies loses nothing that it has written.

The declaration is about the directory and so it is kept by directory, for the whole process: a broker that keeps its
data may run beside one that does not.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

_lock = threading.Lock()
"""Guards changes of the names below; they are read without it, as a whole."""
_prefixes: tuple[str, ...] = ()


def declare_scratch(directory: Path) -> None:
    """From now on files in it are written without syncs, until :func:`forget_scratch`."""
    global _prefixes  # noqa: PLW0603 - see the module
    with _lock:
        _prefixes = (*_prefixes, _prefix(directory))


def forget_scratch(directory: Path) -> None:
    global _prefixes  # noqa: PLW0603
    with _lock:
        _prefixes = tuple(prefix for prefix in _prefixes if prefix != _prefix(directory))


def is_scratch(path: str | os.PathLike[str]) -> bool:
    """Whether the file, or the directory, need not be synced."""
    return bool(_prefixes) and f"{os.fspath(path)}{os.sep}".startswith(_prefixes)


def _prefix(directory: Path) -> str:
    """With the separator, so that ``/data-1`` is not in ``/data``."""
    return f"{directory}{os.sep}"
