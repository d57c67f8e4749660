"""Transaction verification: no record joins a transaction that the coordinator does not know of (KIP-890).

A transactional batch that arrives late, after its transaction has ended, would open a new one in this partition which
nobody will ever end: a *hanging transaction*, and read-committed consumers stop there for good. So before the first
batch of a transaction is appended, the leader asks the coordinator whether the transaction is going on and has this
partition in it. While it waits for the answer, the end marker may come. The guard closes that gap::

    guard = states.maybe_start_transaction_verification(...)    # remembered here and by the request
    ... the coordinator says yes ...                            # meanwhile a marker may be written: it clears the guard
    states.batch_missing_required_verification(batch, guard)    # is it still the same one?
"""

from __future__ import annotations

from typing import Final


class VerificationGuard:
    """A token for one verification. Two are the same only if they are one object."""

    __slots__ = ()

    def verify(self, presented: VerificationGuard) -> bool:
        """Whether an append that brings `presented` is the one that was verified under this guard."""
        return presented is self and self is not SENTINEL

    def __repr__(self) -> str:
        return "VerificationGuard(sentinel)" if self is SENTINEL else f"VerificationGuard({id(self):#x})"


SENTINEL: Final = VerificationGuard()
"""Stands for "no guard": nothing was verified, or nothing had to be. It never lets anything pass."""


class VerificationStateEntry:
    """A verification that is going on for a producer.

    It also keeps the lowest sequence number among the batches that wait. If a low batch has to be sent again because
    its verification failed for the moment, a higher one must not get in before it: the low one would then be out of
    order for ever. A higher epoch starts the count anew.

    Lives until the producer's next transactional batch or marker is appended, or until it is as old as idle producers
    may get.
    """

    __slots__ = ("epoch", "lowest_sequence", "supports_epoch_bump", "timestamp", "verification_guard")

    def __init__(self, timestamp: int, sequence: int, epoch: int, *, supports_epoch_bump: bool) -> None:
        self.timestamp = timestamp
        self.verification_guard = VerificationGuard()
        self.lowest_sequence = sequence
        self.epoch = epoch
        self.supports_epoch_bump = supports_epoch_bump
        """Whether the client speaks transaction version 2, in which every transaction has an epoch of its own."""

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
