"""Where compiled loops let other threads run."""

from __future__ import annotations


def offer_turn() -> None:
    """Does nothing: at the start of every Python function the interpreter gives its lock to a thread that has waited
    for a switch interval. So a compiled loop calls this one now and then.

    To release the lock and take it back would not do. The thread that waits is woken, finds the lock taken again, and
    starts to wait for another interval. If that happens more often than once an interval, it waits until the loop ends.
    """
