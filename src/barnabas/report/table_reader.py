"""Reads the tables of the pipelines with Arrow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas.spark.pipelines.tables import OLD_MANIFESTS, has_tables, table_files

if TYPE_CHECKING:
    import pyarrow as pa

PIPELINES: Final = ("requests", "quotas", "telemetry", "quota-advice", "quota-dry-run")


class ReportError(Exception):
    """The report cannot be rendered; the message is one line that says why."""


class TableReader:
    """Reads the tables below one directory.

    Roll-ups may have several rows per window and key until the pipeline has merged them. So everything computed here is
    a sum, a maximum, or a percentile of merged sketches, which do not depend on the merging.
    """

    def __init__(self, where: str | Path) -> None:
        if "://" in str(where):
            raise ReportError(f"{where} is not a local directory: copy the tables to this machine first")
        out = Path(where)
        if not out.is_dir():
            raise ReportError(f"there is no directory {out}; barnabas pipeline run ... --out {out} makes it")
        self.out = out
        for name in PIPELINES:
            if (out / name / OLD_MANIFESTS).is_dir():
                raise ReportError(
                    f"the tables in {out} have the format of release 0.1: barnabas pipeline convert {out}"
                )
        self.pipelines = tuple(name for name in PIPELINES if has_tables(out, name))
        if not self.pipelines:
            raise ReportError(
                f"there are no tables in {out}; barnabas pipeline run requests --once --out {out} makes some"
            )

    def read(self, pipeline: str, table: str, columns: Sequence[str]) -> pa.Table | None:
        """Returns the rows of a table; None if it is empty. Times become microseconds since 1970."""
        import pyarrow as pa  # an extra
        import pyarrow.parquet as pq

        try:
            files = table_files(self.out, pipeline, table)
            parts = [pq.read_table(file, columns=list(columns), partitioning=None) for file in files]
        except (OSError, ValueError, KeyError) as error:
            first = (str(error).splitlines() or [type(error).__name__])[0]
            raise ReportError(f"the table {pipeline}/{table} in {self.out} cannot be read: {first}") from None
        parts = [part for part in parts if part.num_rows]
        if not parts:
            return None
        rows = pa.concat_tables(parts, promote_options="permissive")
        for number, field in enumerate(rows.schema):
            if pa.types.is_timestamp(field.type):
                moments = rows.column(number).cast(pa.timestamp("us", field.type.tz)).cast(pa.int64())
                rows = rows.set_column(number, field.name, moments)
        return rows

    def count(self, pipeline: str, table: str) -> int:
        """Returns the number of rows of a table without reading them."""
        import pyarrow.parquet as pq

        return sum(pq.read_metadata(file).num_rows for file in table_files(self.out, pipeline, table))
