"""Applies records of the metadata log to the manager that owns their type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from barnabas.common.shutdownable_thread import FatalExitError
from barnabas.metadata.errors import MetadataReplayError
from barnabas.protocol.internal.framing import MetadataRecord

RecordType = type[MetadataRecord]


class RecordReplay:
    """Applies records to the controller's state, each by its type.

    Only replay changes the state, both on the active controller and on a standby. An unknown type is an error: a
    controller that skipped a record would silently diverge from the others.
    """

    __slots__ = ("_with_offset", "_without_offset")

    def __init__(
        self,
        without_offset: Mapping[RecordType, Callable[[Any], None]],
        with_offset: Mapping[RecordType, Callable[[Any, int], None]],
    ) -> None:
        self._without_offset = without_offset
        self._with_offset = with_offset

    def __call__(self, record: MetadataRecord, offset: int) -> None:
        replay = self._without_offset.get(type(record))
        if replay is not None:
            replay(record)
            return
        replay_at = self._with_offset.get(type(record))
        if replay_at is None:
            raise MetadataReplayError(f"no manager replays a {type(record).__name__}")
        replay_at(record, offset)

    def or_exit(self, record: MetadataRecord, offset: int) -> None:
        """Applies a record; an error ends the process, because the state would differ from the log."""
        try:
            self(record, offset)
        except Exception as error:
            raise FatalExitError(
                1, f"the {type(record).__name__} at offset {offset} cannot be applied: {error}"
            ) from error


def ignore(_record: MetadataRecord) -> None:
    """Ignores a record that only takes up an offset."""
