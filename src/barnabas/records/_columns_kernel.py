"""Chooses who does the work on the bytes of columns: the compiled `_columns`, or its twin `_columns_pure`.

The twin takes over where the extension was not built, and where ``BARNABAS_PURE=1`` asks for it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING or os.environ.get("BARNABAS_PURE") == "1":
    from barnabas.records import _columns_pure as _implementation
else:
    try:
        from barnabas.records import _columns as _implementation
    except ImportError:
        from barnabas.records import _columns_pure as _implementation

ACCELERATED: Final[bool] = _implementation.__name__.endswith("._columns")
"""Whether the compiled kernel is in use."""

BinaryColumn = _implementation.BinaryColumn
BinarySink = _implementation.BinarySink
ColumnSink = _implementation.ColumnSink
Encoder = _implementation.Encoder
HeaderColumn = _implementation.HeaderColumn
Section = _implementation.Section
ViewSink = _implementation.ViewSink
combined_crc32c = _implementation.combined_crc32c
plain_extent = _implementation.plain_extent
plain_sections = _implementation.plain_sections
records_checksum = _implementation.records_checksum
seal = _implementation.seal
repeat_numbers = _implementation.repeat_numbers
totals = _implementation.totals

__all__ = [
    "ACCELERATED",
    "BinaryColumn",
    "BinarySink",
    "ColumnSink",
    "Encoder",
    "HeaderColumn",
    "Section",
    "ViewSink",
    "combined_crc32c",
    "plain_extent",
    "plain_sections",
    "records_checksum",
    "repeat_numbers",
    "seal",
    "totals",
]
