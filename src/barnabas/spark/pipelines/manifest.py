"""What belongs to the tables of a pipeline: the list that makes a batch count once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from barnabas.spark.pipelines.file_system import FileSystem

DIRECTORY: Final = "_manifests"
KEPT: Final = 10
"""So many old versions stay, for readers who are in the middle of one."""
FORMAT: Final = 1


class ForeignTablesError(Exception):
    """The tables were written with another checkpoint: going on would count the same records twice."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A directory of Parquet files that one batch, or one compaction, has written for one table."""

    path: str
    """Below the pipeline's directory."""
    first_us: int
    last_us: int
    """The records that went into it are from this time, microseconds since 1970."""
    compacted: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "first_us": self.first_us,
            "last_us": self.last_us,
            "compacted": self.compacted,
        }


@dataclass(frozen=True, slots=True)
class Manifest:
    """The state of all tables of a pipeline after a batch.

    Each batch, or compaction, makes a new version: it lists every segment that counts. A version is written in one
    step after the segments that it names, so there are three moments at which a process can die in a batch:

    1. *Before the manifest.* Segments may be there, whole or in part, but nothing names them. The batch runs again,
       gets the same version number, and overwrites them.
    2. *After the manifest, before Spark's own commit.* Spark runs the batch again. Its query and number are in the
       manifest already, so it is passed over.
    3. *After Spark's commit.* The next batch is next.

    So every record counts once in every table, and all tables of a pipeline change together.
    """

    version: int = 0
    query_id: str = ""
    batch_id: int = -1
    """The last batch in here."""
    tables: Mapping[str, tuple[Segment, ...]] = field(default_factory=dict)
    newest_us: Mapping[str, int] = field(default_factory=dict)
    """The time of the newest record of each partition, by ``topic-partition``: what lateness is measured by."""

    def has_batch(self, query_id: str, batch_id: int) -> bool:
        """Whether a batch counts already; `ForeignTablesError` if another query has written here."""
        if self.query_id and self.query_id != query_id:
            raise ForeignTablesError(
                f"the tables were written with another checkpoint (query {self.query_id}, and this is {query_id}): "
                "use that checkpoint, or another directory for the tables"
            )
        return batch_id <= self.batch_id

    def with_tables(self, tables: Mapping[str, tuple[Segment, ...]]) -> Manifest:
        """The next version, with other segments."""
        return replace(self, version=self.version + 1, tables=dict(tables))

    def to_json(self) -> bytes:
        document = {
            "format": FORMAT,
            "version": self.version,
            "query_id": self.query_id,
            "batch_id": self.batch_id,
            "newest_us": dict(self.newest_us),
            "tables": {name: [one.to_json() for one in segments] for name, segments in self.tables.items()},
        }
        return json.dumps(document, indent=1).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        document = json.loads(data)
        if document["format"] != FORMAT:
            raise ValueError(f"a manifest of format {document['format']}, and this reads {FORMAT}")
        return cls(
            document["version"],
            document["query_id"],
            document["batch_id"],
            {name: tuple(Segment(**one) for one in segments) for name, segments in document["tables"].items()},
            document["newest_us"],
        )


class ManifestStore:
    """The manifests of a pipeline. One process writes, any number read."""

    def __init__(self, files: FileSystem) -> None:
        self._files = files

    def latest(self) -> Manifest:
        """The newest; an empty one if there is none."""
        versions = self._versions()
        return Manifest.from_json(self._files.read(_name(versions[-1]))) if versions else Manifest()

    def commit(self, manifest: Manifest) -> None:
        """Makes it the newest, and forgets versions that are long replaced, with the segments that only they had."""
        self._files.replace(_name(manifest.version), manifest.to_json())
        versions = self._versions()
        if len(versions) <= KEPT:
            return
        kept = [Manifest.from_json(self._files.read(_name(version))) for version in versions[-KEPT:]]
        needed = {segment.path for one in kept for segments in one.tables.values() for segment in segments}
        for version in versions[:-KEPT]:
            old = Manifest.from_json(self._files.read(_name(version)))
            for path in {segment.path for segments in old.tables.values() for segment in segments} - needed:
                self._files.delete(path)
            self._files.delete(_name(version))

    def _versions(self) -> list[int]:
        return sorted(int(name[:-5]) for name in self._files.names(DIRECTORY) if name.endswith(".json"))


def _name(version: int) -> str:
    return f"{DIRECTORY}/{version:09d}.json"
