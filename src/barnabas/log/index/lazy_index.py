"""An index that is opened on first use."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from barnabas.log.index.abstract_index import AbstractIndex
from barnabas.log.segment.file_handle import FileHandle
from barnabas.log.storage_errors import FileClosedError, disk_access

IndexT = TypeVar("IndexT", bound=AbstractIndex)


class LazyIndex(Generic[IndexT]):
    """Holds the path of an index, and opens the index when it is needed.

    At startup, a broker has two indexes for each of maybe a hundred thousand segments, but needs only those of the
    active segments and a few more. Renaming, closing and deleting need only the path.

    Once closed or deleted, it does not open again: a late reader must not recreate the file.
    """

    __slots__ = ("_closed", "_lock", "_open", "_path", "index")

    def __init__(self, path: Path, open_index: Callable[[Path], IndexT]) -> None:
        self._path = path
        self._open = open_index
        self._lock = threading.Lock()
        """Guards the fields; an index's own lock may be taken inside it."""
        self.index: IndexT | None = None
        """The opened index, or None. Every append reads it, to avoid the lock of `get`."""
        self._closed = False

    @property
    def path(self) -> Path:
        return self._path

    @property
    def is_open(self) -> bool:
        return self.index is not None

    def get(self) -> IndexT:
        index = self.index
        return self._load() if index is None else index

    def _load(self) -> IndexT:
        with self._lock:
            if self.index is None:
                if self._closed:
                    raise FileClosedError(f"{self._path} is closed")
                self.index = self._open(self._path)
            return self.index

    def reset(self) -> IndexT:
        """Returns an empty index with its full capacity, which recovery fills.

        The old contents are not read. After a crash of Kafka, the file may be sparse, with megabytes of zeros.
        """
        with self._lock:
            if self._closed:
                raise FileClosedError(f"{self._path} is closed")
            if self.index is None:
                with disk_access("reset", self._path):
                    FileHandle.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                self.index = self._open(self._path)
            self.index.reset()
            return self.index

    def rename(self, path: Path) -> None:
        """Renames the file. The file of an index that was never opened may not exist."""
        with self._lock:
            if self.index is not None:
                self.index.rename(path)
            else:
                with disk_access("rename", self._path):
                    try:
                        self._path.replace(path)
                    except FileNotFoundError:
                        if self._path.exists():  # the target's directory is missing
                            raise
            self._path = path

    def update_parent_dir(self, directory: Path) -> None:
        """Updates the path after the directory was renamed."""
        with self._lock:
            self._path = directory / self._path.name
            if self.index is not None:
                self.index.update_parent_dir(directory)

    def flush(self) -> None:
        """Flushes the index if it is open. An index that was never opened has no changes."""
        index = self.index
        if index is not None:
            index.flush()

    def close(self) -> None:
        """Closes the index, and ensures that the file exists: a segment without index files counts as damaged."""
        with self._lock:
            if self.index is not None:
                self.index.close()
            elif not self._closed:
                with disk_access("create", self._path):
                    FileHandle.open(self._path, os.O_WRONLY | os.O_CREAT)
            self._closed = True

    def close_handler(self) -> None:
        with self._lock:
            if self.index is not None:
                self.index.close_handler()
            self._closed = True

    def delete_if_exists(self) -> bool:
        """Deletes the file; returns whether it existed."""
        with self._lock:
            self._closed = True
            if self.index is not None:
                return self.index.delete_if_exists()
            with disk_access("delete", self._path):
                try:
                    self._path.unlink()
                except FileNotFoundError:
                    return False
            return True
