"""One bucket of a timing wheel."""

from __future__ import annotations

from typing import Any

from barnabas.server.timer.timer_task import TimerTask


class TimerTaskList:
    """The tasks that fall due in the same tick: a circular doubly linked list with the list itself as dummy root.

    With the root in the ring every node has two neighbours, so a task is unlinked by joining its neighbours, without
    knowing its list:

        list <-> task <-> task <-> list

    A dict per bucket would be simpler, but it keeps its table after its entries are removed, and an insertion
    occasionally has to copy it.

    The list has no lock. It belongs to a wheel, and the wheel's timer guards both.
    """

    __slots__ = ("_next", "_previous", "expiration_ms")

    NEVER = -1

    def __init__(self) -> None:
        self.expiration_ms = self.NEVER
        """When the bucket falls due in the current round of the wheel."""
        self._next: Any = self
        self._previous: Any = self

    def add(self, task: TimerTask) -> None:
        """Appends an unlinked task: tasks of one tick run in the order in which they were added."""
        last = self._previous
        task._previous = last
        task._next = self
        last._next = task
        self._previous = task

    @staticmethod
    def unlink(task: TimerTask) -> None:
        """Removes a linked task from its list."""
        before = task._previous
        after = task._next
        before._next = after
        after._previous = before
        # This marks the task as idle and breaks its references into the ring, so that reference counting frees its
        # memory now, not a later run of the cycle collector.
        task._next = task._previous = None

    def set_expiration(self, expiration_ms: int) -> bool:
        """Sets the expiration; returns whether it changed. Only the first task of a round changes it and has the
        bucket queued."""
        if self.expiration_ms == expiration_ms:
            return False
        self.expiration_ms = expiration_ms
        return True

    def detach(self) -> TimerTaskList:
        """Moves all tasks to a new list, in constant time, and resets this one for its next round."""
        detached = TimerTaskList()
        first, last = self._next, self._previous
        if first is not self:
            detached._next, detached._previous = first, last
            first._previous = last._next = detached
        self._next = self._previous = self
        self.expiration_ms = self.NEVER
        return detached

    def pop(self) -> TimerTask | None:
        """Removes and returns the first task."""
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
