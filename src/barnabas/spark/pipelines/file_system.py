"""Small files beside the tables, on whatever file system the tables are on.

Spark writes tables to any file system that Hadoop knows. Manifests have to be in the same place, so they go the same
way: through Hadoop's classes in the driver's Java machine, not through Python's ``open``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class FileSystem:
    """The file system of one directory."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._path = spark._jvm.org.apache.hadoop.fs.Path  # type: ignore[union-attr]
        self._bytes = spark._jvm.org.apache.commons.io.IOUtils  # type: ignore[union-attr]
        hadoop = spark._jsc.hadoopConfiguration()
        self._fs: Any = self._path(root).getFileSystem(hadoop)
        self._context: Any = spark._jvm.org.apache.hadoop.fs.FileContext  # type: ignore[union-attr]
        self.root = str(self._fs.makeQualified(self._path(root)).toString())
        self._contexts: Any = self._context.getFileContext(self._fs.getUri(), hadoop)
        self._overwrite = spark.sparkContext._gateway.new_array(  # type: ignore[union-attr]
            spark._jvm.org.apache.hadoop.fs.Options.Rename,  # type: ignore[union-attr]
            1,
        )
        self._overwrite[0] = spark._jvm.org.apache.hadoop.fs.Options.Rename.OVERWRITE  # type: ignore[union-attr]

    def names(self, directory: str) -> list[str]:
        """What is in a directory; nothing if it is not there."""
        path = self._path(self._absolute(directory))
        if not self._fs.exists(path):
            return []
        return [status.getPath().getName() for status in self._fs.listStatus(path)]

    def exists(self, name: str) -> bool:
        return bool(self._fs.exists(self._path(self._absolute(name))))

    def read(self, name: str) -> bytes:
        stream = self._fs.open(self._path(self._absolute(name)))
        try:
            return bytes(self._bytes.toByteArray(stream))
        finally:
            stream.close()

    def replace(self, name: str, data: bytes) -> None:
        """Writes a file so that it is there as a whole or not at all, whatever happens meanwhile."""
        target = self._path(self._absolute(name))
        temporary = self._path(self._absolute(f"{name}.tmp"))
        stream = self._fs.create(temporary, True)
        try:
            stream.write(bytearray(data))
            stream.hsync()
        finally:
            stream.close()
        self._contexts.rename(temporary, target, self._overwrite)

    def walk(self, directory: str, suffix: str) -> list[tuple[str, int]]:
        """The files at whatever depth whose names end so, in order, with their sizes."""
        top = self._path(self._absolute(directory))
        if not self._fs.exists(top):
            return []
        found: list[tuple[str, int]] = []
        prefix = len(top.toUri().getPath()) + 1
        listed = self._fs.listFiles(top, True)
        while listed.hasNext():
            status = listed.next()
            name = status.getPath().toUri().getPath()[prefix:]
            if name.endswith(suffix):
                found.append((name, int(status.getLen())))
        return sorted(found)

    def rename(self, source: str, target: str) -> None:
        """Moves a file, in place of one that may be there."""
        path = self._path(self._absolute(target))
        self._fs.mkdirs(path.getParent())
        self._contexts.rename(self._path(self._absolute(source)), path, self._overwrite)

    def delete(self, name: str) -> None:
        """Removes a file, or a directory with all that is in it, if it is there."""
        self._fs.delete(self._path(self._absolute(name)), True)

    def _absolute(self, name: str) -> str:
        return f"{self.root}/{name}" if name else self.root
