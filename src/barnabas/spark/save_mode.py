"""The save mode of ``df.write.format("barnabas").save()``.

Spark's default mode is ``errorifexists``, and Spark refuses it for every Python data source without asking the source.
The stock Kafka connector treats it as ``append``: Spark writes to it through an older interface, which lets the
connector decide. The default mode is not configurable, so `append_by_default` changes ``DataFrameWriter.save`` for this
format alone. ``overwrite`` and ``ignore`` are still refused.
"""

from __future__ import annotations

from functools import wraps
from typing import Any, Final

FORMAT: Final = "barnabas"
ERROR_IF_EXISTS: Final = "ErrorIfExists"


def append_by_default() -> None:
    """Makes ``save()`` append to topics. Idempotent."""
    from pyspark.sql.readwriter import DataFrameWriter  # the import takes half a second

    original = DataFrameWriter.save
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
        source = self._jwrite.source() if format is None else format
        if source == FORMAT and mode is None and self._jwrite.curmode().toString() == ERROR_IF_EXISTS:
            mode = "append"
        original(self, path, format, mode, *arguments, **options)

    save.appends_to_topics = True  # type: ignore[attr-defined]
    DataFrameWriter.save = save  # type: ignore[method-assign]
