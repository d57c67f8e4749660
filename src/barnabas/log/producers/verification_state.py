"""Transaction verification: rejects records of transactions that the coordinator does not know (KIP-890).

A transactional batch that arrives after its transaction has ended would open a new one in this partition that is never
ended: a *hanging transaction*, which blocks read-committed consumers forever. So before the leader appends the first
batch of a transaction, it asks the coordinator whether the transaction is ongoing and includes this partition. While
the leader waits for the response, the end marker may arrive. The guard closes that gap::

    guard = states.maybe_start_transaction_verification(...)    # stored here and in the request
    ... the coordinator confirms ...                            # meanwhile a marker may be written: it clears the guard
    states.batch_missing_required_verification(batch, guard)    # is it still the same guard?
"""

from __future__ import annotations

from typing import Final


class VerificationGuard:
    """A token for one verification, compared by identity."""

    __slots__ = ()

    def verify(self, presented: VerificationGuard) -> bool:
        """Whether the append with the guard `presented` was verified under this guard."""
        return presented is self and self is not SENTINEL

    def __repr__(self) -> str:
        return "VerificationGuard(sentinel)" if self is SENTINEL else f"VerificationGuard({id(self):#x})"


SENTINEL: Final = VerificationGuard()
"""Stands for "no guard": nothing was verified, or nothing had to be. `verify` always fails with it."""


class VerificationStateEntry:
    """An ongoing verification for a producer.

    It also keeps the lowest sequence number of the waiting batches. If a batch has to be sent again after a temporary
    verification failure, a batch with a higher sequence number must not be appended before it: the lower one would then
    be out of order forever. A higher epoch resets the lowest sequence number.

    The entry lives until the producer's next transactional batch or marker is appended, or until it is as old as the
    expiration time of idle producers.
    """

    __slots__ = ("epoch", "lowest_sequence", "supports_epoch_bump", "timestamp", "verification_guard")

    def __init__(self, timestamp: int, sequence: int, epoch: int, *, supports_epoch_bump: bool) -> None:
        self.timestamp = timestamp
        self.verification_guard = VerificationGuard()
        self.lowest_sequence = sequence
        self.epoch = epoch
        self.supports_epoch_bump = supports_epoch_bump
        """Whether the client uses transaction version 2, in which every transaction has its own epoch."""

    def maybe_update_lowest_sequence_and_epoch(self, sequence: int, epoch: int) -> None:
        if epoch > self.epoch:
            self.epoch = epoch
            self.lowest_sequence = sequence
        elif epoch == self.epoch and sequence < self.lowest_sequence:
            self.lowest_sequence = sequence

    def __repr__(self) -> str:
        return (
            f"VerificationStateEntry(timestamp={self.timestamp}, lowest_sequence={self.lowest_sequence}, "
            f"epoch={self.epoch}, supports_epoch_bump={self.supports_epoch_bump})"
        )
