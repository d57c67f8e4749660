"""Runs shutdown steps: each step runs even if the one before failed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")


def step(part: T | None, stop: Callable[[T], object]) -> Callable[[], object] | None:
    """Returns the step that stops a part; None if the part does not exist."""
    return None if part is None else partial(stop, part)


def run_steps(steps: Iterable[Callable[[], object] | None]) -> None:
    """Runs all steps in order; skips None, which stands for a part that was never made.

    A step that fails is logged, and the others still run: a remaining thread would keep the process alive, and a
    remaining lock would keep the next process from starting.
    """
    for step in steps:
        if step is not None:
            try:
                step()
            except Exception:
                logger.exception("A part of the node could not be stopped in good order")
