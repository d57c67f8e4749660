"""Reads and writes files below a directory or an object store prefix, on the driver and in Spark's workers.

Spark's and Hadoop's file systems are not used, so an object store needs no connector jar. Files of Delta tables are
accessed through delta-rs's object store, those of Iceberg tables through pyiceberg's file system. So a table and its
files always use the same settings.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from barnabas.common.extras import extra
from barnabas.spark.pipelines.config import ICEBERG

_SCHEME: Final = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:")


def local_path(location: str) -> Path | None:
    """Returns the directory of a location; None for an object store.

    >>> local_path("file:///data/a%20b")
    PosixPath('/data/a b')
    >>> local_path("s3://bucket/tables") is None
    True
    """
    if location.startswith("file:"):
        return Path(unquote(urlsplit(location).path))
    return None if _SCHEME.match(location) else Path(location).absolute()


class _DeltaUpload(io.RawIOBase):
    """A stream to a file of delta-rs's object store, which accepts bytes but not Arrow's buffers."""

    def __init__(self, location: str, properties: Mapping[str, str], name: str) -> None:
        from deltalake.fs import DeltaStorageHandler  # an extra

        super().__init__()
        self._stream: Any = DeltaStorageHandler(location, dict(properties))._handler.open_output_stream(name, None)
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        content = bytes(data)
        self._stream.write(content)
        self._size += len(content)
        return len(content)

    def tell(self) -> int:
        return self._size

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()


@dataclass(frozen=True, slots=True)
class TableStorage:
    """The files below one location. Instances are sent to Spark's workers."""

    location: str
    """An absolute path, or the URI of an object store."""
    table_format: str
    properties: Mapping[str, str] = field(default_factory=dict)

    def file_system(self) -> Any:
        """An Arrow file system whose root is the location."""
        with extra("arrow", "a table"):
            from pyarrow import fs  # an extra

        path = local_path(self.location)
        if path is not None:
            return fs.SubTreeFileSystem(str(path), fs.LocalFileSystem())
        if self.table_format == ICEBERG:
            from pyiceberg.io.pyarrow import PyArrowFileIO  # an extra

            reached = PyArrowFileIO(dict(self.properties))
            scheme, netloc, prefix = reached.parse_location(self.location, dict(self.properties))
            return fs.SubTreeFileSystem(prefix, reached.fs_by_scheme(scheme, netloc))
        from deltalake.fs import DeltaStorageHandler  # an extra

        return fs.PyFileSystem(DeltaStorageHandler(self.location, dict(self.properties)))

    def open_output(self, name: str) -> Any:
        """Returns a stream that creates a file. The file exists once the stream is closed."""
        path = local_path(self.location)
        if path is not None:
            (path / name).parent.mkdir(parents=True, exist_ok=True)
        if path is None and self.table_format != ICEBERG:
            import pyarrow as pa  # an extra

            return pa.PythonFile(_DeltaUpload(self.location, self.properties, name), mode="w")
        return self.file_system().open_output_stream(name)

    def read(self, name: str) -> bytes | None:
        """Returns the content of a file; None if there is no such file."""
        path = local_path(self.location)
        if path is not None and not (path / name).exists():
            return None
        try:
            with self.file_system().open_input_stream(name) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None

    def replace(self, name: str, data: bytes) -> None:
        """Replaces a file atomically: a reader finds either the old content or the new one."""
        path = local_path(self.location)
        if path is None:  # an object appears as a whole, when its upload ends
            with self.open_output(name) as stream:
                stream.write(data)
            return
        target = path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f"{target.name}.tmp")
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
