"""Writes small files durably and atomically: after a crash, a file has either the old or the new contents."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from barnabas.log.dirs.scratch_directories import is_scratch
from barnabas.log.segment.file_handle import DATA_DIR_MODE, DATA_FILE_MODE, sync_data, write_fully


def make_data_dir(path: Path) -> None:
    """Creates a directory that only this user can enter. Parents get default modes; an existing one is unchanged."""
    path.mkdir(DATA_DIR_MODE, parents=True, exist_ok=True)


def replace_file(path: Path, data: bytes) -> None:
    """Replaces the file `path` durably by one with these contents.

    Each of the four steps is needed. The data is written to another file, so that a crash half-way does not affect the
    old one. That file is forced to disk before the rename, or a power cut could leave a file under the new name whose
    blocks were never written. The rename is atomic. The directory is forced to disk after it, or the rename itself
    could be lost, and with it a file that was reported as safe.

    Raises `OSError`. Two threads must not replace the same file at once: they would write to one temporary file.
    """
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        write_file(temporary, data)
        os.replace(temporary, path)  # noqa: PTH105 - the path objects add nothing
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise
    sync_directory(path.parent)


def write_file(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Writes a file, not atomically: a crash may leave any part of it. Without `sync` the data may stay in memory."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, DATA_FILE_MODE)
    try:
        write_fully(fd, [data], 0)
        if sync and not is_scratch(path):
            sync_data(fd)
    finally:
        os.close(fd)


def sync_file(path: Path) -> None:
    """Forces the contents of a file to disk."""
    if is_scratch(path):
        return
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        sync_data(fd)
    finally:
        os.close(fd)


def sync_directory(path: Path) -> None:
    """Forces the entries of a directory to disk: the names of the files, not their contents."""
    if is_scratch(path):
        return
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
