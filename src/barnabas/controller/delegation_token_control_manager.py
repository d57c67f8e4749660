"""Delegation tokens in the metadata log: kept, so that a log that contains some can be replayed."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from barnabas.common.snapshot_registry import SnapshotRegistry, TimelineHashMap
from barnabas.protocol.internal.metadata import DelegationTokenRecord, RemoveDelegationTokenRecord

log = logging.getLogger(__name__)


class DelegationTokenControlManager:
    """Holds the last record of each token by id. This controller replays tokens but issues none."""

    def __init__(self, registry: SnapshotRegistry) -> None:
        self._tokens: TimelineHashMap[str, DelegationTokenRecord] = TimelineHashMap(registry)

    @property
    def tokens(self) -> Mapping[str, DelegationTokenRecord]:
        return self._tokens.present

    def replay(self, record: DelegationTokenRecord) -> None:
        self._tokens[record.token_id] = record
        log.info("Added delegation token %s of %s", record.token_id, record.owner)

    def replay_removal(self, record: RemoveDelegationTokenRecord) -> None:
        self._tokens.pop(record.token_id)
        log.info("Removed delegation token %s", record.token_id)
