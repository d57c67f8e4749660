"""What compaction has to be told about: the log manager's side of the cleaner.

The cleaner works on segments in the background, and must not be surprised by somebody who truncates or deletes the log,
or takes its directory away. So whoever does that has it pause first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Protocol

from barnabas.common.topic_partition import TopicPartition
from barnabas.log.unified_log import UnifiedLog


class CleanerHooks(Protocol):
    """What a log manager calls."""

    def pause_cleaning_for_retention(self, logs: Mapping[TopicPartition, UnifiedLog]) -> list[TopicPartition]:
        """The logs that retention may look at now; they are not cleaned until they are resumed.

        Logs that are compacted *and* have old segments deleted are left to the cleaner, which does both.
        """
        ...

    def abort_and_pause_cleaning(self, partition: TopicPartition) -> None:
        """Returns when nobody is cleaning the log, and nobody will until it is resumed."""
        ...

    def resume_cleaning(self, partitions: Collection[TopicPartition]) -> None: ...

    def abort_cleaning(self, partition: TopicPartition) -> None:
        """Returns when nobody is cleaning the log."""
        ...

    def maybe_truncate_checkpoint(self, log_dir: Path, partition: TopicPartition, offset: int) -> None:
        """A log was truncated: it cannot have been cleaned further than to this offset."""
        ...

    def update_checkpoints(self, log_dir: Path, partition_to_remove: TopicPartition | None = None) -> None:
        """Writes down how far logs are cleaned, without one that is gone."""
        ...

    def alter_checkpoint_dir(self, partition: TopicPartition, source: Path, destination: Path) -> None:
        """A log has moved to another log directory."""
        ...

    def handle_log_dir_failure(self, log_dir: Path) -> None:
        """A log directory is offline."""
        ...


class NoCleaner:
    """Compacts nothing."""

    def pause_cleaning_for_retention(self, logs: Mapping[TopicPartition, UnifiedLog]) -> list[TopicPartition]:
        return list(logs)

    def abort_and_pause_cleaning(self, partition: TopicPartition) -> None: ...

    def resume_cleaning(self, partitions: Collection[TopicPartition]) -> None: ...

    def abort_cleaning(self, partition: TopicPartition) -> None: ...

    def maybe_truncate_checkpoint(self, log_dir: Path, partition: TopicPartition, offset: int) -> None: ...

    def update_checkpoints(self, log_dir: Path, partition_to_remove: TopicPartition | None = None) -> None: ...

    def alter_checkpoint_dir(self, partition: TopicPartition, source: Path, destination: Path) -> None: ...

    def handle_log_dir_failure(self, log_dir: Path) -> None: ...
