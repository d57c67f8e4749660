"""Tracks the producer snapshot files in a log's directory and deletes obsolete ones."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Collection, Iterable
from pathlib import Path

from barnabas.common.sorted_map import SortedMap
from barnabas.log.segment.log_file_names import (
    DELETED_FILE_SUFFIX,
    PRODUCER_SNAPSHOT_FILE_SUFFIX,
    offset_from_file_name,
    producer_snapshot_file,
)
from barnabas.log.storage_errors import disk_access, storage_error

logger = logging.getLogger(__name__)


class SnapshotFile:
    """A snapshot file and its offset. The path changes when it is marked for deletion or the log moves."""

    __slots__ = ("offset", "path")

    def __init__(self, path: Path, offset: int | None = None) -> None:
        self.path = path
        self.offset = offset_from_file_name(path.name) if offset is None else offset

    def update_parent_dir(self, directory: Path) -> None:
        self.path = directory / self.path.name

    def delete_if_exists(self) -> bool:
        with disk_access("delete", self.path):
            try:
                self.path.unlink()
            except FileNotFoundError:
                logger.info("producer snapshot %s is gone already", self.path)
                return False
        logger.debug("deleted producer snapshot %s", self.path)
        return True

    def rename_to_delete(self) -> None:
        """Marks the file for delayed deletion together with its segment. Raises `OSError`."""
        renamed = self.path.with_name(self.path.name + DELETED_FILE_SUFFIX)
        try:
            self.path.rename(renamed)
        finally:
            self.path = renamed

    def __repr__(self) -> str:
        return f"SnapshotFile(offset={self.offset}, path={str(self.path)!r})"


def list_snapshot_files(directory: Path, names: Iterable[str] | None = None) -> list[SnapshotFile]:
    """Lists the snapshot files in a directory by offset; `names` are the files in it, if the caller knows them."""
    if names is None:
        with disk_access("list", directory), os.scandir(directory) as entries:
            names = [entry.name for entry in entries if entry.is_file()]
    found = []
    for name in names:
        if not name.endswith(PRODUCER_SNAPSHOT_FILE_SUFFIX):
            continue
        path = directory / name
        try:
            found.append(SnapshotFile(path))
        except ValueError as error:
            logger.warning("%s is left alone: %s", path, error)
    return sorted(found, key=lambda file: file.offset)


class ProducerSnapshotFiles:
    """The snapshots of one log, indexed by offset.

    Segments and their snapshots are deleted in the background, hence the lock. Files are deleted outside the lock, by
    the thread that removed their offset from the table.
    """

    def __init__(self, directory: Path, names: Iterable[str] | None = None) -> None:
        """`names` are the files in the directory, if the caller knows them."""
        self._lock = threading.Lock()
        """Guards `_files` and `_directory`. No other lock is taken inside it."""
        self._directory = directory
        self._files: SortedMap[SnapshotFile] = SortedMap()
        self.reload(names)

    def reload(self, names: Iterable[str] | None = None) -> None:
        """Lists the directory again."""
        files: SortedMap[SnapshotFile] = SortedMap()
        for file in list_snapshot_files(self._directory, names):
            files[file.offset] = file
        with self._lock:
            self._files = files

    def update_parent_dir(self, directory: Path) -> None:
        """Updates the paths after the log's directory was renamed."""
        with self._lock:
            self._directory = directory
            for file in self._files.values():
                file.update_parent_dir(directory)

    def path_for(self, offset: int) -> Path:
        """Returns the path of a snapshot at an offset, whether it exists or not."""
        return producer_snapshot_file(self._directory, offset)

    def add(self, offset: int) -> None:
        """Adds a snapshot that was written to `path_for(offset)`."""
        with self._lock:
            self._files[offset] = SnapshotFile(self.path_for(offset), offset)

    @property
    def offsets(self) -> list[int]:
        with self._lock:
            return list(self._files)

    def get(self, offset: int) -> SnapshotFile | None:
        with self._lock:
            return self._files.get(offset)

    def latest(self) -> SnapshotFile | None:
        with self._lock:
            return self._files.last()

    def oldest(self) -> SnapshotFile | None:
        with self._lock:
            return self._files.first()

    def delete(self, offsets: Iterable[int]) -> None:
        """Deletes the snapshots at these offsets, if they exist."""
        for offset in offsets:
            with self._lock:
                file = self._files.pop(offset)
            if file is not None:
                file.delete_if_exists()

    def delete_before(self, offset: int) -> None:
        self.delete(known for known in self.offsets if known < offset)

    def delete_after(self, offset: int) -> None:
        self.delete(known for known in self.offsets if known > offset)

    def remove_stray(self, segment_base_offsets: Collection[int]) -> None:
        """Deletes snapshots that belong to no segment, with one exception.

        A snapshot beyond the base offsets of all segments was taken at shutdown, at the end of the log. The last of
        these is kept: it saves reading the active segment again.
        """
        bases = set(segment_base_offsets)
        strays = [offset for offset in self.offsets if offset not in bases]
        if strays and (not bases or strays[-1] > max(bases)):
            strays.pop()
        self.delete(strays)

    def mark_for_deletion(self, offset: int) -> SnapshotFile | None:
        """Removes a snapshot from the table and gives its file the ``.deleted`` suffix.

        Returns None if there is none, or if the file is already deleted.
        """
        with self._lock:
            file = self._files.pop(offset)
        if file is None:
            return None
        path = file.path
        try:
            file.rename_to_delete()
        except FileNotFoundError:
            logger.info("producer snapshot %s is gone already", path)
            return None
        except OSError as error:
            raise storage_error("rename", path, error) from error
        return file
