"""Runs operations of several steps as coroutines, on the client's thread.

Describing a group takes a coordinator lookup and then a request to the coordinator; listing all groups takes requests
to every broker at once. With callbacks, as in Kafka's admin client, that code is scattered. Here an operation is a
coroutine, which reads from top to bottom, and the client's thread resumes it with each response:

    nodes = await operation.ask(ANY, MetadataRequest(), read_nodes)
    listings = await together(*(list_groups_of(node) for node in nodes))

It is not asyncio: the only loop is that of the network client, so operations work the same whether a thread or an event
loop waits for their result.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Promise(Generic[T]):
    """A value that is not known yet. It and its waiters belong to one thread."""

    __slots__ = ("_done", "_error", "_value", "_waiting")

    def __init__(self) -> None:
        self._done = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self._waiting: list[Callable[[], None]] = []

    @property
    def is_done(self) -> bool:
        return self._done

    def resolve(self, value: T) -> None:
        """Sets the value and resumes the waiters before it returns. Only the first outcome counts."""
        if not self._done:
            self._done, self._value = True, value
            self._tell()

    def reject(self, error: BaseException) -> None:
        if not self._done:
            self._done, self._error = True, error
            self._tell()

    def when_done(self, call: Callable[[], None]) -> None:
        if self._done:
            call()
        else:
            self._waiting.append(call)

    def _tell(self) -> None:
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call()

    def result(self) -> T:
        """Returns the value, or raises the error, of a resolved promise."""
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]  # set together with _done

    def __await__(self) -> Generator[Promise[Any], None, T]:
        if not self._done:
            yield self
        return self.result()


class Task(Generic[T]):
    """A running coroutine, resumed from promise to promise."""

    __slots__ = ("_coroutine", "outcome")

    def __init__(self, coroutine: Coroutine[Promise[Any], None, T]) -> None:
        self._coroutine = coroutine
        self.outcome: Promise[T] = Promise()

    def step(self) -> None:
        """Runs the coroutine until it waits for an unresolved promise."""
        try:
            awaited = self._coroutine.send(None)
        except StopIteration as end:
            self.outcome.resolve(end.value)
        except Exception as error:  # noqa: BLE001 - it is the outcome
            self.outcome.reject(error)
        else:
            awaited.when_done(self.step)


async def together(*coroutines: Coroutine[Promise[Any], None, T]) -> list[T]:
    """Runs coroutines concurrently; returns their results. All have ended when this does, even if it fails."""
    tasks = [Task(coroutine) for coroutine in coroutines]
    for task in tasks:
        task.step()
    for task in tasks:
        if not task.outcome.is_done:
            ended: Promise[None] = Promise()
            task.outcome.when_done(lambda ended=ended: ended.resolve(None))  # type: ignore[misc]
            await ended
    return [task.outcome.result() for task in tasks]
