"""One bucket of a timing wheel."""

from __future__ import annotations

from typing import Any

from barnabas.server.timer.timer_task import TimerTask


class TimerTaskList:
    """The tasks that fall due in the same tick: a ring of links with the list itself as the dummy root.

    With the root in the ring no link lacks a neighbour, so a task is unlinked by joining the two beside it, without
    knowing which list it is in:

        list <-> task <-> task <-> list

    That is why a dict per bucket, which would be the quicker structure to type, is not used: it keeps its table after
    its entries have gone, and now and then an insertion stops to copy it.

    The list has no lock of its own. It belongs to a wheel, and the wheel's timer guards both.
    """

    __slots__ = ("_next", "_previous", "expiration_ms")

    NEVER = -1

    def __init__(self) -> None:
        self.expiration_ms = self.NEVER
        """When the bucket falls due in the present round of the wheel."""
        self._next: Any = self
        self._previous: Any = self

    def add(self, task: TimerTask) -> None:
        """Links an unlinked task at the end: tasks of one tick run in the order they came."""
        last = self._previous
        task._previous = last
        task._next = self
        last._next = task
        self._previous = task

    @staticmethod
    def unlink(task: TimerTask) -> None:
        """Takes a linked task out of whatever list it is in, and lets go of it."""
        before = task._previous
        after = task._next
        before._next = after
        after._previous = before
        # Besides marking the task as idle this breaks its references into the ring: its memory is freed by
        # reference counting, now, and not by a later run of the cycle collector.
        task._next = task._previous = None

    def set_expiration(self, expiration_ms: int) -> bool:
        """Whether this is news: the first task of a round sets it, and has the bucket queued; the others find it
        set."""
        if self.expiration_ms == expiration_ms:
            return False
        self.expiration_ms = expiration_ms
        return True

    def detach(self) -> TimerTaskList:
        """Moves all tasks, in constant time, to a new list, and leaves this one as new for its next round."""
        detached = TimerTaskList()
        first, last = self._next, self._previous
        if first is not self:
            detached._next, detached._previous = first, last
            first._previous = last._next = detached
        self._next = self._previous = self
        self.expiration_ms = self.NEVER
        return detached

    def pop(self) -> TimerTask | None:
        """Unlinks the first task."""
        task = self._next
        if task is self:
            return None
        assert isinstance(task, TimerTask)
        self.unlink(task)
        return task

    def __len__(self) -> int:
        count, link = 0, self._next
        while link is not self:
            count += 1
            link = link._next
        return count

    def __bool__(self) -> bool:
        return self._next is not self

    def __repr__(self) -> str:
        return f"<TimerTaskList of {len(self)} due at {self.expiration_ms}>"
