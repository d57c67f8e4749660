"""Keeps the garbage collections of a Python worker process short."""

from __future__ import annotations

import gc
from functools import cache


@cache
def keep_modules() -> None:
    """Excludes what exists now from garbage collection. Only the first call in a process has an effect.

    Spark's worker runs a full collection after each task, before it takes the next one. Most of what it visits are the
    modules of Spark, Arrow and NumPy: 40 ms of a core for each task, which is as long as a small task takes itself.
    """
    gc.collect()
    gc.freeze()
