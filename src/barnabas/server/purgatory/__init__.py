"""Purgatories: requests that cannot be completed yet wait here without holding a thread."""

from __future__ import annotations

from barnabas.server.purgatory.delayed_future import DelayedFuture, DelayedFuturePurgatory
from barnabas.server.purgatory.delayed_operation import DelayedOperation
from barnabas.server.purgatory.delayed_operation_purgatory import DelayedOperationPurgatory, ExpiredOperationReaper

__all__ = [
    "DelayedFuture",
    "DelayedFuturePurgatory",
    "DelayedOperation",
    "DelayedOperationPurgatory",
    "ExpiredOperationReaper",
]
