"""The log manager's interface to the cleaner.

The cleaner works on segments in the background, and must not run while the log is truncated or deleted, or its
directory is removed. So the log manager pauses it first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Protocol

from barnabas.common.topic_partition import TopicPartition
from barnabas.log.unified_log import UnifiedLog


class CleanerHooks(Protocol):
    """The methods that a log manager calls."""

    def pause_cleaning_for_retention(self, logs: Mapping[TopicPartition, UnifiedLog]) -> list[TopicPartition]:
        """Returns the logs that retention may process now; they are not cleaned until they are resumed.

        The cleaner itself applies retention to compacted logs whose old segments are deleted.
        """
        ...

    def abort_and_pause_cleaning(self, partition: TopicPartition) -> None:
        """Aborts the cleaning of a log, waits for its end, and pauses cleaning until it is resumed."""
        ...

    def resume_cleaning(self, partitions: Collection[TopicPartition]) -> None: ...

    def abort_cleaning(self, partition: TopicPartition) -> None:
        """Aborts the cleaning of a log, and waits for its end."""
        ...

    def maybe_truncate_checkpoint(self, log_dir: Path, partition: TopicPartition, offset: int) -> None:
        """Limits the cleaner's checkpoint of a truncated log to this offset."""
        ...

    def update_checkpoints(self, log_dir: Path, partition_to_remove: TopicPartition | None = None) -> None:
        """Writes the cleaner's checkpoint of a directory, without a removed partition."""
        ...

    def alter_checkpoint_dir(self, partition: TopicPartition, source: Path, destination: Path) -> None:
        """Moves the checkpoint of a log that has moved to another log directory."""
        ...

    def handle_log_dir_failure(self, log_dir: Path) -> None:
        """Called when a log directory goes offline."""
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
