"""Stopping: every part gets its turn, whatever became of the one before."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")


def step(part: T | None, stop: Callable[[T], object]) -> Callable[[], object] | None:
    """How to stop a part that may not be there."""
    return None if part is None else partial(stop, part)


def run_steps(steps: Iterable[Callable[[], object] | None]) -> None:
    """Runs all steps in order; None stands for a part that was never made.

    A part that cannot be stopped in good order is named in the log. It must not keep the others from being stopped: a
    thread or a lock that is left behind keeps the process alive, or the next one from starting.
    """
    for step in steps:
        if step is not None:
            try:
                step()
            except Exception:
                logger.exception("A part of the node could not be stopped in good order")
