"""Settings of a pipeline and of its tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

SOURCE_FORMAT: Final = "barnabas"
DELTA: Final = "delta"
ICEBERG: Final = "iceberg"
TABLE_FORMATS: Final = (DELTA, ICEBERG)


@dataclass(frozen=True, slots=True)
class TableOptions:
    """The format of the tables, and how to reach their files and their catalog."""

    table_format: str | None = None
    """``delta`` or ``iceberg``. None: the format of the existing tables, else Delta."""
    catalog: str | None = None
    """Iceberg: the name of a catalog in pyiceberg's configuration. Without a catalog and without properties, the
    catalog is an SQLite file beside the tables."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Delta: options of the object store, such as ``AWS_ENDPOINT_URL``. Iceberg: properties of the catalog and of its
    file system, such as ``type``, ``uri`` and ``s3.endpoint``."""

    def __post_init__(self) -> None:
        if self.table_format not in (None, *TABLE_FORMATS):
            raise ValueError(f"unknown table format {self.table_format}; expected {' or '.join(TABLE_FORMATS)}")


@dataclass(frozen=True, slots=True)
class PipelineConfig:
    """Where a pipeline reads, where it writes, and how often."""

    out: str
    """A directory, or the URI of an object store. Tables of all pipelines may share it."""
    bootstrap_servers: str = "127.0.0.1:9092"
    checkpoint: str | None = None
    """Where Spark stores its offsets; beside the tables if not given."""
    starting_offsets: str = "earliest"
    """Where to start without a checkpoint: ``earliest``, ``latest`` or the connector's JSON."""
    once: bool = False
    """Read all available records, in as many batches as necessary, then end."""
    trigger_ms: int = 10_000
    """Interval between two batches, without ``once``."""
    lateness_ms: int = 600_000
    """How much older than the newest record of its partition a record may be before it is late."""
    sketch_k: int = 4_096
    """Size of the sketches that percentiles are taken from: the error of a rank is about 2.3 / k^0.9, 0.13 % here."""
    compact_every: int = 60
    """Number of batches between two compactions of the tables."""
    keep_hours: int = 168
    """How long unused files are kept, for readers of older versions of a table."""
    max_offsets_per_trigger: int = 1_000_000
    source_format: str = SOURCE_FORMAT
    source_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Further options of the source, such as ``kafka.security.protocol``. They may contain credentials."""
    tables: TableOptions = field(default_factory=TableOptions)

    def checkpoint_of(self, pipeline: str) -> str:
        return self.checkpoint or f"{self.out.rstrip('/')}/{pipeline}/_checkpoint"
