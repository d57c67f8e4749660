"""What a pipeline is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

SOURCE_FORMAT: Final = "barnabas"


@dataclass(frozen=True, slots=True)
class PipelineConfig:
    """Where a pipeline reads, where it writes, and how often."""

    out: str
    """A directory, or a URI of any file system that Hadoop knows. Tables of all pipelines may share it."""
    bootstrap_servers: str = "127.0.0.1:9092"
    checkpoint: str | None = None
    """Where Spark notes how far it has read; beside the tables if not given."""
    starting_offsets: str = "earliest"
    """Where to start if there is no checkpoint: ``earliest``, ``latest`` or the connector's JSON."""
    once: bool = False
    """Reads what there is, in as many batches as that takes, and ends."""
    trigger_ms: int = 10_000
    """How often there is a batch, otherwise."""
    lateness_ms: int = 600_000
    """By how much a record may be older than the newest one of its partition, and still be counted."""
    sketch_k: int = 4_096
    """Size of the sketches that percentiles are taken from: the error of a rank is about 2.3 / k^0.9, 0.13 % here."""
    compact_every: int = 60
    """After how many batches small files are merged into larger ones."""
    max_offsets_per_trigger: int = 1_000_000
    source_format: str = SOURCE_FORMAT
    source_options: Mapping[str, str] = field(default_factory=dict)
    """Further options of the source, such as ``kafka.security.protocol``."""

    def checkpoint_of(self, pipeline: str) -> str:
        return self.checkpoint or f"{self.out.rstrip('/')}/{pipeline}/_checkpoint"
