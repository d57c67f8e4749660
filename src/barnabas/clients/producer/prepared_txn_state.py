"""The identity of a prepared transaction."""

from __future__ import annotations

from typing import NamedTuple

_NONE = -1


class PreparedTxnState(NamedTuple):
    """Identifies a prepared transaction (KIP-939) for the system that decides about it.

    That system stores it in its own log together with the decision, so that after a crash it can tell whether the
    transaction that Kafka still holds open is the one that was decided::

        database: BEGIN; UPDATE accounts ...; UPDATE kafka_txn SET state = '1000:7'; COMMIT
        Kafka:    producer.complete_transaction(PreparedTxnState.parse('1000:7'))

    As text it is empty if there is no transaction.
    """

    producer_id: int = _NONE
    epoch: int = _NONE

    @property
    def has_transaction(self) -> bool:
        """Whether a transaction is prepared."""
        return self.producer_id != _NONE

    @classmethod
    def parse(cls, text: str) -> PreparedTxnState:
        """Parses the result of `str`; raises `ValueError` for other text."""
        if not text:
            return cls()
        producer_id, colon, epoch = text.partition(":")
        if not colon or not (producer_id.isdecimal() and epoch.isdecimal()):
            raise ValueError(f"{text!r} is not the state of a prepared transaction: it is not of the form 12:3")
        return cls(int(producer_id), int(epoch))

    def __str__(self) -> str:
        return f"{self.producer_id}:{self.epoch}" if self.has_transaction else ""
