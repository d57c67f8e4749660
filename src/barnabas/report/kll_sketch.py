"""Reads KLL sketches as Spark stores them, without Java.

A sketch of Apache DataSketches holds values in levels: a value of level 0 counts once, one of level 1 twice, one of
level 2 four times. So a percentile over any number of sketches needs no merging by their library: sorting all values
with their weights is enough.

The compact form, little-endian::

    0  1   length of the preamble in ints: 2, or 5
    1  1   version: 1, or 2 for the form with one value
    2  1   family: 15
    3  1   flags: 1 empty, 4 one value
    4  2   k
    6  2   m, unused
    8  8   n, the number of values seen          (empty: ends before this; one value: that value, and the end)
   16  2   smallest k of all merged sketches
   18  2   number of levels, unused
   20  4L  where each level begins, relative to the same place in the array of values
       8   minimum
       8   maximum
       8.. values, level 0 first
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.float64]

FAMILY: Final = 15
_EMPTY, _SINGLE = 1, 4
_LEVELS_AT: Final = 20


def sketch_values(data: bytes) -> tuple[Array, Array]:
    """Returns the values of a sketch and their weights.

    >>> sketch_values(bytes([2, 2, 15, 4, 200, 0, 8, 0, 0, 0, 0, 0, 0, 0, 240, 63]))
    (array([1.]), array([1.]))
    """
    import numpy as np  # an extra

    if len(data) < 8 or data[2] != FAMILY:
        raise ValueError("not a KLL sketch")
    flags = data[3]
    if flags & _EMPTY:
        return np.empty(0), np.empty(0)
    if flags & _SINGLE:
        return np.frombuffer(data, "<f8", 1, 8).copy(), np.ones(1)
    level_count = data[18]
    values_at = _LEVELS_AT + 4 * level_count + 16
    if level_count == 0 or len(data) < values_at or (len(data) - values_at) % 8:
        raise ValueError("truncated KLL sketch")
    begins = np.frombuffer(data, "<u4", level_count, _LEVELS_AT).astype(np.int64)
    values = np.frombuffer(data, "<f8", -1, values_at).copy()
    sizes = np.diff(np.append(begins - begins[0], len(values)))
    if (sizes < 0).any():
        raise ValueError("KLL sketch with levels out of order")
    return values, np.repeat(2.0 ** np.arange(level_count), sizes)


def quantiles(sketches: Iterable[tuple[bytes, float]], ranks: Sequence[float]) -> list[float | None]:
    """Returns percentiles over all sketches; each sketch comes with the weight of one of its values.

    The value of a rank is the first, in ascending order, at which the cumulative weight reaches that fraction. So it is
    always an existing value and never an interpolated one.
    """
    import numpy as np  # an extra

    found = [(values, weights * factor) for data, factor in sketches for values, weights in [sketch_values(data)]]
    found = [(values, weights) for values, weights in found if len(values)]
    if not found:
        return [None] * len(ranks)
    values = np.concatenate([one for one, _ in found])
    weights = np.concatenate([one for _, one in found])
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    # Floating-point sums: rounding must not miss a rank that is reached exactly.
    wanted = np.asarray(ranks) * reached[-1] * (1 - 1e-12)
    places = np.minimum(np.searchsorted(reached, wanted), len(values) - 1)
    return [float(value) for value in values[order][places]]
