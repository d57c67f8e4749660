"""Small files that are either the old one or the new one, whatever happens while they are written."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from barnabas.log.file_handle import DATA_DIR_MODE, DATA_FILE_MODE, sync_data, write_fully
from barnabas.log.scratch_directories import is_scratch


def make_data_dir(path: Path) -> None:
    """Makes a directory that only this user can enter. One that is there is left as it is, and parents are ordinary."""
    path.mkdir(DATA_DIR_MODE, parents=True, exist_ok=True)


def replace_file(path: Path, data: bytes) -> None:
    """Puts a file with these contents in the place of `path`, for good.

    The four steps are each needed. The data goes into another file, so that a crash half-way leaves the old one
    alone. That file is forced to disk before the rename, or a power cut could leave a file under the new name whose
    blocks never got written. The rename is atomic. The directory is forced to disk after it, or the rename itself
    could be forgotten, and with it a file that somebody was told is safe.

    Raises `OSError`. Two threads must not replace the same file at once: they would write into one temporary file.
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
    """Writes a file from its start; a crash may leave any part of it. Without `sync` its data may stay in memory."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, DATA_FILE_MODE)
    try:
        write_fully(fd, [data], 0)
        if sync and not is_scratch(path):
            sync_data(fd)
    finally:
        os.close(fd)


def sync_file(path: Path) -> None:
    """Returns when what has been written to the file is on the disk."""
    if is_scratch(path):
        return
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        sync_data(fd)
    finally:
        os.close(fd)


def sync_directory(path: Path) -> None:
    """Returns when the names in a directory are on the disk: which files there are, not what is in them."""
    if is_scratch(path):
        return
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
