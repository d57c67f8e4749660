"""The periodic tasks of the active controller."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from barnabas.common.clock import Clock
from barnabas.common.dataclass import dataclass
from barnabas.common.exceptions import BarnabasError
from barnabas.controller.config import ControllerConfig
from barnabas.controller.managers import ControllerManagers
from barnabas.controller.result import ControllerResult
from barnabas.protocol.internal.metadata import NoOpRecord
from barnabas.raft.client import ApiMessageAndVersion

log = logging.getLogger(__name__)

IMMEDIATELY_NS = 10_000_000
"""The delay before a task that has more to do. Not 0: deferred events precede queued ones, so requests would starve."""

AFTER_AN_ERROR_NS = 5 * 60 * 1_000_000_000
"""The delay after a failed run: the log must not fill with the same error."""

STALE_BROKER_CHECKS_PER_SESSION = 8
"""A dead broker is fenced within 112.5 % of its session timeout."""


class PeriodicTaskError(BarnabasError):
    """A task failed. It is a bug, but another controller would have it, too."""


@dataclass(frozen=True, slots=True)
class PeriodicTask:
    """An operation to run every `period_ns`; it returns whether to run again at once."""

    name: str
    operation: Callable[[], ControllerResult[bool]]
    period_ns: int


class TaskScheduler(Protocol):
    """The queue that runs tasks, as write operations."""

    def schedule_task(self, tag: str, time_ns: int, operation: Callable[[], ControllerResult[None]]) -> None: ...

    def cancel_task(self, tag: str) -> None: ...


class PeriodicTaskControlManager:
    """Keeps the tasks scheduled while the controller is active. Only the controller's thread uses it."""

    def __init__(self, clock: Clock, scheduler: TaskScheduler) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._tasks: dict[str, PeriodicTask] = {}
        self.active = False

    def register(self, task: PeriodicTask) -> None:
        self._tasks[task.name] = task
        if self.active:
            self._schedule(task, task.period_ns)

    def activate(self) -> None:
        self.active = True
        for task in self._tasks.values():
            self._schedule(task, task.period_ns)

    def deactivate(self) -> None:
        self.active = False
        for name in self._tasks:
            self._scheduler.cancel_task(name)

    def _schedule(self, task: PeriodicTask, delay_ns: int) -> None:
        self._scheduler.schedule_task(task.name, self._clock.nanoseconds() + delay_ns, lambda: self._run(task))

    def _run(self, task: PeriodicTask) -> ControllerResult[None]:
        try:
            result = task.operation()
        except Exception as error:
            self._schedule(task, AFTER_AN_ERROR_NS)
            raise PeriodicTaskError(f"{task.name} failed: {error}") from error
        self._schedule(task, IMMEDIATELY_NS if result.response else task.period_ns)
        if result.records:
            log.debug("%s wrote %d record(s)", task.name, len(result.records))
        return ControllerResult(result.records, None, result.is_atomic)


def controller_tasks(config: ControllerConfig, managers: ControllerManagers) -> list[PeriodicTask]:
    """Returns the tasks of a controller. A period of 0 disables a task."""
    tokens = config.delegation_tokens
    tasks = (
        (
            "maybe_fence_stale_broker",
            managers.broker_lifecycle.fence_one_stale_broker,
            config.session_timeout_ms / STALE_BROKER_CHECKS_PER_SESSION,
        ),
        ("elect_preferred", managers.elections.balance_partition_leaders, config.leader_imbalance_check_interval_ms),
        ("elect_unclean", managers.elections.elect_unclean_leaders, config.unclean_leader_election_check_interval_ms),
        ("write_no_op_record", _no_op_record, config.max_idle_interval_ms),
        (
            "expire_delegation_tokens",
            managers.delegation_tokens.remove_expired,
            tokens.expiry_check_interval_ms if tokens.secret_key is not None else 0,
        ),
    )
    return [
        PeriodicTask(name, operation, int(period_ms * 1_000_000))
        for name, operation, period_ms in tasks
        if period_ms > 0
    ]


def _no_op_record() -> ControllerResult[bool]:
    return ControllerResult.of([ApiMessageAndVersion(NoOpRecord(), 0)], False)
