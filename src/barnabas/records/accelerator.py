"""Chooses who does the work on single records: the compiled `_accelerator`, or its twin `_pure`.

Everything above asks this module and does not know which one it got. The twin takes over where the extension was not
built, and where ``BARNABAS_PURE=1`` asks for it (to debug, to compare, or to keep C extensions out of a process).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING or os.environ.get("BARNABAS_PURE") == "1":
    from barnabas.records import _pure as _implementation
else:
    try:
        from barnabas.records import _accelerator as _implementation
    except ImportError:
        from barnabas.records import _pure as _implementation

ACCELERATED: Final[bool] = _implementation.__name__.endswith("_accelerator")
"""Whether the compiled codec is in use."""

Record = _implementation.Record
RecordAppender = _implementation.RecordAppender
iterate_records = _implementation.iterate_records
size_of_payload = _implementation.size_of_payload
walk_records = _implementation.walk_records

__all__ = ["ACCELERATED", "Record", "RecordAppender", "iterate_records", "size_of_payload", "walk_records"]
