"""Operations that take several steps, on one thread and without one of their own.

To describe a group, somebody has to be asked who coordinates it, and then the coordinator; to list all groups, every
broker at once. Written with callbacks, as Kafka's admin client has it, that comes in pieces. Here an operation is a
coroutine, which reads from top to bottom, and the thread of the client takes it from one answer to the next:

    nodes = await operation.ask(ANY, MetadataRequest(), read_nodes)
    listings = await together(*(list_groups_of(node) for node in nodes))

It is not asyncio: there is no loop but that of the network client, so operations work the same whether a thread or
an event loop waits for their result.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Promise(Generic[T]):
    """A value that is not there yet. Belongs to one thread, as all that waits for it does."""

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
        """Whoever waits goes on, before this returns. The first outcome is the one that counts."""
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
        """The value, or the error, of one that is done."""
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]  # set together with _done

    def __await__(self) -> Generator[Promise[Any], None, T]:
        if not self._done:
            yield self
        return self.result()


class Task(Generic[T]):
    """A coroutine on its way, from promise to promise."""

    __slots__ = ("_coroutine", "outcome")

    def __init__(self, coroutine: Coroutine[Promise[Any], None, T]) -> None:
        self._coroutine = coroutine
        self.outcome: Promise[T] = Promise()

    def step(self) -> None:
        """Runs it until it waits for something that is not there yet."""
        try:
            awaited = self._coroutine.send(None)
        except StopIteration as end:
            self.outcome.resolve(end.value)
        except Exception as error:  # noqa: BLE001 - it is the outcome
            self.outcome.reject(error)
        else:
            awaited.when_done(self.step)


async def together(*coroutines: Coroutine[Promise[Any], None, T]) -> list[T]:
    """The results of several, which wait at the same time. All have ended when this does, also if it fails."""
    tasks = [Task(coroutine) for coroutine in coroutines]
    for task in tasks:
        task.step()
    for task in tasks:
        if not task.outcome.is_done:
            ended: Promise[None] = Promise()
            task.outcome.when_done(lambda ended=ended: ended.resolve(None))  # type: ignore[misc]
            await ended
    return [task.outcome.result() for task in tasks]
