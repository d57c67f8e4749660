"""Estimates the compression ratio of a topic's batches from those that were sent."""

from __future__ import annotations

import threading
from typing import Final

from barnabas.records.batch import CompressionType

IMPROVING_STEP: Final = 0.005
DETERIORATE_STEP: Final = 0.05


class CompressionRatioEstimator:
    """Estimates compressed by uncompressed size for each topic and codec. It starts at 1: no compression.

    A batch is sized before it is compressed. Too low an estimate makes batches too large, which a broker may reject. So
    it falls slowly (half a per cent for each batch that did better) and rises quickly (to the measured value, or by
    five per cent for each batch that did worse, whichever is more). A rejected batch sets it to 1 or more.
    """

    __slots__ = ("_lock", "_ratios")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """Guards changes of the ratios, made by the I/O thread; readers take one value and need no lock."""
        self._ratios: dict[tuple[str, CompressionType], float] = {}

    def estimation(self, topic: str, compression: CompressionType) -> float:
        return self._ratios.get((topic, compression), 1.0)

    def update_estimation(self, topic: str, compression: CompressionType, observed: float) -> float:
        """Takes a measured ratio into account; returns the estimate."""
        with self._lock:
            ratio = self._ratios.get((topic, compression), 1.0)
            if observed > ratio:
                ratio = max(ratio + DETERIORATE_STEP, observed)
            elif observed < ratio:
                ratio = max(ratio - IMPROVING_STEP, observed)
            self._ratios[topic, compression] = ratio
            return ratio

    def set_estimation(self, topic: str, compression: CompressionType, ratio: float) -> None:
        with self._lock:
            self._ratios[topic, compression] = ratio
