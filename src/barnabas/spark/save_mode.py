"""The save mode of ``df.write.format("barnabas").save()``.

Spark's default mode is ``errorifexists``, and Spark refuses it for every Python data source without asking the source.
The stock Kafka connector treats it as ``append``: Spark writes to it through an older interface, which lets the
connector decide. The default mode is not configurable, so `append_by_default` changes ``DataFrameWriter.save`` for this
format alone. ``overwrite`` and ``ignore`` are still refused.

Spark Connect has a ``DataFrameWriter`` of its own, which is changed if it is loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, Final

FORMAT: Final = "barnabas"
ERROR_IF_EXISTS: Final = "ErrorIfExists"


def append_by_default() -> None:
    """Makes ``save()`` append to topics. Idempotent."""
    from pyspark.sql.readwriter import DataFrameWriter  # the import takes half a second

    _wrap(DataFrameWriter, lambda writer: (writer._jwrite.source(), writer._jwrite.curmode().toString()))
    if "pyspark.sql.connect.readwriter" in sys.modules:
        from pyspark.sql.connect.readwriter import DataFrameWriter as ConnectWriter

        _wrap(ConnectWriter, lambda writer: (writer._write.source, writer._write.mode or ERROR_IF_EXISTS))


def _wrap(writer_class: Any, source_and_mode: Callable[[Any], tuple[str | None, str]]) -> None:
    original = writer_class.save
    if getattr(original, "appends_to_topics", False):
        return

    @wraps(original)
    def save(
        self: Any,
        path: str | None = None,
        format: str | None = None,  # noqa: A002 - Spark's name
        mode: str | None = None,
        *arguments: Any,
        **options: Any,
    ) -> None:
        source, set_mode = source_and_mode(self)
        if (format or source) == FORMAT and mode is None and set_mode == ERROR_IF_EXISTS:
            mode = "append"
        original(self, path, format, mode, *arguments, **options)

    save.appends_to_topics = True  # type: ignore[attr-defined]
    writer_class.save = save
