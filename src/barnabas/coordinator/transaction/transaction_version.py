"""The versions of the transaction protocol: the feature ``transaction.version``."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

FEATURE_NAME: Final = "transaction.version"

_END_TXN_WITH_EPOCH_BUMP: Final = 5
_ADD_PARTITIONS_OF_BROKERS: Final = 4
"""The first version that brokers send, to add partitions for clients of version 2."""


class TransactionVersion(IntEnum):
    """The protocol of transactions.

    0 is the original protocol. With 1 the coordinator's log has room for more fields. With 2 (KIP-890) each transaction
    has its own epoch, so that a late message of an earlier one cannot get into the next, and brokers add partitions to
    transactions themselves with the first records.

    The cluster's version is what it supports. A client's version follows from the versions of its requests: it uses 2
    if both support it.
    """

    TV_0 = 0
    TV_1 = 1
    TV_2 = 2

    @property
    def supports_epoch_bump(self) -> bool:
        return self >= TransactionVersion.TV_2

    @property
    def log_value_version(self) -> int:
        """The version of the coordinator's records."""
        return 0 if self is TransactionVersion.TV_0 else 1

    @classmethod
    def for_feature_level(cls, level: int) -> TransactionVersion:
        """Returns the version of a feature level; the latest known one for a level of a later Kafka."""
        return cls(max(0, min(level, TransactionVersion.TV_2)))

    @classmethod
    def for_end_txn(cls, api_version: int) -> TransactionVersion:
        return cls.TV_2 if api_version >= _END_TXN_WITH_EPOCH_BUMP else cls.TV_0

    @classmethod
    def for_add_partitions_to_txn(cls, api_version: int) -> TransactionVersion:
        return cls.TV_2 if api_version >= _ADD_PARTITIONS_OF_BROKERS else cls.TV_0
