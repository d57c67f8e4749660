"""The versions of the transaction protocol: the feature ``transaction.version``."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

FEATURE_NAME: Final = "transaction.version"

_END_TXN_WITH_EPOCH_BUMP: Final = 5
_ADD_PARTITIONS_OF_BROKERS: Final = 4
"""From this version on it is sent by brokers, which add partitions for clients that speak version 2."""


class TransactionVersion(IntEnum):
    """How clients and brokers do transactions.

    0 is the protocol of old. With 1 the coordinator's log has room for more fields. With 2 (KIP-890) each transaction
    has an epoch of its own, so that a late message of an earlier one cannot be taken for one of the next, and brokers
    add partitions to transactions themselves when the first records come.

    The cluster's version says what it can do. A client's version is what it does, and is told by the version of its
    requests: it speaks 2 if both can.
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
        """Of a level that a later Kafka has set, as much as is known here."""
        return cls(max(0, min(level, TransactionVersion.TV_2)))

    @classmethod
    def for_end_txn(cls, api_version: int) -> TransactionVersion:
        return cls.TV_2 if api_version >= _END_TXN_WITH_EPOCH_BUMP else cls.TV_0

    @classmethod
    def for_add_partitions_to_txn(cls, api_version: int) -> TransactionVersion:
        return cls.TV_2 if api_version >= _ADD_PARTITIONS_OF_BROKERS else cls.TV_0
